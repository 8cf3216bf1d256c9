"""What was seen beside a log, from plain data: exit, signal, GPU rows, and whatever else somebody wrote down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from . import causes
from .facts import GpuReading
from .kernel_log import KernelSays, read_kernel_log

MIB = 1024**2
# Enforced power limits by the memory a card shows, where a row does not tell its limit. (least MiB, watts)
_LIMITS_W = (
    (170_000, 1000.0),  # B200
    (90_000, 700.0),  # H200
    (81_700, 400.0),  # A100 80 GB shows 81,920 MiB
    (78_000, 700.0),  # H100 shows 81,559 MiB
    (45_000, 350.0),  # L40S, A6000
    (39_000, 400.0),  # A100 40 GB
    (23_000, 400.0),  # 3090, 4090, A10
    (0, 250.0),
)
_SIGNALS = {name: number for number, name in causes.SIGNAL_NAMES.items()}
_MOST_TEXTS = 64


@dataclass(frozen=True)
class Holder:
    """A process that the driver or the socket table names."""

    pid: Optional[int]
    age_s: Optional[float] = None
    ppid: Optional[int] = None
    known: bool = True  # it has a name here: it is in our pid namespace
    user: str = ""
    used_mib: Optional[float] = None


@dataclass(frozen=True)
class Context:
    """Everything that was seen beside the log. None: nobody said."""

    exit_code: Optional[int] = None
    signal: Optional[int] = None
    log_kind: str = "train_log"
    log_exists: Optional[bool] = None
    log_age_s: Optional[float] = None
    elapsed_s: Optional[float] = None
    ssh: str = ""
    tmux: str = ""
    nvml: str = ""
    alive: Optional[bool] = None
    gpus: Tuple[GpuReading, ...] = ()
    slowed: Tuple[int, ...] = ()  # GPUs that say they are throttled by heat or power
    remap_pending: bool = False
    workers_expected: Optional[int] = None
    workers_alive: Optional[int] = None
    states: Mapping[str, int] = field(default_factory=dict)
    cpu_cores: Optional[float] = None
    children: Tuple[str, ...] = ()
    old_locks: Tuple[str, ...] = ()  # lock files that are older than the launch
    growing: Tuple[str, ...] = ()  # what is said to grow or change
    holders: Tuple[Holder, ...] = ()
    listeners: Tuple[Holder, ...] = ()
    kernel: KernelSays = field(default_factory=KernelSays)
    rotated: bool = False
    done_marker: Optional[bool] = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    texts: Tuple[str, ...] = ()

    @property
    def stepped_clock(self) -> bool:
        """Somebody says that the wall clock jumped."""
        told = any(
            "clock was stepped" in text or "Time jumped" in text or "Time has been changed" in text
            for text in self.texts
        )
        return told or (self.log_age_s or 0.0) < 0 or abs(self.number("clock", "s") or 0.0) >= 30

    @property
    def ended(self) -> bool:
        """Whether the main process is known to be over."""
        return self.exit_code is not None or self.signal is not None or self.alive is False

    def number(self, *parts: str) -> Optional[float]:
        """A number whose name has all these parts, if there is one."""
        return next((value for name, value in self.numbers.items() if all(part in name for part in parts)), None)


def read_signal(value: Any) -> Optional[int]:
    """A signal by number or name (``9``, ``SIGKILL``, ``kill``), None for nothing.

    Raises:
        ValueError: there is no such signal.
    """
    if value is None or value == "":
        return None
    text = str(value).strip().upper()
    if text.lstrip("-").isdigit():
        return abs(int(text[:6]))
    name = text if text.startswith("SIG") else "SIG" + text
    if name not in _SIGNALS:
        raise ValueError(f"{value!r} is no signal; give its number, or a name such as SIGKILL")
    return _SIGNALS[name]


def read_context(
    observed: Mapping[str, Any],
    gpu: Sequence[Mapping[str, Any]] = (),
    *,
    exit_code: Optional[int] = None,
    signal: Optional[int] = None,
    log_kind: str = "train_log",
) -> Context:
    """The context from plain JSON data. Unknown keys are kept as numbers and texts, odd values are left out."""
    numbers, texts = _spread(observed)
    elapsed_s = _number(observed.get("elapsed_s"))
    return Context(
        exit_code=exit_code,
        signal=signal,
        log_kind=log_kind,
        log_exists=_flag(observed.get("log_exists")),
        log_age_s=_number(observed.get("log_age_s")),
        elapsed_s=elapsed_s,
        ssh=_text(observed.get("ssh")),
        tmux=_text(observed.get("tmux")),
        nvml=_text(observed.get("nvml")),
        alive=_flag(observed.get("process_alive_seen")),
        gpus=tuple(_gpu(row, index) for index, row in enumerate(gpu)),
        slowed=tuple(index for index, row in enumerate(gpu) if _slowed(row)),
        remap_pending=any(_flag(row.get("remap_pending")) is True for row in gpu),
        workers_expected=_whole(observed.get("workers_expected")),
        workers_alive=_whole(observed.get("workers_alive")),
        states={str(name): _whole(count) or 0 for name, count in _mapping(observed.get("proc_states")).items()},
        cpu_cores=_number(observed.get("cpu_busy_cores")),
        children=tuple(map(_text, _list(observed.get("child_process_names")))),
        old_locks=_old_locks(_list(observed.get("lock_files")), elapsed_s),
        growing=tuple(name for name, value in observed.items() if value is True and _grows(name)),
        holders=_holders(observed),
        listeners=tuple(_holder(_mapping(value)) for name, value in observed.items() if name.startswith("listening")),
        kernel=read_kernel_log(map(_text, _list(observed.get("kernel_log")))),
        rotated=_rotated(observed),
        done_marker=next((_flag(value) for name, value in observed.items() if _is_marker(name)), None),
        numbers=numbers,
        texts=texts,
    )


def _gpu(row: Mapping[str, Any], index: int) -> GpuReading:
    total, used = _number(row.get("mem_total_mib")), _number(row.get("mem_mib"))
    limit_w = _number(row.get("power_limit_w"))
    if limit_w is None and total is not None:
        limit_w = next(watts for least, watts in _LIMITS_W if total >= least)
    error = _text(row.get("error")) or None
    return GpuReading(
        uuid=_text(row.get("uuid")) or str(index),
        index=index,
        util_pct=_number(row.get("util")),
        mem_util_pct=_number(row.get("mem_util")),
        mem_used_bytes=None if used is None else int(used * MIB),
        mem_total_bytes=None if total is None else int(total * MIB),
        power_w=_number(row.get("power_w")),
        power_limit_w=limit_w,
        temp_c=_number(row.get("temp_c")),
        error=error,
    )


def _slowed(row: Mapping[str, Any]) -> bool:
    """NVML's slow-down reasons as a word, a list or a mask: heat (0x20, 0x40) and power brake (0x08, 0x80)."""
    value = next((row[name] for name in row if "throttle" in name or "clocks_event" in name), None)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return bool(int(value) & 0xE8)
    words = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else _text(value) if value else ""
    return value is True or any(word in words.lower() for word in ("therm", "slow", "brake", "heat"))


