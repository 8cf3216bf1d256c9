"""What a channel says about one try to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Sent:
    """It has arrived."""


@dataclass(frozen=True)
class Again:
    """Not now. ``after_s`` is what the receiver asked for; None leaves it to the back-off."""

    reason: str
    after_s: float | None = None


@dataclass(frozen=True)
class Never:
    """This message is refused for good; the next one may pass."""

    reason: str


@dataclass(frozen=True)
class Off:
    """The channel itself is gone or wrong: nothing more goes there until a person has looked."""

    reason: str


Result = Sent | Again | Never | Off


class Channel(Protocol):
    """One way to people. ``send`` raises nothing that the world can cause."""

    @property
    def name(self) -> str: ...

    def send(self, entry: dict[str, object]) -> Result: ...
