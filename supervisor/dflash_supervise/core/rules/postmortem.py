"""An end judged once, from outside: the live rule, and beside it what only a look at host and leftovers can tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from .. import causes
from ..context import Context, Holder
from ..facts import (
    AttemptFact,
    ExitReading,
    GpuReading,
    LogReading,
    Missing,
    Observation,
    ProgressReading,
)
from ..folding import fold
from ..memory import Memory
from ..naming import Named, root_of
from ..opinion import Opinion, about
from ..verdicts import Evidence, Verdict
from ..view import View
from .ended import End, judge_end

BUSY_PCT = 50.0
LEFT_MIB = 2048  # a GPU that holds more than this after the end is held by somebody
NOW_S = 1e6


def postmortem(context: Context, log: LogReading) -> Opinion:
    """Judge a process that is over, or of which only the log is known."""
    root = root_of(log)
    finished = _finished_before(context, log, root)
    if finished is not None:
        return finished
    witnessed = context.exit_code is not None or context.signal is not None
    vanished = None if witnessed else _vanished(context, log) or _occupied(context, log)
    if vanished is not None:
        return vanished
    if not witnessed and root is not None:
        context, witnessed = replace(context, exit_code=1), True  # what ends the log has ended the process
    kind = "bundled" if context.done_marker is not None else "foreign"
    exit_reading = ExitReading(
        context.exit_code,
        context.signal,
        witnessed=witnessed,
        oom_kills=int(bool(context.kernel.oom)) or _counted_oom(context),
        done=context.done_marker is True,
    )
    end = _judged(exit_reading, log, kind)
    return _with_host(_opinion(end), context)


def _judged(ended: ExitReading, log: LogReading, kind: str) -> End:
    """The live rule's answer for one look that nothing came before."""
    progress = Missing("not in the log")
    at_a_step = progress if log.step is None else ProgressReading("training", log.step, log.steps_total, source="log")
    seen = Observation(
        NOW_S,
        AttemptFact(1, 0.0),
        Missing("not asked"),
        at_a_step,
        log,
        Missing("not asked"),
        Missing("not asked"),
        ended,
    )
    if not log.stepped:  # a number in prose, or the one a resume begins with
        seen = replace(seen, progress=progress)
    end = judge_end(View(NOW_S, seen, fold(Memory(), seen), {}), kind)
    assert end is not None, "an exit is always judged"
    return end


def _opinion(end: End) -> Opinion:
    return Opinion(
        end.verdict,
        end.cause,
        end.sentence,
        end.key_line,
        end.line_number or None,
        end.rank,
        evidence=end.evidence,
    )


def _finished_before(context: Context, log: LogReading, root: Optional[Named]) -> Optional[Opinion]:
    """A finished training whose taking down failed in a collective or an abort."""
    done = log.finished
    if done is None or root is None or context.exit_code == 0 or context.done_marker is False:
        return None
    cause = causes.get(root.slug)
    if not cause.cascade or root.line_number <= done.line_number or not context.ended:
        return None
    if log.progress is not None and log.progress.line_number > done.line_number:
        return None
    text = "the training was complete; what failed was its taking down"
    return Opinion(
        Verdict.COMPLETED,
        "teardown_nccl_timeout",
        text,
        root.key_line,
        root.line_number,
        evidence=(Evidence("log", done.key_line[:500]),),
    )


def _vanished(context: Context, log: LogReading) -> Optional[Opinion]:
    """Nobody saw the end, and the host tells why."""
    uptime_s, pid1_s, elapsed_s = context.number("uptime"), context.number("pid1", "age"), context.elapsed_s
    verdict = Verdict.CRASH
    if (context.number("container", "restart") or 0) > 0 or _younger(pid1_s, elapsed_s):
        return about(verdict, "container_restarted", "the container was started again under the run", log.progress)
    if context.kernel.fresh_boot or _younger(uptime_s, elapsed_s):
        said = (Evidence("kernel log", context.kernel.fresh_boot),) if context.kernel.fresh_boot else ()
        return about(verdict, "host_reboot", "the host was booted after the launch", log.progress, *said)
    if context.kernel.logout and ("no server" in context.tmux or "can't find" in context.tmux):
        text = "the session's processes were ended at logout"
        said = (Evidence("journal", context.kernel.logout),)
        return about(verdict, "tmux_killed_on_logout", text, log.progress, *said)
    return None


def _occupied(context: Context, log: LogReading) -> Optional[Opinion]:
    """Nothing of this run lives or ever stepped, and its GPUs are held or busy."""
    held = [gpu for gpu in context.gpus if _stands_out(gpu)]
    if context.alive is not False or log.stepped or root_of(log) is not None or not held:
        return None
    owner = next(iter(context.holders), None)
    foreign = owner is not None and owner.ppid not in (None, 0, 1)
    cause = "foreign_process" if foreign else "zombie_gpu_memory"
    action = causes.AFTER_CLEANUP if owner is not None and not foreign and owner.known else None
    text = "the run's GPUs are held or busy, and not by this run"
    facts = tuple(Evidence(f"GPU {gpu.index} utilisation", gpu.util_pct, "%") for gpu in held)
    return about(Verdict.STALE_PROCESS, cause, text, None, *facts, action=action)


