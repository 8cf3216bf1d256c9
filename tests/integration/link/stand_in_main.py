"""A stand-in for the agent: the stream protocol and nothing behind it. Runs on the host side.

Records come from `<workspace>/records.jsonl`, which the test writes; log bytes from `<workspace>/train.log`.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any

SAYING = threading.Lock()
QUIET = threading.Event()


def say(message: dict[str, Any]) -> None:
    if QUIET.is_set():
        return
    with SAYING:
        sys.stdout.buffer.write(b"\x1e" + json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


def main() -> None:
    say(
        {
            "t": "hello",
            "protocol": 1,
            "pid": os.getpid(),
            "uid": os.getuid(),
            "user": getpass.getuser(),
            "python": sys.version.split()[0],
            "argv": sys.argv[1:],
            "environment": {name: os.environ.get(name) for name in ("STAND_IN", "HOME")},
            "umask": os.umask(0o022),
        }
    )
    threading.Thread(target=beat, daemon=True).start()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        op = request.pop("op")
        number = request.pop("id")
        answer = OPS[op](**request) if op in OPS else {"ok": False, "error": {"code": "no_op", "message": op}}
        if answer is not None:
            say({"re": number, "ok": True, **answer})


def beat() -> None:
    while True:
        time.sleep(0.2)
        say({"t": "beat", "now_s": time.monotonic()})


def follow(workspace: str, run_id: str, cursor: Any, log: Any) -> dict[str, Any]:
    if run_id.startswith("missing"):
        return {"ok": False, "error": {"code": "no_such_run", "message": f"no run {run_id}"}}
    threading.Thread(target=_records, args=(workspace, cursor), daemon=True).start()
    threading.Thread(target=_log, args=(workspace, run_id, log), daemon=True).start()
    return {}


def _records(workspace: str, cursor: Any) -> None:
    after = cursor["seq"] if cursor else 0
    for line in _tail(os.path.join(workspace, "records.jsonl"), 0):
        record = json.loads(line)
        if record["seq"] > after:
            say({"t": "rec", "rec": record})


def _log(workspace: str, run_id: str, log: Any) -> None:
    offset = log["offset"] if log else 0
    for line in _tail(os.path.join(workspace, "train.log"), offset):
        data = base64.b64encode(line).decode()
        say({"t": "log", "run": run_id, "attempt": 1, "offset": offset, "data": data})
        offset += len(line)


def _tail(path: str, offset: int) -> Any:
    while not os.path.exists(path):
        time.sleep(0.05)
    with open(path, "rb") as file:
        file.seek(offset)
        rest = b""
        while True:
            rest += file.readline()
            if rest.endswith(b"\n"):
                yield rest
                rest = b""
            else:
                time.sleep(0.05)


def tmux(argv: list[str]) -> dict[str, Any]:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    environment.pop("TMUX", None)
    try:
        done = subprocess.run(
            ["tmux", *argv], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    except FileNotFoundError:
        return {"ok": False, "error": {"code": "tmux_missing", "message": "no tmux", "fix": "install tmux"}}
    return {"rc": done.returncode, "out": done.stdout, "err": done.stderr}


def put(workspace: str, kind: str, hash: str, offset: int, data: str, last: bool) -> dict[str, Any]:
    path = os.path.join(workspace, f"{kind}.zip")
    with open(path, "r+b" if offset else "wb") as file:
        file.seek(offset)
        file.write(base64.b64decode(data))
    with open(os.path.join(workspace, "puts"), "a") as puts:
        puts.write(f"{offset}\n")
    return {}


def have(workspace: str, kind: str, hash: str) -> dict[str, Any]:
    try:
        with open(os.path.join(workspace, f"{kind}.zip"), "rb") as file:
            return {"have": hashlib.sha256(file.read()).hexdigest() == hash}
    except FileNotFoundError:
        return {"have": False}


def flood_stderr(size: int) -> dict[str, Any]:
    sys.stderr.write("e" * size)
    sys.stderr.flush()
    return {"wrote": size}


def freeze() -> dict[str, Any]:
    QUIET.set()
    return {}


def end(code: int) -> dict[str, Any]:
    sys.stderr.write("ended on request\n")
    sys.stderr.flush()
    os._exit(code)


OPS: dict[str, Any] = {
    "ping": dict,
    "follow": follow,
    "tmux": tmux,
    "put": put,
    "have": have,
    "flood_stderr": flood_stderr,
    "freeze": freeze,
    "end": end,
    "never": lambda: None,
    "say_back": lambda text: {"text": text},
    "say_in_chunks": lambda size: {"text": "x" * size},
}

main()
