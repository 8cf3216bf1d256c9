"""Pretended GPUs: builds the fake libnvidia-ml.so.1 once and scripts what it shows."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FAKES = Path(__file__).resolve().parent
SOURCES = FAKES / "nvml"
CACHE = FAKES.parent.parent / ".cache"
SONAME = "libnvidia-ml.so.1"
COMPILE = (
    *("gcc", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror"),
    *("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}"),
)

IDLE_POWER_W = 75.0
MILLI = 1000.0


@functools.cache
def library_folder(*, old_driver: bool = False) -> Path:
    """The folder with the built library; built when its sources changed.

    Raises:
        RuntimeError: there is no C compiler, or it refused the sources.
    """
    flags = [*COMPILE, "-DOLD_DRIVER"] if old_driver else COMPILE
    digest = hashlib.sha256(" ".join(flags).encode())
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.read_bytes())
    folder = CACHE / f"fake-nvml-{digest.hexdigest()[:16]}"
    if (folder / SONAME).exists():
        return folder
    if shutil.which("gcc") is None:
        raise RuntimeError("the fake NVML needs a C compiler: run `make system`")
    folder.mkdir(parents=True, exist_ok=True)
    # Parallel test workers may build at once: each into its own file, the last rename wins.
    with tempfile.TemporaryDirectory(dir=folder) as build:
        output = Path(build) / SONAME
        sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
        built = subprocess.run(
            [*flags, "-o", str(output), *sources, "-lpthread"], capture_output=True, text=True, check=False
        )
        if built.returncode != 0:
            raise RuntimeError(f"the fake NVML does not compile:\n{built.stderr}")
        output.replace(folder / SONAME)
    return folder


class FakeGpus:
    """A machine's GPUs as NVML and nvidia-smi show them, for every process started with `env()`.

    A change is seen by running processes at their next call.
    """

    def __init__(self, folder: Path, n: int = 8, *, old_driver: bool = False) -> None:
        self.library = library_folder(old_driver=old_driver)
        self.state_file = folder / "gpus.json"
        self.holders = folder / "gpu-holders"
        self.holders.mkdir(parents=True)
        self.smi_folder = folder / "gpu-bin"
        self.smi_folder.mkdir()
        (self.smi_folder / "nvidia-smi").symlink_to(FAKES / "fake-nvidia-smi")
        self._top: dict[str, Any] = {"proc_dir": str(self.holders)}
        now_s = time.time()
        self._gpus: list[dict[str, Any]] = [
            {"uuid": f"GPU-fake0000-0000-0000-0000-{i:012d}", "power": IDLE_POWER_W * MILLI}
            | {"energy": 0, "energy_at": now_s}
            for i in range(n)
        ]
        self._write()

    def __len__(self) -> int:
        return len(self._gpus)

    def uuid(self, index: int) -> str:
        return str(self._gpus[index]["uuid"])

    @property
    def uuids(self) -> list[str]:
        return [self.uuid(index) for index in range(len(self))]

    def set(
        self,
        index: int,
        *,
        util: float | None = None,
        used: int | None = None,
        power: float | None = None,
        temp: float | None = None,
        lost: bool | None = None,
        hang_ms: int | None = None,
        err: Mapping[str, int] | None = None,
        **fields: Any,
    ) -> None:
        """Change what one GPU shows; what is not named stays.

        Args:
            util: utilisation in percent.
            used: bytes in use beside what holders hold; without any holder this is memory of nobody.
            power: watts; the energy counter grows by it.
            temp: degrees Celsius.
            lost: every call answers "GPU is lost".
            hang_ms: every call takes this long.
            err: NVML function name (or "*") -> NVML error code; `{}` heals.
            fields: any other member that nvml/nvml.c names, in its units.
        """
        gpu = self._gpus[index]
        if power is not None:
            now_s = time.time()
            gpu["energy"] += (now_s - gpu["energy_at"]) * gpu["power"]
            gpu["energy_at"] = now_s
            gpu["power"] = power * MILLI
        changes = {"util": util, "used": used, "temp": temp, "lost": lost, "hang_ms": hang_ms, "err": err}
        gpu.update({key: value for key, value in changes.items() if value is not None}, **fields)
        self._write()

    def hold(self, index: int, pid: int, bytes: int) -> None:
        """Let a process hold memory of a GPU, for as long as it lives."""
        (self.holders / f"{index}.{pid}").write_text(f"{bytes}\n")

    def release(self, index: int, pid: int) -> None:
        (self.holders / f"{index}.{pid}").unlink(missing_ok=True)

    def ghost(self, index: int, pid: int, bytes: int) -> None:
        """A process that NVML names whether or not it can be seen here: a pid of another namespace."""
        gpu = self._gpus[index]
        gpu.setdefault("procs", []).append({"pid": pid, "used": bytes})
        gpu["used"] = gpu.get("used", 0) + bytes
        self._write()

    def xid(self, index: int, code: int) -> None:
        """Deliver one XID to whoever waits for events."""
        self._gpus[index].setdefault("xid", []).append(code)
        self._write()

    def driver(self, *, init_error: int = 0, init_hang_ms: int = 0, version: str = "575.57.08") -> None:
        """Script the driver as a whole: nvmlInit's error code (18: version mismatch) and delay."""
        self._top.update(init_error=init_error, init_hang_ms=init_hang_ms, driver=version)
        self._write()

    def env(self) -> dict[str, str]:
        """What a process must be started with to see these GPUs by NVML."""
        return {"FAKE_NVML_STATE": str(self.state_file), "LD_LIBRARY_PATH": str(self.library)}

    def smi_env(self, path: str | None = None) -> dict[str, str]:
        """What shows these GPUs by nvidia-smi alone: a host without the NVML library."""
        path = os.environ.get("PATH", "/usr/bin:/bin") if path is None else path
        return {"FAKE_NVML_STATE": str(self.state_file), "PATH": f"{self.smi_folder}:{path}"}

    def _write(self) -> None:
        fresh = self.state_file.with_suffix(".new")
        fresh.write_text(json.dumps({**self._top, "gpus": self._gpus}))
        fresh.replace(self.state_file)
