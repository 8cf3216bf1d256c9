"""Find the Python for the bundled trainer: the first that is new enough and imports a torch that fits."""

from __future__ import annotations

import glob
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from dflash_supervise.agent.files import read_json, write_json
from dflash_supervise.agent.runtime import Runtime

LEAST_PYTHON = (3, 11)
LEAST_TORCH = (2, 11)
CHECK_S = 180.0  # a cold import of torch from a network file system takes a minute and more
CHECK = """
import json, sys
out = {"version": "%d.%d.%d" % sys.version_info[:3], "torch": None, "cuda": None, "error": None}
if sys.version_info >= (3, 11):
    try:
        import torch
        out["torch"] = torch.__version__
        out["cuda"] = torch.version.cuda if torch.cuda.is_available() else None
    except BaseException as error:
        out["error"] = "%s: %s" % (type(error).__name__, error)
print("\\x1e" + json.dumps(out))
"""


@dataclass(frozen=True)
class FoundPython:
    """An interpreter that can run the bundled trainer. ``cuda``: the CUDA version it can use now, or None."""

    path: str
    version: str
    torch: str
    cuda: Optional[str]


@dataclass(frozen=True)
class Tried:
    """An interpreter that cannot, and what it lacks."""

    path: str
    why: str


def candidates(
    workspace: str, wanted: Optional[str], environ: Mapping[str, str], also: Sequence[str] = ()
) -> List[str]:
    """In the order of trying; a Python that the user names is the only one.

    Paths stay as they are: a virtual environment's interpreter is a link, and only by its own name does it find its
    packages. also: tried last, after the one that runs this agent.
    """
    if wanted:
        named = wanted if os.sep in wanted else shutil.which(wanted, path=environ.get("PATH")) or wanted
        return [os.path.join(named, "bin", "python") if os.path.isdir(named) else named]
    places = [os.path.join(workspace, ".venv", "bin", "python")]
    if environ.get("CONDA_PREFIX"):
        places.append(os.path.join(environ["CONDA_PREFIX"], "bin", "python"))
    places += ["/opt/conda/bin/python", os.path.expanduser("~/miniconda3/bin/python")]
    in_path = shutil.which("python3", path=environ.get("PATH"))
    places += [path for path in (in_path, sys.executable, *also) if path]
    return list(dict.fromkeys(place for place in places if os.path.exists(place)))


def find_python(
    runtime: Runtime,
    workspace: str,
    wanted: Optional[str],
    need_cuda: bool,
    environ: Optional[Mapping[str, str]] = None,
    also: Sequence[str] = (),
) -> Tuple[Optional[FoundPython], Tuple[Tried, ...]]:
    """(the first Python that fits, what each earlier one lacked).

    A good answer is remembered by path, modification time of the interpreter and of its site-packages, because
    importing torch costs seconds.
    """
    tried: List[Tried] = []
    for path in candidates(workspace, wanted, os.environ if environ is None else environ, also):
        facts = _known(runtime, path) or _ask(path)
        why = lacks(facts, need_cuda)
        if why is None:
            _remember(runtime, path, facts)
            return FoundPython(path, facts["version"], facts["torch"], facts["cuda"]), tuple(tried)
        tried.append(Tried(path, why))
    return None, tuple(tried)


def lacks(facts: Dict[str, Any], need_cuda: bool) -> Optional[str]:
    """What an interpreter lacks, or None when it can run the trainer."""
    if facts.get("version") is None:
        return str(facts.get("error"))
    if _numbers(facts["version"]) < LEAST_PYTHON:
        return "is Python {}, and the trainer needs {}.{}".format(facts["version"], *LEAST_PYTHON)
    if facts.get("torch") is None:
        return "cannot import torch ({})".format(facts.get("error"))
    if _numbers(facts["torch"]) < LEAST_TORCH:
        return "has torch {}, and the trainer needs {}.{}".format(facts["torch"], *LEAST_TORCH)
    if need_cuda and facts.get("cuda") is None:
        return "has torch {} that cannot use the GPUs of this host".format(facts["torch"])
    return None


def _ask(path: str) -> Dict[str, Any]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("DFLASH_", "PYTHON"))}
    env["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # without it the check itself would open a context
    try:
        done = subprocess.run(
            [path, "-c", CHECK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=CHECK_S,
            env=env,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"version": None, "error": f"did not import torch within {CHECK_S:.0f} s"}
    except OSError as error:
        return {"version": None, "error": f"cannot be started: {error.strerror}"}
    text = done.stdout.decode("utf-8", "replace")
    if "\x1e" not in text:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        return {"version": None, "error": "ended with code {} {}".format(done.returncode, "".join(last)[:200]).strip()}
    answer: Dict[str, Any] = json.loads(text.rsplit("\x1e", 1)[1])
    return answer


def _stamp(path: str) -> List[Any]:
    """What changes when the interpreter or its packages are replaced."""
    stamp: List[Any] = []
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(path)))
    packages = sorted(glob.glob(os.path.join(prefix, "lib", "python3*", "site-packages")))
    for place in [path, os.path.realpath(path), *packages]:
        try:
            stamp.append([place, os.stat(place).st_mtime_ns])
        except OSError:
            stamp.append([place, None])
    return stamp


def _cache_path(runtime: Runtime) -> str:
    return os.path.join(runtime.root, "pythons.json")


def _known(runtime: Runtime, path: str) -> Optional[Dict[str, Any]]:
    entry = (read_json(_cache_path(runtime)) or {}).get(os.path.abspath(path))
    if not isinstance(entry, dict) or entry.get("stamp") != _stamp(path):
        return None
    facts: Optional[Dict[str, Any]] = entry.get("facts")
    return facts if isinstance(facts, dict) else None


def _remember(runtime: Runtime, path: str, facts: Dict[str, Any]) -> None:
    cache = read_json(_cache_path(runtime)) or {}
    cache[os.path.abspath(path)] = {"stamp": _stamp(path), "facts": facts}
    with suppress(OSError):  # asked again next time
        write_json(_cache_path(runtime), cache, durable=False)


def _numbers(version: str) -> Tuple[int, ...]:
    numbers = []
    for part in version.split(".")[:2]:
        digits = "".join(c for c in part if c.isdigit())
        numbers.append(int(digits) if digits else 0)
    return tuple(numbers)