def _old_locks(locks: Sequence[Any], elapsed_s: Optional[float]) -> Tuple[str, ...]:
    found = []
    for lock in map(_mapping, locks):
        age_s, owner = _number(lock.get("age_s")), _flag(lock.get("owner_alive", lock.get("holder_alive")))
        if owner is not True and (
            owner is False or (age_s is not None and elapsed_s is not None and age_s > elapsed_s)
        ):
            found.append(_text(lock.get("path")) or "a lock file")
    return tuple(found)


def _grows(name: str) -> bool:
    return any(part in name for part in ("grow", "changing", "rising", "increas", "advanc", "moving"))


def _is_marker(name: str) -> bool:
    return name in ("done_json", "done_marker", "completion_marker", "done")


def _holders(observed: Mapping[str, Any]) -> Tuple[Holder, ...]:
    rows: List[Any] = []
    for value in _mapping(observed.get("gpu_processes")).values():
        rows += _list(value)
    return tuple(_holder(_mapping(row)) for row in rows)


def _holder(row: Mapping[str, Any]) -> Holder:
    return Holder(
        pid=_whole(row.get("pid")),
        age_s=_number(row.get("age_s")),
        ppid=_whole(row.get("ppid")),
        known=bool(row.get("name") or row.get("cmd") or row.get("comm")),
        user=_text(row.get("user") or row.get("uid")),
        used_mib=_number(row.get("used_mib")),
    )


def _rotated(observed: Mapping[str, Any]) -> bool:
    before, now = _number(observed.get("previous_log_size")), _number(observed.get("log_size_now"))
    return observed.get("inode_changed") is True or (before is not None and now is not None and now < before)


def _spread(observed: Mapping[str, Any]) -> Tuple[Dict[str, float], Tuple[str, ...]]:
    """All numbers by name and all texts, also of nested objects one level down."""
    numbers: Dict[str, float] = {}
    texts: List[str] = []
    for name, value in observed.items():
        if name.startswith(("listening", "gpu_processes")):
            continue  # of other people's processes nothing speaks for this run
        inner = [(f"{name}.{key}", item) for key, item in value.items()] if isinstance(value, Mapping) else []
        for key, item in [(name, value), *inner, *((name, one) for one in _list(value))]:
            number = _number(item)
            if number is not None:
                numbers.setdefault(key.lower(), number)
            elif isinstance(item, str) and len(texts) < _MOST_TEXTS:
                texts.append(item[:1000])
    return numbers, tuple(texts)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _flag(value: Any) -> Optional[bool]:
    return value if isinstance(value, bool) else None


def _number(value: Any) -> Optional[float]:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> Optional[int]:
    number = _number(value)
    return None if number is None else int(number)
