"""What was seen: one observation of one run at one moment, made of readings.

Every reading may be ``Missing`` (the question was not answered), and every number inside one may be None. Neither is
ever turned into 0, "idle" or "dead". Times are seconds on the host's boot-time clock (``CLOCK_BOOTTIME``), so a
suspended machine shows as a gap and a stepped wall clock does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple, Union

from .log_facts import CauseMatch, LogReading, RankEnd, Traceback

__all__ = [
    "AttemptFact",
    "CauseMatch",
    "ExitReading",
    "Goal",
    "GpuHolder",
    "GpuReading",
    "GpusReading",
    "HostReading",
    "LogReading",
    "Missing",
    "Observation",
    "ProcessFact",
    "ProcessesReading",
    "ProgressReading",
    "ProofReading",
    "RankEnd",
    "StackSample",
    "StacksReading",
    "StopReading",
    "Traceback",
    "WorkerFact",
]


@dataclass(frozen=True)
class Missing:
    """An unanswered question, and why nobody answered."""

    reason: str


@dataclass(frozen=True)
class ProcessFact:
    """One process of the run's set (``/proc/PID/stat`` and friends)."""

    pid: int
    start_ticks: int  # /proc/PID/stat field 22: with the pid it names a process for ever
    ppid: int
    pgid: int
    sid: int
    state: str  # R S D T t Z X, as the kernel writes it
    comm: str
    cpu_s: float  # user + system
    threads: int
    rss_bytes: int
    via: str  # how we know it is ours: main, token, tree, session, remembered
    wchan: Optional[str] = None
    tracer_pid: Optional[int] = None
    read_bytes: Optional[int] = None
    write_bytes: Optional[int] = None

    @property
    def alive(self) -> bool:
        """A zombie is dead: it holds no memory and runs no code."""
        return self.state not in ("Z", "X")


@dataclass(frozen=True)
class ProcessesReading:
    """The set of an attempt: main process, its group, session, descendants and token holders."""

    members: Tuple[ProcessFact, ...]
    main_alive: Optional[bool]  # None: no attempt has a main process yet
    keeper_alive: Optional[bool]
    compilers: int = 0  # children that compile (cc1plus, ptxas, triton, inductor workers)
    socket_bytes: Optional[int] = None  # bytes moved by the set's TCP connections; 0 when it has none; None: cannot say

    @property
    def alive(self) -> Tuple[ProcessFact, ...]:
        return tuple(p for p in self.members if p.alive)


@dataclass(frozen=True)
class ExitReading:
    """How the main process ended, as its parent saw it (``exit.json``)."""

    code: Optional[int]
    signal: Optional[int]
    witnessed: bool = True  # False: nobody was its parent any more, so code and signal are unknown
    exec_error: Optional[str] = None  # the command could not be started at all
    oom_kills: Optional[int] = None  # kernel's oom-kill counters, after less before
    by_us: bool = False  # our own stop was under way
    ran_s: Optional[float] = None
    done: bool = False  # the bundled trainer's completion marker carries this attempt's token


@dataclass(frozen=True)
class WorkerFact:
    """One drafter or target thread or rank, from ``progress.json``."""

    id: str
    device: str
    step: Optional[int]
    alive: Optional[bool]


@dataclass(frozen=True)
class ProgressReading:
    """The truth about training: ``progress.json``, or the step pattern of a foreign trainer's log."""

    phase: str
    step: Optional[int]
    steps_total: Optional[int] = None
    phase_limit_s: Optional[float] = None
    workers: Tuple[WorkerFact, ...] = ()
    tokens: Optional[int] = None
    tokens_per_s: Optional[float] = None
    loss: Optional[float] = None
    tau: Optional[float] = None  # mean accepted length of real decoding
    checkpoint_step: Optional[int] = None
    checkpoint_begun_at: Optional[float] = None  # wall-clock seconds by the trainer: compared with nothing of ours
    checkpoint_done: Optional[bool] = None
    source: str = "progress.json"  # or "log"


