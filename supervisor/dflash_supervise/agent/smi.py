"""nvidia-smi's CSV output, for hosts where no NVML library loads: every five seconds, never two at once."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from typing import Any, Dict, List, Optional, Tuple, Union

from dflash_supervise.core.facts import GpuHolder, GpuReading, GpusReading, Missing

PERIOD_S = 5.0  # one call costs 20 to 400 ms of CPU
STUCK_AFTER_S = 5.0
KILL_AFTER_S = 30.0
OLD_AFTER_S = 20.0
FIXED_PATHS = ("/usr/bin/nvidia-smi", "/usr/local/bin/nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi", "/opt/bin/nvidia-smi")

GPU_FIELDS = (
    "index",
    "uuid",
    "name",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "power.draw",
    "enforced.power.limit",
    "temperature.gpu",
    "clocks.sm",
)
NOT_YET = Missing("no answer from nvidia-smi yet")
HOLDER_FIELDS = ("gpu_uuid", "pid", "used_memory")
MIB = 1024 * 1024


def find_nvidia_smi(env: Optional[Dict[str, str]] = None) -> Optional[str]:
    """The first executable nvidia-smi of PATH or of the usual folders; SSH sessions often have a short PATH."""
    path = (os.environ if env is None else env).get("PATH", "")
    places = [os.path.join(folder, "nvidia-smi") for folder in path.split(os.pathsep) if folder]
    for place in places + list(FIXED_PATHS):
        if os.access(place, os.X_OK):
            return place
    return None


class SmiProbe:
    """One nvidia-smi at a time: the GPU table, then the table of processes."""

    def __init__(self, path: str, env: Optional[Dict[str, str]] = None) -> None:
        self._path = path
        self._env = env
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._out = -1
        self._holders_turn = False
        self._began_at: Optional[float] = None
        self._last_at: Optional[float] = None
        self._gpus_text = ""
        self._reading: Union[GpusReading, Missing] = NOT_YET
        self._read_at = 0.0

    @property
    def busy(self) -> bool:
        """A call is under way: nobody else may ask the driver."""
        return self._child is not None

    @property
    def answered(self) -> bool:
        """Some answer has come: numbers, or a reason why there are none."""
        return self._reading is not NOT_YET

    def ask(self, now_s: float) -> None:
        """Begin a look when it is time and none is under way."""
        if self._child is None and (self._last_at is None or now_s - self._last_at >= PERIOD_S):
            self._last_at = now_s
            self._start(now_s, ["--query-gpu=" + ",".join(GPU_FIELDS)], holders=False)

    def collect(self, now_s: float) -> Union[GpusReading, Missing]:
        """The last answer with its age; ``stuck_s`` while a call does not return."""
        self._advance(now_s)
        stuck_s = None
        if self._began_at is not None and now_s - self._began_at > STUCK_AFTER_S:
            stuck_s = now_s - self._began_at
        if isinstance(self._reading, Missing):
            return self._reading if stuck_s is None else GpusReading(gpus=(), stuck_s=stuck_s)
        age_s = now_s - self._read_at
        if age_s > OLD_AFTER_S:
            return (
                GpusReading(gpus=(), stuck_s=stuck_s)
                if stuck_s
                else Missing(f"nvidia-smi has not answered for {age_s:.0f} s")
            )
        gpus = tuple(replace(gpu, age_s=age_s) for gpu in self._reading.gpus)
        return GpusReading(gpus=gpus, stuck_s=stuck_s)

    def close(self) -> None:
        """End a call under way; one that hangs in the driver is left to the kernel."""
        if self._child is not None:
            self._child.kill()

    def _start(self, now_s: float, arguments: List[str], holders: bool) -> None:
        self._out = os.memfd_create("nvidia-smi")
        self._holders_turn = holders
        if self._began_at is None:
            self._began_at = now_s
        try:
            self._child = subprocess.Popen(
                [self._path, "--format=csv,noheader,nounits", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._out,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        except OSError as error:
            self._finish()
            self._reading = Missing(f"nvidia-smi: {error.strerror}")

    def _advance(self, now_s: float) -> None:
        child = self._child
        if child is None or self._began_at is None:
            return
        code = child.poll()
        if code is None:
            if now_s - self._began_at > KILL_AFTER_S:
                child.kill()  # in D state it stays, and then nothing else is started
            return
        text = _slurp(self._out)
        holders_turn = self._holders_turn
        os.close(self._out)
        self._child, self._out = None, -1
        if code != 0 and not holders_turn:
            self._reading = Missing("nvidia-smi: {}".format(_first_line(text) or f"exit code {code}"))
            self._began_at = None
        elif not holders_turn:
            self._gpus_text = text
            self._start(now_s, ["--query-compute-apps=" + ",".join(HOLDER_FIELDS)], holders=True)
        else:
            holders = parse_holders(text) if code == 0 else None
            self._reading = GpusReading(gpus=parse_gpus(self._gpus_text, holders))
            self._read_at, self._began_at = now_s, None

    def _finish(self) -> None:
        os.close(self._out)
        self._child, self._out, self._began_at = None, -1, None


def parse_gpus(text: str, holders: Optional[Dict[str, List[Tuple[int, Optional[int]]]]]) -> Tuple[GpuReading, ...]:
    """The GPU table. ``[N/A]``, ``[Not Supported]`` and ``[Unknown Error]`` are None."""
    gpus = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(GPU_FIELDS) or not cells[0].isdigit():
            continue
        numbers = [_number(cell) for cell in cells[3:]]
        util, mem_util, used, total, power, limit, temp, clock = numbers
        mine = None
        if holders is not None:
            mine = tuple(GpuHolder(pid=pid, mem_bytes=mem, ours=None) for pid, mem in holders.get(cells[1], []))
        gpus.append(
            GpuReading(
                uuid=cells[1],
                index=int(cells[0]),
                name=cells[2],
                util_pct=util,
                mem_util_pct=mem_util,
                mem_used_bytes=None if used is None else int(used * MIB),
                mem_total_bytes=None if total is None else int(total * MIB),
                power_w=power,
                power_limit_w=limit,
                temp_c=temp,
                sm_mhz=clock,
                holders=mine,
                source="nvidia-smi",
            )
        )
    return tuple(gpus)


def parse_holders(text: str) -> Dict[str, List[Tuple[int, Optional[int]]]]:
    """GPU UUID -> (pid, bytes or None)."""
    found: Dict[str, List[Tuple[int, Optional[int]]]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(HOLDER_FIELDS) and cells[1].isdigit():
            used = _number(cells[2])
            found.setdefault(cells[0], []).append((int(cells[1]), None if used is None else int(used * MIB)))
    return found


def _number(cell: str) -> Optional[float]:
    try:
        return float(cell)
    except ValueError:
        return None


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:200] if lines else ""


def _slurp(fd: int) -> str:
    size = os.fstat(fd).st_size
    data: Any = os.pread(fd, min(size, 1 << 20), 0)
    return bytes(data).decode("utf-8", "replace")
