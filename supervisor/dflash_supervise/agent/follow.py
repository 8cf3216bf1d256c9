"""The stream process on the SSH channel: requests come in as JSON lines, answers and news go out behind RS (0x1e).

It holds no state that matters and ends itself: on the end of stdin, after 60 s without a request line (a peer behind a
dead network), or when its own code was deleted (the peer comes back and brings new). Nothing a workspace does can hold
it up: every request and every followed run has its thread.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from dflash_supervise.agent.files import UnsafeFolder, decode_json, write_atomic
from dflash_supervise.agent.host import this_machine
from dflash_supervise.agent.requests import RequestError, Requests
from dflash_supervise.agent.run_follower import RunFollower
from dflash_supervise.agent.runtime import Runtime, boottime_s
from dflash_supervise.agent.start import agent_hash
from dflash_supervise.wire import MAX_LINE_BYTES

PROTOCOL = 1
BEAT_S = 5.0
IDLE_S = 60.0
AT_ONCE = 12  # requests under way; more wait, so that stuck ones cannot eat the host
QUEUE_BYTES = 2 << 20
RS = b"\x1e"


# Our own tmux server: a log must not reach the clipboard or the terminal behind. -q: older tmux.
TMUX_CONF = b"""set -s exit-empty off
set -s set-clipboard off
set -gq allow-passthrough off
set -g remain-on-exit on
set -g history-limit 50000
"""


class Out:
    """Lines to the peer, written by a thread of its own: a full channel blocks followers, never the main loop."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._room = threading.Condition()
        self._lines: List[bytes] = []
        self._bytes = 0
        self._closed = False
        threading.Thread(target=self._run, name="out", daemon=True).start()

    def send(self, line: Dict[str, Any], wait: bool = False) -> bool:
        """Queue one line. With ``wait`` it blocks while the peer does not read; False when the channel is closed."""
        data = RS + json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
        assert len(data) <= MAX_LINE_BYTES, f"a line of {len(data)} bytes"
        with self._room:
            while wait and self._bytes > QUEUE_BYTES and not self._closed:
                self._room.wait()
            if self._closed:
                return False
            self._lines.append(data)
            self._bytes += len(data)
            self._room.notify_all()
        return True

    def drain(self, timeout_s: float) -> None:
        """Wait until everything queued is written, at most ``timeout_s``."""
        with self._room:
            self._room.wait_for(lambda: self._bytes == 0 or self._closed, timeout_s)

    def _run(self) -> None:
        while True:
            with self._room:
                while not self._lines:
                    self._room.wait()
                lines, self._lines = self._lines, []
            data = b"".join(lines)
            try:
                _write_all(self._fd, data)
            except OSError:
                with self._room:
                    self._closed = True
                    self._room.notify_all()
                return
            with self._room:
                self._bytes -= len(data)
                self._room.notify_all()


