"""What an end means: completed, crash, early crash, no log, or an end that does not add up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from .. import causes
from ..facts import ExitReading, LogReading, Missing
from ..naming import name_death, uncaught
from ..verdicts import Evidence, Verdict
from ..view import View

# Of these a process can say nothing itself: where nobody else does, the log's last line is only what came before.
_UNSAID = frozenset({"killed_externally", "host_oom_kill", "tmux_killed_on_logout"})


@dataclass(frozen=True)
class End:
    """The verdict on an attempt whose main process is over."""

    verdict: Verdict
    cause: str
    sentence: str
    key_line: str = ""
    evidence: Tuple[Evidence, ...] = ()
    where: str = ""
    line_number: int = 0  # of the key line; 0 when it is not known
    rank: Optional[str] = None  # the first to fail


def judge_end(view: View, kind: str) -> Optional[End]:
    """The end of the attempt's main process, or None while it has not ended.

    ``kind`` is bundled, foreign or adopted: only the bundled trainer leaves a completion marker.
    """
    ended = view.seen.exit
    if ended is None:
        return None
    log = view.seen.log if isinstance(view.seen.log, LogReading) else None
    if ended.exec_error is not None:
        return _not_started(view, ended)
    if ended.done:  # what comes after the marker is the noise of taking down
        return _end(view, Verdict.COMPLETED, "none", "training is done: the completion marker is there")
    if ended.code == 0 or (not ended.witnessed and kind != "bundled"):
        return _said_success(view, ended, log, kind)
    return _failed(view, ended, log, kind)


def _not_started(view: View, ended: ExitReading) -> End:
    slug = {127: "command_not_found", 126: "permission_denied"}.get(ended.code or 0, "launch_interrupted")
    line = ended.exec_error or ""
    return _end(view, Verdict.EARLY_CRASH, slug, f"the trainer could not be started: {line}", line)


def _said_success(view: View, ended: ExitReading, log: Optional[LogReading], kind: str) -> End:
    if kind == "bundled":
        return _end(view, _crash(view), "false_success", "exit code 0, but the trainer left no completion marker")
    if not ended.witnessed:
        if _wrote_nothing(log):
            return _end(view, Verdict.NO_LOG, "none", "the process is gone and its log never appeared")
        return _end(view, Verdict.ENDED_UNCLEAR, "none", "the process is gone and nobody saw how it ended", _last(log))
    if log is None:
        return _end(view, Verdict.ENDED_UNCLEAR, "none", "exit code 0, but the end of the log could not be read")
    if log.tracebacks and log.traceback_is_last and not _after_its_end(log):
        last = log.tracebacks[-1]
        return _end(view, Verdict.ENDED_UNCLEAR, "none", "exit code 0 after a traceback", last.key_line)
    step, total = view.attempt.step, view.attempt.steps_total
    if total is not None and step is not None and step < total:
        text = f"exit code 0 at step {step} of {total}"
        return _end(view, Verdict.ENDED_UNCLEAR, "none", text, _last(log))
    return _end(view, Verdict.COMPLETED, "none", "exit code 0 and nothing in the log speaks against it")


def _after_its_end(log: LogReading) -> bool:
    """The training said that it is done before the first exception that it did not survive: noise of taking down."""
    left = uncaught(log)
    return log.finished is not None and all(one.line_number > log.finished.line_number for one in left)


def _failed(view: View, ended: ExitReading, log: Optional[LogReading], kind: str) -> End:
    if not ended.witnessed:
        text = "the trainer is gone without its completion marker, and nobody saw how it ended"
        return _end(view, Verdict.ENDED_UNCLEAR, "none", text, _last(log))
    named = name_death(ended, log, kind)
    if named.slug == "none" and _wrote_nothing(log):
        return _end(view, Verdict.NO_LOG, "none", f"it ended with {_how(ended)} and wrote nothing")
    cause = causes.get(named.slug)
    text = f"{_how(ended)} ({cause.title})"
    if named.key_line:
        text = f"{text}: {named.key_line[:200]}"
    verdict = Verdict.GPU_FAULT if cause.gpu_fault else _crash(view)
    line = named.key_line or ("" if named.slug in _UNSAID else _last(log))
    end = _end(view, verdict, named.slug, text, line, named.where)
    return replace(end, line_number=named.line_number, rank=named.rank)


def _wrote_nothing(log: Optional[LogReading]) -> bool:
    """The log is known to be absent or to hold nothing beyond our own lines. An unread log is neither."""
    return log is not None and (not log.exists or log.body_bytes == 0)


def _crash(view: View) -> Verdict:
    """An inner restart that had not stepped again is no early crash: the attempt had trained before."""
    log = view.seen.log
    # Some trainers log a loss and no step number: the log shows that they trained, and nothing else does.
    by_log = isinstance(view.seen.progress, Missing) and isinstance(log, LogReading) and log.stepped
    return Verdict.CRASH if view.stepped or view.attempt.inner or by_log else Verdict.EARLY_CRASH


def _how(ended: ExitReading) -> str:
    if ended.signal is not None:
        return "ended by {}".format(causes.SIGNAL_NAMES.get(ended.signal, f"signal {ended.signal}"))
    return f"exit code {ended.code}"


def _last(log: Optional[LogReading]) -> str:
    return log.last_line[:1000] if log is not None else ""


def _end(view: View, verdict: Verdict, cause: str, sentence: str, key_line: str = "", where: str = "") -> End:
    ended = view.seen.exit
    assert ended is not None, "only an end is judged"
    evidence = []
    if ended.signal is not None:
        evidence.append(Evidence("signal", causes.SIGNAL_NAMES.get(ended.signal, str(ended.signal))))
    if ended.code is not None:
        evidence.append(Evidence("exit code", ended.code))
    if ended.oom_kills is not None:
        evidence.append(Evidence("kernel oom kills during the attempt", ended.oom_kills))
    if ended.ran_s is not None:
        evidence.append(Evidence("ran for", round(ended.ran_s, 1), "s"))
    if not ended.witnessed:
        evidence.append(Evidence("witness of the end", "none"))
    if view.attempt.step is not None:
        evidence.append(Evidence("last step", view.attempt.step))
    if key_line:
        evidence.append(Evidence("log", key_line[:500]))
    return End(verdict, cause, sentence, key_line, tuple(evidence), where)