@dataclass(frozen=True)
class GpuHolder:
    """A process that the driver says holds memory on a GPU."""

    pid: int
    mem_bytes: Optional[int]
    ours: Optional[bool]  # member of this run's set; None: the pid is not visible in our pid namespace
    run_token: Optional[str] = None  # DFLASH_RUN of that process, when we may read it
    comm: Optional[str] = None
    uid: Optional[int] = None


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one look. Any number may be None: the card, driver or mode does not say."""

    uuid: str
    index: int
    name: str = ""
    util_pct: Optional[float] = None
    mem_util_pct: Optional[float] = None
    mem_used_bytes: Optional[int] = None  # memory v2, or v1 less the driver's reserve
    mem_total_bytes: Optional[int] = None
    power_w: Optional[float] = None
    power_limit_w: Optional[float] = None
    energy_j: Optional[float] = None
    temp_c: Optional[float] = None
    sm_mhz: Optional[float] = None
    throttle: Optional[int] = None  # NVML's clocks-event-reasons bit mask
    ecc_uncorrected: Optional[int] = None
    xids: Tuple[int, ...] = ()
    holders: Optional[Tuple[GpuHolder, ...]] = None  # None: the driver did not answer
    error: Optional[str] = None  # this GPU answered with an NVML error (lost, unknown error)
    age_s: float = 0.0
    source: str = "nvml"  # or nvidia-smi


@dataclass(frozen=True)
class GpusReading:
    """All GPUs of the host. A host that is known to have none says so in ``absent``; not to know is ``Missing``."""

    gpus: Tuple[GpuReading, ...]
    absent: Optional[str] = None  # "no NVIDIA device, driver library or nvidia-smi on this host"
    stuck_s: Optional[float] = None  # a driver call has not returned for this long


@dataclass(frozen=True)
class HostReading:
    boot_id: str
    machine_id: str = ""
    disk_free_bytes: Optional[int] = None
    disk_free_inodes: Optional[int] = None
    shm_free_bytes: Optional[int] = None
    mem_available_bytes: Optional[int] = None
    load1: Optional[float] = None


@dataclass(frozen=True)
class AttemptFact:
    """What the run directory says about the newest attempt."""

    number: int  # 0: nothing was ever launched
    launched_at_s: Optional[float] = None
    main_pid: Optional[int] = None
    main_start_ticks: Optional[int] = None
    intent_open: bool = False  # launch was decided, no child is recorded yet


@dataclass(frozen=True)
class ProofReading:
    """Are the GPUs proven free of earlier attempts and of others? Looked at fresh in each tick."""

    set_empty: Optional[bool]
    free: Optional[bool]  # set empty and every wanted GPU at its holder-free baseline; None: cannot say
    blockers: Tuple[str, ...] = ()  # one sentence each, for a person
    stale_ours: Tuple[ProcessFact, ...] = ()  # processes of earlier attempts of this run or workspace that may be ended
    foreign: bool = False  # somebody else's process or memory is on a wanted GPU
    unseen: bool = False  # memory or work on a wanted GPU with no holder we can see


@dataclass(frozen=True)
class StopReading:
    """How far the agent's own stop of an attempt has come."""

    attempt: int
    asked_at_s: float
    signals_sent: int = 0
    killed: bool = False  # SIGKILL was sent
    unkillable: Tuple[ProcessFact, ...] = ()  # survived SIGKILL beyond the limit


@dataclass(frozen=True)
class StackSample:
    """Where every thread of the main process stood at one moment, folded to a digest that two looks can compare."""

    at_s: float
    digest: str
    summary: Tuple[str, ...] = ()  # "thread NAME: function (file:line)", one a thread, innermost frame of ours


@dataclass(frozen=True)
class StacksReading:
    samples: Tuple[StackSample, ...]  # the newest few of this attempt, oldest first


@dataclass(frozen=True)
class Goal:
    """What the user wants now (``spec.json``)."""

    want: str = "run"  # run, stop, hold
    generation: int = 1
    hold_until_s: Optional[float] = None  # on the host's boot-time clock; None with hold: until released
    end_attempt: Optional[int] = None  # a person asked for a restart of this attempt; void unless it is current


@dataclass(frozen=True)
class Observation:
    """Everything one tick saw."""

    at_s: float  # CLOCK_BOOTTIME of the host
    attempt: AttemptFact
    processes: Union[ProcessesReading, Missing]
    progress: Union[ProgressReading, Missing]
    log: Union[LogReading, Missing]
    gpus: Union[GpusReading, Missing]
    host: Union[HostReading, Missing]
    exit: Optional[ExitReading] = None  # None: the main process has not ended, or not as far as we know
    proof: Optional[ProofReading] = None
    stop: Optional[StopReading] = None
    stacks: Union[StacksReading, Missing] = Missing("no stack sample was taken")
    workspace_blind_s: float = 0.0  # how long the workspace has not answered
