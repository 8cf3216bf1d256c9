"""A living run judged by one look: is somebody lost, does it stand still, and what explains a silence.

The live rules watch for minutes and may act on what they find; this one has a single moment and only names.
Unknown accuses nobody here either: a hang needs a log that is silent for far longer than a step takes, GPUs that are
known to do no work, and nothing that grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Tuple

from .. import causes, gpuwork
from ..context import Context
from ..facts import CauseMatch, LogReading, Traceback
from ..naming import root_of
from ..opinion import Opinion, about
from ..policy import Policy
from ..verdicts import Evidence, Verdict
from .explained import explained, goes_on

BUSY_CORES = 1.5
QUIET_CORES = 0.5
CONTEXT_BYTES = 256 * 2**20
_COMPILERS = ("ptxas", "cc1plus", "nvcc", "ninja", "compile", "triton", "inductor", "cicc", "g++", "gcc")


@dataclass(frozen=True)
class Look:
    """The moment, with what follows directly from it."""

    context: Context
    log: LogReading
    suspect_s: float
    work: Tuple[str, ...]  # class of each GPU

    @property
    def silent_s(self) -> float:
        """0 when nobody said how old the last line is."""
        return self.context.log_age_s or 0.0

    @property
    def fresh(self) -> bool:
        """The log moves as it does while steps are made."""
        return self.context.log_age_s is not None and self.silent_s < self.suspect_s

    @property
    def works(self) -> bool:
        return any(kind in gpuwork.AT_WORK for kind in self.work)

    @property
    def idles(self) -> bool:
        """A GPU that holds a model of somebody's does no work; one without is not known to be the run's."""
        used = zip(self.work, (gpu.mem_used_bytes or 0 for gpu in self.context.gpus))
        return any(kind == gpuwork.IDLE and held > CONTEXT_BYTES for kind, held in used)

    @property
    def rests(self) -> bool:
        """Every GPU is known to do no work."""
        return bool(self.work) and not self.works and gpuwork.UNKNOWN not in self.work

    @property
    def sees(self) -> bool:
        """Some GPU tells what it does."""
        return any(kind != gpuwork.UNKNOWN for kind in self.work)

    @property
    def compiles(self) -> bool:
        return any(name in child.lower() for child in self.context.children for name in _COMPILERS)

    @property
    def busy(self) -> bool:
        """Its processes use the CPU for more than waiting."""
        return (self.context.cpu_cores or 0.0) >= BUSY_CORES

    def after_progress(self, slug: str) -> Optional[CauseMatch]:
        """The last line that said so, if no step came after it."""
        last = self.log.progress.line_number if self.log.progress is not None else 0
        return next((mark for mark in self.log.marks if mark.slug == slug and mark.line_number > last), None)

    def told(self, slug: str) -> str:
        """A text beside the log (stacks, states) that speaks of it."""
        return next((text for text in self.context.texts if causes.marks(text) == slug), "")


def look_at(context: Context, log: LogReading, policy: Policy) -> Look:
    """The look, with the limit that holds for this log: five times the pace of its step lines, or that of a start."""
    suspect_s = policy.start_silent_s
    if log.stepped and log.step_lines and context.elapsed_s is not None:
        pace_s = max(0.0, context.elapsed_s - (context.log_age_s or 0.0)) / log.step_lines
        suspect_s = max(policy.suspect_floor_s, policy.suspect_steps * pace_s)
    return Look(context, log, suspect_s, tuple(gpuwork.classify(gpu) for gpu in context.gpus))


def snapshot(look: Look, policy: Policy) -> Opinion:
    """Judge a run that is not known to be over."""
    return (
        _unkillable(look)
        or _stopped(look)
        or _lost(look)
        or (None if look.fresh else _blocked(look, policy))
        or goes_on(look)
    )


def _unkillable(look: Look) -> Optional[Opinion]:
    asked = any("SIGKILL" in text for text in look.context.texts) or look.context.number("sigkill") is not None
    stuck = [state for state in ("D", "Z") if look.context.states.get(state)]
    if not asked or not stuck:
        return None
    evidence = Evidence(f"processes in state {stuck[0]}", look.context.states[stuck[0]])
    return about(Verdict.STALE_PROCESS, "unkillable", "a process survives SIGKILL", look.log.progress, evidence)


def _stopped(look: Look) -> Optional[Opinion]:
    states = look.context.states
    if not states.get("T") or look.fresh or look.works:
        return None
    text = f"{states['T']} of its processes are stopped (state T)"
    return about(
        Verdict.HANG, "stopped_process", text, look.log.progress, Evidence("processes in state T", states["T"])
    )


# ---- somebody is lost


def _lost(look: Look) -> Optional[Opinion]:
    dead = [found for found in look.log.tracebacks if found.thread is not None]
    split = look.works and look.idles
    if dead and (split or (look.rests and not look.fresh and look.silent_s >= look.suspect_s)):
        return _thread_dead(look, dead[0])
    expected, alive = look.context.workers_expected, look.context.workers_alive
    if expected is None or alive is None or not 0 < alive < expected:
        return None
    evidence = (Evidence("workers alive", alive), Evidence("workers expected", expected), _gpus(look))
    root = root_of(look.log)
    if root is not None:
        line = CauseMatch(root.slug, root.key_line, root.line_number, root.rank)
        text = f"{expected - alive} of {expected} workers are gone: {causes.get(root.slug).title}"
        return about(Verdict.PARTIAL_STALL, root.slug, text, line, *evidence)
    if look.fresh and not split and gpuwork.SPINNING not in look.work:
        return None
    line_of = look.after_progress("uneven_data") or look.log.progress
    text = f"{expected - alive} of {expected} workers ended without a word, and the others wait for them"
    return about(Verdict.PARTIAL_STALL, "uneven_data", text, line_of, *evidence)


def _thread_dead(look: Look, found: Traceback) -> Opinion:
    line = CauseMatch(found.slug or "worker_dead", found.key_line, found.line_number, found.rank)
    names = sorted({one.thread for one in look.log.tracebacks if one.thread is not None})
    text = "thread {} is dead, and its GPU does no work".format(", ".join(names))
    return about(Verdict.PARTIAL_STALL, found.slug or "worker_dead", text, line, _gpus(look))


# ---- nothing moves


def _blocked(look: Look, policy: Policy) -> Optional[Opinion]:
    """A hang, or None when something explains the silence or too little is known."""
    confirm_s = look.suspect_s * policy.confirm_factor
    if look.context.log_age_s is None or look.silent_s < confirm_s or look.works:
        return None
    if look.context.growing or look.compiles or look.busy or explained(look):
        return None
    waits = bool(look.context.states.get("D")) or bool(look.context.kernel.stuck_io)
    quiet = look.context.cpu_cores is not None and look.context.cpu_cores < QUIET_CORES and not look.sees
    if not (look.rests or waits or look.context.old_locks or quiet):
        return None  # the GPUs cannot be seen and nothing else speaks
    cause, text, line, action = _why(look)
    evidence = [Evidence("log silent", round(look.silent_s), "s"), _gpus(look)]
    evidence += [Evidence(f"processes in state {name}", count) for name, count in look.context.states.items() if count]
    if look.context.cpu_cores is not None:
        evidence.append(Evidence("busy CPU cores", look.context.cpu_cores))
    return about(Verdict.HANG, cause, text, line or look.log.progress, *evidence, action=action)


def _why(look: Look) -> Tuple[str, str, Optional[CauseMatch], Optional[str]]:
    context = look.context
    for slug in ("compile_deadlock", "gil_deadlock", "dataloader_deadlock"):
        if look.told(slug):
            return slug, f"the stacks show it: {causes.get(slug).title}", look.after_progress(slug), None
    waits = context.states.get("D") or context.kernel.stuck_io
    line = look.after_progress("data_stall")
    if waits or line is not None:
        action = causes.PAGE if waits else None
        return "data_stall", "it waits for data that does not come", line, action
    line = look.after_progress("stale_lock")
    if context.old_locks or (line is not None and not look.log.stepped):
        name = context.old_locks[0] if context.old_locks else "a lock file"
        return "stale_lock", f"it waits for {name}, whose owner is gone", line, None
    for slug in ("compile_deadlock", "gil_deadlock"):
        line = look.after_progress(slug)
        if line is not None:
            return slug, causes.get(slug).title, line, None
    if gpuwork.SPINNING in look.work:
        return "nccl_spin", "the GPUs spin at idle power and no step is made", None, None
    if context.cpu_cores is not None and context.cpu_cores < QUIET_CORES:
        line = look.after_progress("compile")
        if line is not None:
            return "compile_deadlock", "it was compiling, and no compiler is at work", line, None
    elif context.cpu_cores is not None:
        return "gil_deadlock", "one core is busy, and nothing else moves", None, None
    line = next((mark for mark in look.log.marks if mark.slug == "dataloader_deadlock"), None)
    if line is not None or any("pt_data_worker" in name for name in context.children):
        return "dataloader_deadlock", "the loader's workers give nothing and the GPUs are idle", line, None
    return "lock_deadlock", "nothing moves: no step, no work on a GPU", None, None


def _gpus(look: Look) -> Evidence:
    kinds: List[str] = sorted(set(look.work))
    text = ", ".join(f"{look.work.count(kind)} {kind}" for kind in kinds)
    return Evidence("GPUs", text or "not asked")