class Stream:
    """One connection: the main loop reads requests, threads answer them."""

    def __init__(self, runtime: Runtime, in_fd: int = 0, out_fd: int = 1, idle_s: float = IDLE_S) -> None:
        self._in_fd = in_fd
        self._idle_s = idle_s
        self._runtime = runtime
        self._out = Out(out_fd)
        self._requests = Requests(runtime)
        self._followers: Dict[str, RunFollower] = {}
        self._slots = threading.Semaphore(AT_ONCE)

    def serve(self) -> int:
        """Until the peer is gone; always 0."""
        self._out.send(hello(self._runtime))
        heard = beat = time.monotonic()
        buffer = b""
        while True:
            now = time.monotonic()
            if now - heard > self._idle_s or self._requests.code_gone:
                break
            if now - beat >= BEAT_S:
                beat = now
                self._out.send({"t": "beat", "now_s": round(boottime_s(), 3)})
            ready, _, _ = select.select([self._in_fd], [], [], 0.25)
            if not ready:
                continue
            chunk = os.read(self._in_fd, 1 << 16)
            if not chunk:
                break
            heard = time.monotonic()
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for line in lines:
                if line.strip():
                    self._take(line)
            if len(buffer) > 64 * MAX_LINE_BYTES:
                break  # no peer of ours sends that
        for follower in self._followers.values():
            follower.stop()
        self._out.drain(1.0)
        return 0

    def _take(self, line: bytes) -> None:
        try:
            request = decode_json(line)
            number, op = request["id"], str(request["op"])
        except (ValueError, KeyError, TypeError):
            self._out.send(_refusal(None, RequestError("bad_request", "a request is a JSON object with id and op")))
            return
        if op == "follow":
            self._answer(number, lambda: self._follow(request))
        elif op == "unfollow":
            self._answer(number, lambda: self._unfollow(request))
        elif op == "ping":
            self._answer(number, lambda: {"now_s": round(boottime_s(), 3)})
        else:
            threading.Thread(target=self._serve_one, args=(number, op, request), name=op, daemon=True).start()

    def _serve_one(self, number: Any, op: str, request: Dict[str, Any]) -> None:
        with self._slots:
            self._answer(number, lambda: self._requests.handle(op, request))

    def _answer(self, number: Any, work: Callable[[], Dict[str, Any]]) -> None:
        try:
            answer = dict(work(), re=number, ok=True)
            if len(json.dumps(answer)) > MAX_LINE_BYTES - 1024:
                raise RequestError("too_large", f"the answer has more than {MAX_LINE_BYTES} bytes")
        except RequestError as error:
            answer = _refusal(number, error)
        except UnsafeFolder as error:
            answer = _refusal(number, RequestError("unsafe_workspace", str(error), error.fix))
        except OSError as error:
            answer = _refusal(number, RequestError("io_error", str(error), "look at this path on the host"))
        except Exception as error:  # noqa: BLE001 - our own fault, shown to the peer with its place
            answer = _refusal(number, RequestError("internal", _where(error)))
        self._out.send(answer)

    def _follow(self, request: Dict[str, Any]) -> Dict[str, Any]:
        run_id = self._requests.run_id(request)
        self._unfollow(request)
        follower = RunFollower(
            self._requests.run_dir(request),
            run_id,
            _cursor(request.get("cursor")),
            _log_place(request.get("log")),
            self._out.send,
            self._runtime.spare_records(run_id),
        )
        self._followers[run_id] = follower
        follower.start()
        return {"run_id": run_id}

    def _unfollow(self, request: Dict[str, Any]) -> Dict[str, Any]:
        follower = self._followers.pop(self._requests.run_id(request), None)
        if follower is not None:
            follower.stop()
        return {"followed": follower is not None}


def main(options: Dict[str, Any]) -> int:
    """Serve the peer on stdin and stdout. Exit code 6: the runtime folder is unsafe (told on the stream)."""
    threading.stack_size(512 * 1024)
    try:
        runtime = Runtime.open(proc_root=options.get("proc_root", "/proc"))
    except UnsafeFolder as error:
        line = {"t": "refused", "error": {"code": "unsafe_runtime", "message": str(error), "fix": error.fix}}
        _write_all(1, RS + json.dumps(line).encode("ascii") + b"\n")
        return 6
    with suppress(OSError):  # a full disk must not cut the host off
        write_atomic(os.path.join(runtime.root, "tmux.conf"), TMUX_CONF, durable=False)
    Stream(runtime).serve()
    sys.stderr.flush()
    os._exit(0)  # a thread that hangs in a workspace must not hold the channel open


def hello(runtime: Runtime) -> Dict[str, Any]:
    """The first line: who answers, on which machine."""
    return {
        "t": "hello",
        "protocol": PROTOCOL,
        "pid": os.getpid(),
        "uid": os.geteuid(),
        "user": _user(),
        "python": "{}.{}.{}".format(*sys.version_info[:3]),
        "hash": agent_hash(),
        "machine": this_machine(runtime.proc_root),
        "now_s": round(boottime_s(), 3),
        "runtime_dir": runtime.root,
    }


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _cursor(value: Any) -> Optional[Tuple[str, int]]:
    if value is None:
        return None
    try:
        return str(value["epoch"]), int(value["seq"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RequestError("bad_request", "cursor is {epoch, seq}") from None


def _log_place(value: Any) -> Tuple[int, int]:
    if value is None:
        return 0, 0
    try:
        return int(value["attempt"]), int(value["offset"])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise RequestError("bad_request", "log is {attempt, offset}") from None


def _refusal(number: Any, error: RequestError) -> Dict[str, Any]:
    told = dict(error.facts, code=error.code, message=error.message[:4000], fix=error.fix)
    return {"re": number, "ok": False, "error": told}


def _where(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}" if trace is not None else "?"
    return f"{type(error).__name__}: {error} (in {place})"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
