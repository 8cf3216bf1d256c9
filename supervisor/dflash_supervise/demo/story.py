"""From the trainer's log and the agent's records to what happened, and to what should have happened and did not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

# Both clocks are this machine's own: the demo runs where it is watched.
_LINE = re.compile(r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) [A-Z]+ \[(?P<part>\w+)\] (?P<text>.*)")
_FIELD = re.compile(r"(\S+?)=(\S+)")
_HEALTHY = frozenset({"starting", "running", "completed"})
_MEAN_STEPS = 10  # one batch of eight rows is noisy
TAU_FACTOR = 2.5
LOSS_FACTOR = 0.5


@dataclass(frozen=True)
class LogLine:
    """One line that the trainer wrote about itself; at_s in seconds since 1970."""

    attempt: int
    at_s: float
    part: str
    text: str
    fields: Mapping[str, str]

    def number(self, key: str) -> float | None:
        try:
            return float(self.fields[key])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True)
class Expected:
    """A fault that is injected, and the verdict that it shall get."""

    kind: str  # the trainer's word
    attempt: int
    step: int
    shown: str
    verdict: str
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Cure:
    """What became of one fault. Seconds count from the trainer's own announcement of it; None: it did not happen."""

    expected: Expected
    at_s: float | None = None
    at: str | None = None  # of the verdict's record
    verdict: str | None = None
    cause: str | None = None
    sentence: str = ""
    verdict_after_s: float | None = None
    next_step: int | None = None
    next_step_after_s: float | None = None
    resumed_step: int | None = None


@dataclass(frozen=True)
class Story:
    """The whole demo, as far as it has come."""

    cures: tuple[Cure, ...]
    losses: tuple[tuple[int, float], ...]
    taus: tuple[tuple[int, float], ...]
    identical: str | None  # "6/6": speculative outputs equal to plain greedy ones
    attempts: int
    verdict: str | None
    exit_status: int | None

    def loss_means(self) -> tuple[float, float] | None:
        """Mean loss of the first and of the last ten steps."""
        values = [loss for _step, loss in self.losses]
        if len(values) < 2 * _MEAN_STEPS:
            return None
        return sum(values[:_MEAN_STEPS]) / _MEAN_STEPS, sum(values[-_MEAN_STEPS:]) / _MEAN_STEPS