def _stands_out(gpu: GpuReading) -> bool:
    return (gpu.util_pct or 0.0) >= BUSY_PCT or (gpu.mem_used_bytes or 0) > LEFT_MIB * 2**20


def _younger(age_s: Optional[float], elapsed_s: Optional[float]) -> bool:
    return age_s is not None and elapsed_s is not None and age_s < elapsed_s


def _counted_oom(context: Context) -> Optional[int]:
    counted = context.number("oom_kill")
    return None if counted is None else int(counted)


# ---- what the host adds to an end


def _with_host(opinion: Opinion, context: Context) -> Opinion:
    opinion = _no_log(opinion, context)
    if opinion.verdict not in (Verdict.CRASH, Verdict.EARLY_CRASH):
        return opinion
    opinion = _memory_and_disk(opinion, context)
    if opinion.verdict is Verdict.EARLY_CRASH and opinion.cause == "port_in_use":
        return _stale_port(opinion, context)
    if opinion.verdict is Verdict.EARLY_CRASH and opinion.cause == "cuda_oom":
        return _stale_memory(opinion, context)
    if opinion.cause == "killed_externally" and context.kernel.logout:
        return replace(opinion, cause="tmux_killed_on_logout")
    told = next((text for text in context.texts if causes.match(text) == "spot_preemption"), None)
    if told is not None and opinion.cause in ("killed_externally", "none"):
        return replace(opinion, cause="spot_preemption", evidence=(*opinion.evidence, Evidence("host", told[:300])))
    return opinion


def _no_log(opinion: Opinion, context: Context) -> Opinion:
    """The pane told why, while the log itself never came to be."""
    if context.log_exists is not False or opinion.verdict is not Verdict.EARLY_CRASH:
        return opinion
    return replace(opinion, verdict=Verdict.NO_LOG)


def _memory_and_disk(opinion: Opinion, context: Context) -> Opinion:
    in_group = context.kernel.of_cgroup or (not context.kernel.oom and bool(context.number("oom_kill")))
    if opinion.cause == "host_oom_kill" and in_group:
        opinion = replace(opinion, cause="cgroup_oom_kill")
    if opinion.cause in ("host_oom_kill", "cgroup_oom_kill"):
        said = (Evidence("kernel log", context.kernel.oom[:300]),) if context.kernel.oom else ()
        # A loader's worker can be started again; a rank meets the same limit.
        helper = "DataLoader worker" in opinion.key_line
        action = causes.AFTER_CLEANUP if helper else None
        return replace(opinion, action=action, evidence=(*opinion.evidence, *said))
    free_inodes, used_inodes = context.number("inode", "free"), context.number("inode", "pct")
    if opinion.cause == "disk_full" and (free_inodes == 0 or (used_inodes or 0) >= 99):
        return replace(opinion, cause="inodes_full")
    free_shm, used_shm = context.number("shm", "free"), context.number("shm", "pct")
    if opinion.cause == "bus_error" and (free_shm == 0 or (used_shm or 0) >= 99):
        return replace(opinion, cause="shm_exhausted")
    return opinion


def _stale_port(opinion: Opinion, context: Context) -> Opinion:
    owner = next((one for one in context.listeners if _older(one, context)), None)
    if owner is None:
        return opinion
    text = f"process {owner.pid}, older than this launch, owns the port"
    return replace(opinion, verdict=Verdict.STALE_PROCESS, reason=text)


def _stale_memory(opinion: Opinion, context: Context) -> Opinion:
    """Out of memory before the first step, on a GPU that somebody else holds still."""
    older = [one for one in context.holders if _older(one, context)]
    held = [gpu for gpu in context.gpus if (gpu.mem_used_bytes or 0) > LEFT_MIB * 2**20]
    if not older and not (held and "Process " in opinion.key_line):
        return opinion
    owner = older[0] if older else None
    foreign = owner is not None and owner.ppid not in (None, 0, 1)
    evidence = tuple(
        Evidence(f"GPU {gpu.index} still holds", (gpu.mem_used_bytes or 0) // 2**20, "MiB") for gpu in held
    )
    if owner is not None:
        evidence += (Evidence(f"process {owner.pid} there, for", owner.age_s, "s"),)
    return replace(
        opinion,
        verdict=Verdict.STALE_PROCESS,
        cause="foreign_process" if foreign else "zombie_gpu_memory",
        reason="a process from before this launch holds the GPU's memory",
        action=causes.AFTER_CLEANUP if owner is not None and not foreign else None,
        evidence=(*opinion.evidence, *evidence),
    )


def _older(holder: Holder, context: Context) -> bool:
    if holder.age_s is None or context.elapsed_s is None:
        return holder.pid is not None
    return holder.age_s > context.elapsed_s
