"""From what was read to the facts of one observation: which attempt this is, and whether and how it ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

from dflash_supervise.agent.workspace import WorkspaceLook
from dflash_supervise.core.facts import AttemptFact, ExitReading

INTERRUPTED = "the launch was interrupted before the trainer ran"
KEEPER_COMES_WITHIN_S = 10.0  # from the intent to the keeper's lock: a cold Python on a slow file system
KEEPER_TELLS_WITHIN_S = 30.0  # from the death of all that it kept; its disk may be full, or it may be stopped
LOG_WAITS_S = 10.0  # how long an end waits for the rest of its log

Key = Tuple[int, int]


@dataclass(frozen=True)
class Attempt:
    """The newest attempt by its files, and what belongs to this boot of it."""

    fact: AttemptFact
    main: Optional[Key] = None
    keeper: Optional[Key] = None
    other_boot: bool = False
    adopted: bool = False


def attempt_of(look: WorkspaceLook, boot_id: str) -> Attempt:
    """Who the newest attempt's processes are. Pids of another boot name nobody."""
    child, launch = look.child, look.launch
    if look.newest == 0:
        return Attempt(AttemptFact(0))
    if child is None:
        at_s = launch.get("at_s") if launch and launch.get("boot_id") in (None, boot_id) else None
        return Attempt(AttemptFact(look.newest, launched_at_s=_number(at_s), intent_open=look.exit is None))
    if child.get("boot_id") != boot_id:
        return Attempt(AttemptFact(look.newest), other_boot=True)
    at_s = _number(child.get("at_s"))
    if child.get("pid") is None:
        return Attempt(AttemptFact(look.newest, at_s), adopted=True)
    main = (int(child["pid"]), int(child["start_ticks"]))
    keeper = (int(child["keeper_pid"]), int(child["keeper_start_ticks"])) if child.get("keeper_pid") else None
    fact = AttemptFact(look.newest, at_s, main_pid=main[0], main_start_ticks=main[1])
    return Attempt(fact, main=main, keeper=keeper, adopted=bool(child.get("adopted")))


def exit_of(
    look: WorkspaceLook,
    attempt: Attempt,
    *,
    exit_copy: Optional[Dict[str, Any]],
    main_alive: Optional[bool],
    keeper_alive: Optional[bool],
    silent_s: float,
    by_us: bool,
) -> Optional[ExitReading]:
    """How the attempt's main process ended; None while it has not, or as long as that cannot be known.

    Args:
        exit_copy: the keeper's copy of exit.json in the runtime folder; it is there before the workspace's.
        main_alive, keeper_alive: None when it could not be looked at, which is never an end.
        silent_s: for how long nothing of the attempt has lived and its keeper has not told how it ended.
    """
    told = look.exit or exit_copy
    if attempt.fact.number == 0:
        return None
    if told is not None:
        return parse_exit(told, done=look.done, by_us=by_us)
    if attempt.other_boot:
        return ExitReading(None, None, witnessed=False, done=look.done)
    if look.child is None or main_alive is not False:
        return None  # an intent without a child is closed by ``close_interrupted``
    if keeper_alive is not False and not attempt.adopted and silent_s <= KEEPER_TELLS_WITHIN_S:
        return None  # a living keeper is about to tell
    return ExitReading(None, None, witnessed=False, done=look.done, by_us=by_us)


def parse_exit(told: Dict[str, Any], *, done: bool, by_us: bool) -> ExitReading:
    """exit.json as a reading. The cgroup's own OOM counter says more than the machine's, where there is one."""
    cgroup, machine = told.get("cgroup_oom_kills"), told.get("oom_kills")
    return ExitReading(
        code=told.get("code"),
        signal=told.get("signal"),
        witnessed=True,
        exec_error=told.get("exec_error"),
        oom_kills=cgroup if cgroup is not None else machine,
        by_us=by_us,
        ran_s=_number(told.get("ran_s")),
        done=done,
    )


def is_interrupted(attempt: Attempt, *, intent_age_s: Optional[float], keeper_holds: Optional[bool]) -> bool:
    """Whether an intent has no keeper and none will come: time to close it for good."""
    if not attempt.fact.intent_open or keeper_holds is not False:
        return False
    return intent_age_s is not None and intent_age_s > KEEPER_COMES_WITHIN_S


def _number(value: Any) -> Optional[float]:
    return None if value is None else float(value)