def read_line(text: str, attempt: int) -> LogLine | None:
    """A line of the trainer's own, or None for any other."""
    match = _LINE.fullmatch(text)
    if match is None:
        return None
    at_s = datetime.strptime(match["at"], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
    return LogLine(attempt, at_s, match["part"], match["text"], dict(_FIELD.findall(match["text"])))


def read_time(at: Any) -> float:
    """Seconds since 1970 of a record's ``at``.

    Raises:
        ValueError: no such time.
    """
    return datetime.fromisoformat(str(at).replace("Z", "+00:00")).timestamp()


def tell(
    lines: Sequence[LogLine],
    records: Sequence[Mapping[str, Any]],
    run: Mapping[str, Any],
    expected: Sequence[Expected],
) -> Story:
    """What happened so far.

    Args:
        lines: the trainer's lines of all attempts, in order.
        records: verdict records, in order.
        run: the API's Run.
        expected: the faults that were asked for.
    """
    taus = [
        (line.number("step"), line.number("tau"), line.fields.get("identical")) for line in lines if line.part == "eval"
    ]
    return Story(
        cures=tuple(_cure(fault, lines, records) for fault in expected),
        losses=tuple(sorted(_losses(lines).items())),
        taus=tuple((int(step), tau) for step, tau, _same in taus if step is not None and tau is not None),
        identical=next((same for _step, _tau, same in reversed(taus) if same), None),
        attempts=int(run.get("attempt") or 0),
        verdict=run.get("verdict"),
        exit_status=run.get("exit_status"),
    )


def missing(story: Story) -> list[str]:
    """Everything that the demo promises and that did not happen, a sentence each; empty when all is well."""
    wrong = [sentence for cure in story.cures for sentence in _missing_of(cure)]
    means = story.loss_means()
    if means is None:
        wrong.append("too few steps were seen to say whether the loss falls")
    elif means[1] > LOSS_FACTOR * means[0]:
        wrong.append(f"the loss did not fall to {LOSS_FACTOR:g} of its start: {means[0]:.3f} to {means[1]:.3f}")
    if len(story.taus) < 2:
        wrong.append("acceptance was not measured at the start and at the end")
    elif story.taus[-1][1] < TAU_FACTOR * story.taus[0][1]:
        rise = f"{story.taus[0][1]:.2f} to {story.taus[-1][1]:.2f}"
        wrong.append(f"acceptance length did not rise to {TAU_FACTOR:g} times its start: {rise}")
    same, _, compared = (story.identical or "").partition("/")
    if same != compared:
        wrong.append(f"only {story.identical} speculative outputs were those of plain greedy decoding")
    if story.verdict != "completed" or story.exit_status != 0:
        wrong.append(f"the run did not end as completed but as {story.verdict} (status {story.exit_status})")
    if story.attempts != len(story.cures) + 1:
        wrong.append(f"there were {story.attempts} attempts, and {len(story.cures) + 1} were expected")
    return wrong


def _losses(lines: Sequence[LogLine]) -> dict[int, float]:
    """Loss by step; a step that was made again after a restart counts once, as it was made last."""
    found = {}
    for line in lines:
        step, loss = line.number("step"), line.number("loss")
        if line.part == "train" and step is not None and loss is not None:
            found[int(step)] = loss
    return found


def _cure(expected: Expected, lines: Sequence[LogLine], records: Sequence[Mapping[str, Any]]) -> Cure:
    struck = next((line for line in lines if _announces(line, expected)), None)
    if struck is None:
        return Cure(expected)
    told = next((r for r in records if _accuses(r, expected.attempt)), None)
    later = [line for line in lines if line.attempt == expected.attempt + 1]
    stepped = next((line for line in later if line.part == "train" and "loss" in line.fields), None)
    resumed = next((line for line in later if line.part == "checkpoint" and "resumed" in line.fields), None)
    return Cure(
        expected,
        at_s=struck.at_s,
        at=told.get("at") if told else None,
        verdict=told.get("verdict") if told else None,
        cause=told.get("cause", "none") if told else None,
        sentence=str(told.get("sentence") or "") if told else "",
        verdict_after_s=read_time(told["at"]) - struck.at_s if told else None,
        next_step=_whole(stepped, "step"),
        next_step_after_s=stepped.at_s - struck.at_s if stepped else None,
        resumed_step=_whole(resumed, "step"),
    )


def _announces(line: LogLine, expected: Expected) -> bool:
    return line.part == "fault" and line.attempt == expected.attempt and line.fields.get("injecting") == expected.kind


def _accuses(record: Mapping[str, Any], attempt: int) -> bool:
    """A confirmed verdict about this attempt that is not a healthy one."""
    if record.get("kind") != "verdict" or record.get("attempt") != attempt or record.get("suspected"):
        return False
    return record.get("verdict") not in _HEALTHY


def _whole(line: LogLine | None, key: str) -> int | None:
    number = line.number(key) if line is not None else None
    return int(number) if number is not None else None


def _missing_of(cure: Cure) -> list[str]:
    fault = cure.expected
    if cure.at_s is None:
        return [f"{fault.shown} was never injected"]
    if cure.verdict is None:
        return [f"{fault.shown} got no verdict"]
    wrong = []
    if cure.verdict != fault.verdict or cure.cause not in fault.causes:
        wanted = f"{fault.verdict}, {' or '.join(sorted(fault.causes))}"
        wrong.append(f"{fault.shown} was called {cure.verdict}, {cure.cause}, and {wanted} was expected")
    if cure.next_step is None:
        wrong.append(f"no step was made after {fault.shown}")
    elif cure.resumed_step is None or not 0 < cure.resumed_step <= fault.step:
        wrong.append(f"the attempt after {fault.shown} did not go on from a checkpoint")
    return wrong
