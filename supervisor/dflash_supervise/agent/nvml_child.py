"""The NVML probe: a process of its own, because a driver call that never returns cannot be cancelled.

It reads one line from stdin for each look and answers with JSON lines: ``{"gpu": {...}}`` for each GPU as soon as that
GPU has been read, then ``{"end": COUNT}``; or ``{"error": TEXT, "code": N}``, or ``{"no_library": TEXT}``. It ends when
stdin closes. A number that the driver does not give is absent, never 0.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

SLOW_EVERY = 10  # limit, ECC and energy cost more and change slowly
RESERVE_DRIVER = 510  # from this driver on, the first memory call counts the driver's own reserve as used
MAX_XIDS = 16


def main(options: Dict[str, Any]) -> int:
    """Serve looks until stdin closes; 0 then, 0 also when there is no library (said on stdout)."""
    try:
        pynvml = _load(options)
    except (ImportError, OSError) as error:
        _say({"no_library": str(error)})
        return 0
    probe = Probe(pynvml)
    for _ in sys.stdin:
        for answer in _answers(probe):
            _say(answer)
        if probe.no_library:
            return 0
    return 0


def _load(options: Dict[str, Any]) -> Any:
    path = options.get("nvml_library_path")
    if path:
        import ctypes

        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # the same SONAME: pynvml's own CDLL call finds it loaded
    import pynvml

    return pynvml


def _say(answer: Dict[str, Any]) -> None:
    os.write(1, (json.dumps(answer, separators=(",", ":")) + "\n").encode("ascii"))


def _answers(probe: Probe) -> Iterator[Dict[str, Any]]:
    """The lines of one look, each GPU's as it is read: a call that hangs on GPU 2 leaves 0 and 1 told."""
    nvml = probe.nvml
    try:
        count = probe.begin()
    except nvml.NVMLError as error:
        probe.ready = False
        if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            probe.no_library = True
            yield {"no_library": str(error)}
        else:
            yield {"error": str(error), "code": error.value}
        return
    for index in range(count):
        yield {"gpu": probe.gpu(index)}
    yield {"end": count}


