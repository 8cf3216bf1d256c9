"""What the GPUs say, asked through child processes so that a stuck driver never blocks the tick.

One probe at a time: a child that does not answer is itself the reading (``GpusReading.stuck_s``), and no
second one is started beside it while it lives, not even by way of nvidia-smi.
"""

from __future__ import annotations

import glob
import json
import os
import select
import subprocess
import time
from dataclasses import dataclass, replace
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

from dflash_supervise.agent.gpu_rows import reading_of
from dflash_supervise.agent.smi import SmiProbe, find_nvidia_smi
from dflash_supervise.agent.start import verb
from dflash_supervise.core.facts import GpuReading, GpusReading, Missing

NOBODY_ANSWERS = "no NVML library and no nvidia-smi"
NO_ANSWER = "no answer from NVML yet"
ABSENT = "no NVIDIA device, library or nvidia-smi on this host"
DEVICES = "/dev/nvidia[0-9]*"
DRIVER_NOT_LOADED = 9  # NVML_ERROR_DRIVER_NOT_LOADED
STUCK_AFTER_S = 3.0  # an answer takes 10 to 50 ms; a card that wakes from power-down up to 2 s
KILL_AFTER_S = 30.0
RESPAWN_AFTER_S = 5.0
LIBRARY_AGAIN_S = 300.0  # a driver may be installed under a running agent
MAX_XIDS = 16
OLD_AFTER_S = 10.0  # a number older than this is no answer


