"""spec.json: what is wanted of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

from dflash_supervise.core.facts import Goal
from dflash_supervise.core.policy import MOST_S, Policy
from dflash_supervise.wire import from_json

SCHEMA = 1
MAX_WHOLE = 2**53  # JSON knows no larger whole number for sure
KINDS = ("bundled", "foreign", "adopted")
WANTS = ("run", "stop", "hold")
RUN_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


class SpecError(ValueError):
    """A spec that is not one; the text names the key."""


@dataclass(frozen=True)
class Adopt:
    """What an adopted run consists of. ``log`` is an absolute path."""

    tmux: Optional[str] = None
    pid: Optional[int] = None
    log: Optional[str] = None


@dataclass(frozen=True)
class Spec:
    """What is wanted of one run."""

    run_id: str
    name: str
    workspace: str
    generation: int
    owner: str
    want: str
    hold_for_s: Optional[float]
    end_attempt: Optional[int]
    kind: str
    gpus: Union[str, Tuple[str, ...]]  # "all", "none", or UUIDs
    policy: Policy
    highest_attempt: int
    trainer_hash: Optional[str]
    output_dir: str
    adopt: Optional[Adopt]
    accepted_s: float  # boot-time seconds at which this generation was accepted
    accepted_boot_id: str

    def goal(self, boot: str, agent_started_s: float) -> Goal:
        """The goal on this boot's clock. A hold that a reboot cut begins anew: its clock is gone."""
        since = self.accepted_s if self.accepted_boot_id == boot else agent_started_s
        until = since + self.hold_for_s if self.want == "hold" and self.hold_for_s is not None else None
        return Goal(self.want, self.generation, until, self.end_attempt)


def parse_spec(data: Any) -> Spec:
    """A decoded spec.json.

    Raises:
        SpecError: the text names the key and what is wrong with it.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SpecError(f"spec.schema: expected {SCHEMA}")
    goal = _object(data, "goal")
    kind = _choice(data, "kind", KINDS)
    adopt = data.get("adopt")
    try:
        policy = from_json(Policy, {} if data.get("policy") is None else data["policy"])
        adopted = from_json(Adopt, adopt) if adopt is not None else None
    except ValueError as error:
        raise SpecError(f"spec.{error}") from None
    if kind == "adopted" and adopted is None:
        raise SpecError("spec.adopt: an adopted run needs tmux, pid or log")
    accepted = _object(data, "accepted") if data.get("accepted") is not None else {}
    return Spec(
        run_id=check_run_id(data.get("run_id")),
        name=_text(data, "name"),
        workspace=_text(data, "workspace"),
        generation=_whole(data, "generation"),
        owner=_text(data, "owner"),
        want=_choice(goal, "want", WANTS),
        hold_for_s=_seconds(goal.get("hold_for_s"), "goal.hold_for_s", MOST_S),
        end_attempt=goal.get("end_attempt") if goal.get("end_attempt") is None else _whole(goal, "end_attempt"),
        kind=kind,
        gpus=_gpus(data.get("gpus", "all")),
        policy=policy,
        highest_attempt=_whole(data, "highest_attempt") if data.get("highest_attempt") is not None else 0,
        trainer_hash=_text(data, "trainer_hash") if data.get("trainer_hash") else None,
        output_dir=_text(data, "output_dir") if data.get("output_dir") else "",
        adopt=adopted,
        accepted_s=_seconds(accepted.get("boottime_s"), "accepted.boottime_s") or 0.0,
        accepted_boot_id=_text(accepted, "boot_id") if accepted.get("boot_id") else "",
    )


def check_run_id(value: Any) -> str:
    """The run id, which becomes a file name.

    Raises:
        SpecError: it is empty, too long or holds other characters than a-z, 0-9, _ and -.
    """
    if isinstance(value, str) and 0 < len(value) <= 120 and set(value) <= RUN_ID_CHARACTERS and value[0] != "-":
        return value
    raise SpecError(f"spec.run_id: {value!r} is no run id ([a-z0-9_-])")


def run_dir(workspace: str, run_id: str) -> str:
    """``<workspace>/.dflash/runs/<run_id>``."""
    return os.path.join(workspace, ".dflash", "runs", check_run_id(run_id))


def _object(data: Dict[str, Any], key: str) -> Dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise SpecError(f"spec.{key}: expected an object")
    return value


def _text(data: Dict[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value or "\0" in value:
        raise SpecError(f"spec.{key}: expected text, got {value!r:.80}")
    return value


def _whole(data: Dict[str, Any], key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_WHOLE:
        raise SpecError(f"spec.{key}: expected a whole number, got {value!r:.80}")
    return value


def _choice(data: Dict[str, Any], key: str, options: Tuple[str, ...]) -> str:
    value = data.get(key)
    if value not in options:
        raise SpecError("spec.{}: {!r} is not one of {}".format(key, value, ", ".join(options)))
    return str(value)


def _seconds(value: Any, key: str, most: float = float(MAX_WHOLE)) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:  # nan is neither
        raise SpecError(f"spec.{key}: expected 0 to {most:.0f} seconds, got {value!r:.80}")
    return float(value)


def _gpus(value: Any) -> Union[str, Tuple[str, ...]]:
    if value in ("all", "none"):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise SpecError(f"spec.gpus: {value!r} is not all, none or a list of UUIDs")
