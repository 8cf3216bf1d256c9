"""What a quiet or noisy run that is well is doing, and what is true of it without being a failure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Iterator, Optional, Tuple

from .. import causes
from ..facts import CauseMatch
from ..naming import survived
from ..opinion import Opinion, about
from ..verdicts import Evidence, Verdict

if TYPE_CHECKING:
    from .snapshot import Look

# Phases that make no step; each is held for as long as the last line of the log says so.
PHASES = ("checkpointing", "evaluation", "compile", "model_loading", "data_preprocessing")
SAVING_S = 1800.0
HOT_C = 90.0

_NVML_LOST = ("LIB_RM", "MISMATCH")


def explained(look: Look) -> Optional[CauseMatch]:
    """The line that explains a silence: a phase that has not come to its end, within its own limit."""
    if look.silent_s > SAVING_S:
        return None
    marks = [mark for mark in (look.after_progress(slug) for slug in ("checkpointing", "evaluation")) if mark]
    return max(marks, key=lambda mark: mark.line_number) if marks else None


def goes_on(look: Look) -> Opinion:
    """Starting or running, with the most telling thing that is true beside it."""
    cause, line, text = next(_notes(look), ("none", None, ""))
    stepped = look.log.stepped or (look.works and not look.fresh and _phase(look) is None)
    verdict = Verdict.RUNNING if stepped or cause == "buffered_stdout" else Verdict.STARTING
    evidence = [] if look.context.log_age_s is None else [Evidence("log silent", round(look.silent_s), "s")]
    evidence += [Evidence("what grows", ", ".join(look.context.growing))] if look.context.growing else []
    plain = "training goes on" if verdict is Verdict.RUNNING else "it has not made its first step"
    reason = f"{plain}; {text}" if text else plain
    return about(verdict, cause, reason, line or (look.log.progress if cause != "none" else None), *evidence)


def _notes(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    """(cause, line, words), the most pressing first."""
    for slug in ("nan_loss", "loss_spike"):
        line = next((one for one in look.log.causes if one.slug == slug), None)
        over = look.log.loss is not None and math.isfinite(look.log.loss) and slug == "nan_loss"
        if line is not None and not (over and survived(look.log, line.line_number)):
            yield slug, line, causes.get(slug).title
    yield from _of_hardware(look)
    yield from _of_threads(look)
    yield from _of_nvml(look)
    yield from _of_phase(look)
    if look.context.stepped_clock:
        yield "clock_jump", look.log.progress, "a clock was stepped; ages of before it count for nothing"
    yield from _of_log(look)


def _of_hardware(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    hot = [gpu for gpu in look.context.gpus if gpu.index in look.context.slowed or (gpu.temp_c or 0.0) >= HOT_C]
    if hot:
        yield "thermal_throttle", look.log.progress, f"GPU {hot[0].index} is slowed down by heat"
    for xid in look.context.kernel.xids:
        if xid.slug in ("xid_63", "xid_94") and (not xid.name or xid.name.startswith(("python", "pt_"))):
            yield xid.slug, look.log.progress, causes.get(xid.slug).title


def _of_threads(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    for found in look.log.tracebacks:
        if found.thread is None:
            continue
        line = CauseMatch("", f"Exception in thread {found.thread}:", found.head_line_number, found.rank)
        yield "metrics_logger_dead", line, f"thread {found.thread} is dead, and nothing depends on it"


def _of_nvml(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    context = look.context
    said = " ".join([context.nvml, *(gpu.error or "" for gpu in context.gpus)])
    marks = {mark.slug: mark for mark in look.log.marks}
    if any(word in said.upper() for word in _NVML_LOST):
        yield "nvml_driver_mismatch", marks.get("nvml_driver_mismatch"), "NVML and the driver differ: do not restart it"
    if "MIG" in said.upper() or "NOT_SUPPORTED" in said.upper():
        yield "mig_util_unsupported", marks.get("mig_util_unsupported"), "no utilisation is told, which is not 0"
    if context.nvml.lower() not in ("", "ok") or any(gpu.error for gpu in context.gpus):
        yield "nvml_unavailable", marks.get("nvml_unavailable"), "the GPUs cannot be asked"
    if context.holders and not any(holder.known for holder in context.holders):
        yield "pid_namespace", marks.get("pid_namespace"), "the driver's pids are of another namespace"


def _of_phase(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    phase = _phase(look)
    saves = any("ckpt" in name or "checkpoint" in name for name in look.context.growing)
    if saves and not look.fresh:
        line = look.after_progress("checkpointing")
        yield "checkpointing", line, "a checkpoint is being written"
    if look.compiles and (phase is None or phase.slug == "stale_lock"):
        yield "compile", look.after_progress("compile"), "compilers are at work"
    if phase is not None:
        yield phase.slug, phase, causes.get(phase.slug).title


def _phase(look: Look) -> Optional[CauseMatch]:
    marks = [mark for mark in (look.after_progress(slug) for slug in (*PHASES, "recompile")) if mark is not None]
    return max(marks, key=lambda mark: mark.line_number) if marks else None


def _of_log(look: Look) -> Iterator[Tuple[str, Optional[CauseMatch], str]]:
    log, marks = look.log, {mark.slug: mark for mark in look.log.marks}
    for slug in ("oom_recovered", "elastic_restart"):
        if slug in marks and log.stepped:
            yield slug, marks[slug], causes.get(slug).title
    oom = next((one for one in log.causes if one.slug == "cuda_oom" and survived(log, one.line_number)), None)
    if oom is not None:
        yield "oom_recovered", oom, causes.get("oom_recovered").title
    caught = next((one for one in log.tracebacks if one.thread is None and survived(log, one.line_number)), None)
    if caught is not None:
        line = CauseMatch("", caught.key_line, caught.line_number, caught.rank)
        yield "caught_exception", line, "an exception was caught, and steps came after it"
    if look.context.rotated or log.cut_head:
        yield "log_rotated", log.progress, "the log was rotated or cut in place"
    if log.in_bar:
        yield "tqdm_cr", log.progress, "only the progress bar moves"
    if "loss_scale_warmup" in marks:
        yield "loss_scale_warmup", marks["loss_scale_warmup"], causes.get("loss_scale_warmup").title
    if not look.fresh and look.works and look.silent_s > 0:
        yield "buffered_stdout", marks.get("buffered_stdout"), "the GPUs work while the output is held back"
    if "recompile" in marks:
        yield "recompile", marks["recompile"], "it compiles again now and then"