class GpuProbe:
    """The probe child and its last answers. ``ask`` never blocks, ``collect`` no longer than it is told to."""

    def __init__(self, command: Sequence[str], env: Optional[Dict[str, str]] = None, devices: str = DEVICES) -> None:
        self._command = list(command)
        self._env = env
        self._devices = devices
        self._absent = False  # NVML itself says that there is nothing to watch
        self._child: Optional[subprocess.Popen[bytes]] = None
        self._buffer = b""
        self._asked_at: Optional[float] = None
        self._spawned_at: Optional[float] = None
        self._killed = False
        self._rows: Dict[int, Tuple[float, Dict[str, Any]]] = {}  # index -> (when answered, row)
        self._trouble = NO_ANSWER
        self._looks = 0
        self._no_library_at: Optional[float] = None
        self._smi: Optional[SmiProbe] = None
        self._xids: Dict[int, List[int]] = {}  # index -> what was told since the attempt began

    def ask(self, now_s: float) -> None:
        """Begin a look unless one is under way."""
        if self._no_library_at is not None:
            if now_s - self._no_library_at < LIBRARY_AGAIN_S or (self._smi and self._smi.busy):
                self._ask_smi(now_s)
                return
            self._no_library_at = None
        if self._asked_at is not None or not self._ensure_child(now_s):
            return
        child = self._child
        assert child is not None and child.stdin is not None
        try:
            child.stdin.write(b"look\n")
            self._asked_at = now_s
        except OSError:
            self._reap(now_s)

    def collect(self, now_s: float, wait_s: float = 0.0) -> Union[GpusReading, Missing]:
        """What is known now; waits at most ``wait_s`` for the look that ``ask`` began."""
        if self._no_library_at is None:
            self._receive(now_s, wait_s)
        if self._no_library_at is not None:
            self._ask_smi(now_s)
            return self._smi.collect(now_s) if self._smi is not None else self._nobody(NOBODY_ANSWERS, ABSENT)
        stuck_s = self._stuck_s(now_s)
        if self._trouble and not self._rows and stuck_s is None:
            return self._nobody(self._trouble, self._trouble) if self._absent else Missing(self._trouble)
        gpus = tuple(self._reading(now_s, *self._rows[index]) for index in sorted(self._rows))
        return GpusReading(gpus=gpus, stuck_s=stuck_s)

    @property
    def child_pid(self) -> Optional[int]:
        """The probe child, while there is one."""
        return self._child.pid if self._child is not None else None

    @property
    def answered(self) -> bool:
        """A whole look has been told since the start, in numbers or as a refusal."""
        if self._no_library_at is not None:
            return self._smi.answered if self._smi is not None else True
        return self._looks > 0 or self._trouble != NO_ANSWER

    def _nobody(self, unknown: str, absent: str) -> Union[GpusReading, Missing]:
        """Nothing answers: without a device node that is knowledge (no GPU here), with one it is ignorance."""
        return Missing(unknown) if glob.glob(self._devices) else GpusReading(gpus=(), absent=absent)

    def forget_xids(self) -> None:
        """XIDs told so far belong to what was before: a new attempt begins without them."""
        self._xids = {}

    def close(self) -> None:
        """End the children. One that hangs in the driver is left to the kernel."""
        if self._smi is not None:
            self._smi.close()
        child, self._child = self._child, None
        if child is None:
            return
        _close_pipes(child)
        try:
            child.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            child.kill()

    def _ensure_child(self, now_s: float) -> bool:
        if self._child is not None:
            if self._child.poll() is None:
                return True
            self._reap(now_s)
        if self._spawned_at is not None and now_s - self._spawned_at < RESPAWN_AFTER_S:
            return False
        self._spawned_at, self._killed, self._buffer = now_s, False, b""
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=self._env,
            start_new_session=True,
        )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        return True

    def _reap(self, now_s: float) -> None:
        """The child is gone: say how. ``_asked_at`` stays when we killed it: ``stuck_s`` goes on counting."""
        child = self._child
        if child is None:
            return
        code = child.poll()
        if code is None:
            return
        _close_pipes(child)
        self._child = None
        if not self._killed:
            self._asked_at = None
            self._rows = {}
            self._trouble = "the NVML probe ended with {}".format(f"signal {-code}" if code < 0 else f"code {code}")
        self._spawned_at = now_s

    def _receive(self, now_s: float, wait_s: float) -> None:
        if self._child is None or self._child.stdout is None:
            self._respawn_after_kill(now_s)
            return
        fd = self._child.stdout.fileno()
        # A GPU's line comes as it is read, so the wait is over only when the look is.
        rounds = 0
        while self._asked_at is not None and rounds < 20:
            rounds += 1
            ready, _, _ = select.select([fd], [], [], wait_s)
            if not ready or not self._read(fd, now_s):
                break
        self._give_up_on_child(now_s)

    def _read(self, fd: int, now_s: float) -> bool:
        try:
            chunk = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if not chunk:
            child = self._child
            if child is not None:
                try:
                    child.wait(timeout=0.2)
                except subprocess.TimeoutExpired:
                    return False
            self._reap(now_s)
            return False
        self._buffer += chunk
        while b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
            self._take(json.loads(line.decode("ascii")), now_s)
        return True

    def _take(self, answer: Dict[str, Any], now_s: float) -> None:
        if "gpu" in answer:
            row = answer["gpu"]
            self._rows[row["index"]] = (now_s, row)
            told = self._xids.setdefault(row["index"], [])
            told.extend(row.pop("xids", ()))
            del told[:-MAX_XIDS]
            return
        self._asked_at, self._killed = None, False
        self._looks += 1
        if "end" in answer:
            self._absent = answer["end"] == 0
            self._trouble = "NVML answers and names no GPU" if self._absent else ""
        elif "no_library" in answer:
            self._no_library_at = now_s
            self._rows = {}
        else:
            self._rows = {}
            self._absent = answer["code"] == DRIVER_NOT_LOADED
            self._trouble = "NVML: {} ({})".format(answer["error"], answer["code"])

    def _give_up_on_child(self, now_s: float) -> None:
        """A child that hung for long is killed; one in D state stays, and then no other is started."""
        if self._asked_at is None or self._child is None or now_s - self._asked_at < KILL_AFTER_S:
            return
        if not self._killed:
            self._killed = True
            self._child.kill()
        self._reap(now_s)

    def _respawn_after_kill(self, now_s: float) -> None:
        if self._killed and self._asked_at is not None and self._ensure_child(now_s):
            child = self._child
            assert child is not None and child.stdin is not None
            child.stdin.write(b"look\n")
            # _asked_at stays: the driver has not answered since then, whichever child asks.
            self._killed = True

    def _stuck_s(self, now_s: float) -> Optional[float]:
        if self._asked_at is None:
            return None
        age_s = now_s - self._asked_at
        return age_s if age_s > STUCK_AFTER_S else None

    def _reading(self, now_s: float, at_s: float, row: Dict[str, Any]) -> GpuReading:
        age_s = max(0.0, now_s - at_s)
        if age_s > OLD_AFTER_S:
            return GpuReading(
                uuid=row["uuid"],
                index=row["index"],
                name=row.get("name", ""),
                error=f"the driver has not answered for {age_s:.0f} s",
                age_s=age_s,
                xids=tuple(self._xids.get(row["index"], ())),
            )
        return replace(reading_of(row), age_s=age_s, xids=tuple(self._xids.get(row["index"], ())))

    def _ask_smi(self, now_s: float) -> None:
        if self._smi is None:
            path = find_nvidia_smi(self._env)
            if path is None:
                return
            self._smi = SmiProbe(path, env=self._env)
        self._smi.ask(now_s)


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            try:
                pipe.close()
            except OSError:
                continue  # a broken pipe: the child is gone already


@dataclass(frozen=True)
class ProbeSettings:
    """How the probe child is started."""

    command: Tuple[str, ...]
    devices: str


def probe_settings(options: Dict[str, Any]) -> ProbeSettings:
    """From the agent's options; tests name a library and a device pattern there."""
    told = {key: options[key] for key in ("nvml_library_path",) if key in options}
    return ProbeSettings(tuple(verb("nvml", json.dumps(told))), str(options.get("dev_nvidia_glob", DEVICES)))


def new_probe(settings: ProbeSettings) -> GpuProbe:
    """A probe that has asked nothing yet."""
    return GpuProbe(settings.command, devices=settings.devices)


def one_look(settings: ProbeSettings, wait_s: float) -> Union[GpusReading, Missing]:
    """A single look, for verbs that do not tick: waits until all GPUs have answered, at most ``wait_s``."""
    probe = new_probe(settings)
    end_s = time.monotonic() + wait_s
    try:
        while True:
            now_s = time.monotonic()
            probe.ask(now_s)
            reading = probe.collect(now_s, wait_s=0.05)
            if probe.answered or now_s > end_s:
                return reading
            time.sleep(0.02)
    finally:
        probe.close()