class Probe:
    """An initialised NVML and what was learned of each GPU."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.ready = False
        self.no_library = False
        self.looks = 0
        self.count = 0
        self.reserve_in_v1 = False
        self.known: Dict[int, Dict[str, Any]] = {}  # index -> what does not change, and the last slow values
        self.xids: Dict[int, List[int]] = {}
        self.events: Optional[Any] = None

    def begin(self) -> int:
        """Number of GPUs. The first look initialises; raises NVMLError."""
        nvml = self.nvml
        if not self.ready:
            nvml.nvmlInit()
            driver = _text(nvml.nvmlSystemGetDriverVersion())
            self.reserve_in_v1 = _major(driver) >= RESERVE_DRIVER
            self.ready, self.looks = True, 0
            self.events = None
        # A GPU that falls off the bus leaves the count: the ones we knew are still asked for, and answer with an error.
        self.count = max(self.count, int(nvml.nvmlDeviceGetCount()))
        if self.events is None:
            self.events = self._register()
        self._drain()
        self.looks += 1
        return self.count

    def gpu(self, index: int) -> Dict[str, Any]:
        """One GPU's readings in the units of ``facts.GpuReading``; ``error`` when the GPU itself does not answer."""
        known = self.known.setdefault(index, {})
        out: Dict[str, Any] = {"index": index}
        try:
            handle = self.nvml.nvmlDeviceGetHandleByIndex(index)
            if "uuid" not in known:
                known["uuid"] = _text(self.nvml.nvmlDeviceGetUUID(handle))
                known["name"] = _text(self.nvml.nvmlDeviceGetName(handle))
            self._fast(handle, out)
            self._memory(handle, out, known)
            if self.looks % SLOW_EVERY == 1:
                known["slow"] = self._slow(handle)
            out.update(known.get("slow", {}))
        except self.nvml.NVMLError as error:
            # The whole GPU is in doubt: numbers read before the error go too.
            out = {"index": index, "error": f"{error} ({error.value})"}
        out["uuid"] = known.get("uuid", f"index-{index}")
        out["name"] = known.get("name", "")
        if index in self.xids:
            out["xids"] = self.xids.pop(index)
        return out

    def _fast(self, handle: Any, out: Dict[str, Any]) -> None:
        nvml = self.nvml
        # "Unknown Error" from the plainest call of all is a lost driver (a container whose devices were taken away).
        rates = self._get(nvml.nvmlDeviceGetUtilizationRates, handle, doubt=(nvml.NVML_ERROR_UNKNOWN,))
        if rates is not None:
            out["util_pct"], out["mem_util_pct"] = float(rates.gpu), float(rates.memory)
        _put(out, "power_w", self._get(nvml.nvmlDeviceGetPowerUsage, handle), 0.001)
        _put(out, "temp_c", self._get(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU), 1.0)
        _put(out, "sm_mhz", self._get(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), 1.0)
        throttle = self._get(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if throttle is None:  # drivers before R535 know the older name only
            throttle = self._get(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        if throttle is not None:
            out["throttle"] = int(throttle)

    def _slow(self, handle: Any) -> Dict[str, Any]:
        nvml = self.nvml
        out: Dict[str, Any] = {}
        _put(out, "power_limit_w", self._get(nvml.nvmlDeviceGetEnforcedPowerLimit, handle), 0.001)
        _put(out, "energy_j", self._get(nvml.nvmlDeviceGetTotalEnergyConsumption, handle), 0.001)
        ecc = self._get(
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        )
        if ecc is not None:
            out["ecc_uncorrected"] = int(ecc)
        return out

    def _memory(self, handle: Any, out: Dict[str, Any], known: Dict[str, Any]) -> None:
        nvml = self.nvml
        holders = self._holders(handle)
        if holders is not None:
            out["holders"] = [[pid, used] for pid, used in sorted(holders.items())]
        memory = self._get(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        if memory is not None:
            out["mem_used_bytes"], out["mem_total_bytes"] = int(memory.used), int(memory.total)
            return
        memory = self._get(nvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is None:
            return
        used = int(memory.used)
        if self.reserve_in_v1:
            # What this GPU shows with nobody on it is the driver's reserve; before that was seen, the figure is
            # not ours to give.
            if holders == {}:
                known["reserve"] = min(used, known.get("reserve", used))
            reserve = known.get("reserve")
            if reserve is not None:
                out["mem_used_bytes"] = max(0, used - reserve)
        else:
            out["mem_used_bytes"] = used
        out["mem_total_bytes"] = int(memory.total)

    def _holders(self, handle: Any) -> Optional[Dict[int, Optional[int]]]:
        nvml = self.nvml
        found: Dict[int, Optional[int]] = {}
        for names in (
            ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"),
            ("nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2"),
        ):
            rows = None
            for name in names:
                rows = self._get(getattr(nvml, name), handle)
                if rows is not None:
                    break
            if rows is None:
                if "Compute" in names[0]:
                    return None
                continue
            for row in rows:
                used = row.usedGpuMemory
                found.setdefault(int(row.pid), None if used is None else int(used))
        return found

    def _get(self, call: Callable[..., Any], *args: Any, doubt: Tuple[int, ...] = ()) -> Any:
        """None when this card, driver or mode does not say; NVMLError when the GPU itself is in doubt."""
        nvml = self.nvml
        try:
            return call(*args)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_UNINITIALIZED:
                self.ready = False
                raise
            if error.value in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, *doubt):
                raise
            return None

    def _register(self) -> Any:
        """An event set for XIDs; False where the driver offers none."""
        nvml = self.nvml
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return False
        registered = 0
        for index in range(self.count):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                registered += 1
            except nvml.NVMLError:
                continue  # this GPU cannot tell; the others can
        return events if registered else False

    def _drain(self) -> None:
        nvml = self.nvml
        if not self.events:
            return
        for _ in range(MAX_XIDS):
            try:
                event = nvml.nvmlEventSetWait_v2(self.events, 0)
                index = int(nvml.nvmlDeviceGetIndex(event.device))
            except nvml.NVMLError:
                return  # NVML_ERROR_TIMEOUT: nothing is waiting; a lost GPU shows in its own reading
            self.xids.setdefault(index, []).append(int(event.eventData))


def _put(out: Dict[str, Any], key: str, value: Any, factor: float) -> None:
    if value is not None:
        out[key] = round(float(value) * factor, 3)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _major(version: str) -> int:
    head: Tuple[str, ...] = tuple(version.split(".", 1))
    return int(head[0]) if head[0].isdigit() else 0
