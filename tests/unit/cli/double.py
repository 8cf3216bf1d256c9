"""A small HTTP server that answers as the daemon does, in the shapes of its API."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "0123456789abcdef"
STACK = "thread 1: _wait_on_a_lock_for_ever (faults.py:151), called by in_worker (faults.py:101), called by loop"
Doc = dict[str, Any]


@dataclass
class DaemonDouble:
    """What the double knows and what it was asked.

    looks: further states of a run, given out one a look; the last one stays.
    operations: states of an operation, given out in the same way.
    refusals: (method, path) to an error object and its HTTP status.
    log_limit: bytes of a log that one answer holds at most, whatever was asked for.
    """

    runs: list[Doc] = field(default_factory=list)
    looks: dict[str, list[Doc]] = field(default_factory=dict)
    operations: dict[str, list[Doc]] = field(default_factory=dict)
    whys: dict[str, Doc] = field(default_factory=dict)
    records: dict[str, list[Doc]] = field(default_factory=dict)
    logs: dict[tuple[str, int], bytes] = field(default_factory=dict)
    log_limit: int = 65536
    hosts: list[Doc] = field(default_factory=list)
    refusals: dict[tuple[str, str], tuple[int, Doc]] = field(default_factory=dict)
    goal_answer: Doc = field(default_factory=lambda: {"generation": 2, "acknowledged": True})
    asked: list[tuple[str, str, Doc]] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def posts(self, path: str) -> list[Doc]:
        return [body for method, where, body in self.asked if method == "POST" and where == path]

    def answer(self, method: str, path: str, query: dict[str, str], body: Doc) -> tuple[int, Doc]:
        self.asked.append((method, path, body))
        self.queries.append(query)
        if (method, path) in self.refusals:
            status, error = self.refusals[method, path]
            return status, {"error": error}
        parts = path.strip("/").split("/")
        if method == "GET":
            return self._get(parts, query)
        return self._post(parts, body)

    def _get(self, parts: list[str], query: dict[str, str]) -> tuple[int, Doc]:
        match parts:
            case ["runs"]:
                return 200, {"schema": 1, "runs": [self._named(run) for run in self.runs]}
            case ["hosts"]:
                return 200, {"schema": 1, "hosts": self.hosts}
            case ["operations", name]:
                return 200, _next(self.operations[name])
            case ["runs", name]:
                run = self._run(name)
                if run is None:
                    return 404, {"error": {"code": "no_such_run", "message": "none", "fix": "", "exit_code": 102}}
                return 200, self._named(_next(self.looks[name]) if name in self.looks else run)
            case ["runs", name, "why"]:
                return 200, self.whys[name]
            case ["runs", name, "records"]:
                kinds = query.get("kind", "").split(",")
                found = [r for r in self.records.get(name, []) if r["kind"] in kinds]
                found = [r for r in found if r["row"] > int(query.get("after", 0))]
                return 200, {"records": found[: int(query.get("limit", 500))]}
            case ["runs", name, "log"]:
                return 200, self._log(name, query)
        return 404, {"detail": "Not Found"}

    def _post(self, parts: list[str], body: Doc) -> tuple[int, Doc]:
        match parts:
            case ["runs"] | ["adopt"] | ["doctor"]:
                return 202, {"operation": parts[0]}
            case ["runs", _name, "goal"]:
                return 200, self.goal_answer
            case ["hosts", "trust"]:
                return 200, {"trusted": True}
            case ["login"]:
                page = f"&next=/runs/{body['run']}" if "run" in body else ""
                return 200, {"path": f"/login?token=once{page}", "expires_s": 60}
        return 404, {"detail": "Not Found"}

    def _run(self, name: str) -> Doc | None:
        return next((run for run in self.runs if name in (run["id"], run["name"])), None)

    def _named(self, run: Doc) -> Doc:
        return {**run, "name_unique": [one["name"] for one in self.runs].count(run["name"]) == 1}

    def _log(self, name: str, query: dict[str, str]) -> Doc:
        newest = max((number for run, number in self.logs if run == name), default=0)
        attempt = int(query.get("attempt", newest))
        body = self.logs.get((name, attempt), b"")
        limit = min(int(query.get("limit", 65536)), self.log_limit)
        offset = min(int(query.get("offset", 0)), len(body))
        if "tail" in query:
            limit, offset = len(body), len(body) - len(b"".join(body.splitlines(keepends=True)[-int(query["tail"]) :]))
        data = body[offset : offset + limit]
        after = offset + len(data)
        return {"attempt": attempt, "offset": offset, "next": after, "size": len(body), "text": data.decode()}


def _next(states: list[Doc]) -> Doc:
    return states.pop(0) if len(states) > 1 else states[0]


def serve(double: DaemonDouble, state_dir: Path) -> ThreadingHTTPServer:
    """Serve the double on a free loopback port and leave the files by which the command line finds it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            split = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(split.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                status, doc = 401, {"detail": "no"}
            else:
                status, doc = double.answer(method, split.path.removeprefix("/api/v1"), query, body)
            data = json.dumps(doc).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Silence: the test asserts on what was asked."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "daemon.json").write_text(json.dumps({"pid": 4711, "url": double.url, "version": "0.1.0"}))
    (state_dir / "token").write_text(TOKEN + "\n")
    return server


def run_doc(**changes: Any) -> Doc:
    """A healthy run, with changes."""
    name = changes.get("name", "qwen")
    return {
        "id": f"{name}-2611300501-1f2e",
        "name": name,
        "name_unique": True,
        "host": "lab8",
        "target": "ana@lab8:/scratch/qwen",
        "workspace": "/scratch/qwen",
        "kind": "bundled",
        "preset": "auto",
        "goal": {"want": "run", "generation": 2, "acknowledged": True, "since": "2026-11-30T05:01:00.000Z"},
        "verdict": "running",
        "cause": "none",
        "sentence": "The run trains: a step every 0.8 s.",
        "suspected": False,
        "verdict_age_s": 1.2,
        "phase": "training",
        "attempt": 1,
        "attempt_ended": False,
        "step": 120,
        "steps_total": 400,
        "checkpoint_step": 100,
        "loss": 2.345678,
        "tokens_per_s": 12345.6,
        "tau": 3.4,
        "eta_s": 250.0,
        "gpus": [{"index": i, "uuid": f"GPU-{i}", "class": "working"} for i in range(2)],
        "missing": {},
        "news_at": "2026-11-30T05:08:00.000Z",
        "news_age_s": 1.2,
        "reachable": True,
        "unreachable_since": None,
        "created_at": "2026-11-30T05:01:00.000Z",
        "final": False,
        "exit_status": None,
        "open_incidents": 0,
        "notes": [],
        **changes,
    }


def hang_why() -> Doc:
    """What the API says of a run that hangs while another rule is on its way and a third cannot say."""
    run = run_doc(
        verdict="hang",
        cause="none",
        step=90,
        steps_total=240,
        attempt=2,
        news_age_s=2.0,
        verdict_age_s=2.0,
        open_incidents=1,
        sentence="No step for 72 s, every GPU spins, and the CPU time of the set stands still.",
        missing={"host": "cgroup files are not readable"},
        notes=[{"slug": "disk_low", "reason": "1.2 GiB are free in the workspace"}],
    )
    fired = {
        "rule": "flat_progress",
        "status": "failing",
        "reason": run["sentence"],
        "verdict": "hang",
        "cause": "none",
        "held_s": 72.0,
        "confirm_s": 45.0,
        "culprit": "thread drafter-1",
        "key_line": "waiting for \x1b]0;pwned\x07the lock",
        "evidence": [
            {"what": "step unchanged", "value": 90, "unit": "", "age_s": 0.4},
            {"what": "step flat", "value": 72.0, "unit": "s", "age_s": 0.4},
            {"what": "power GPU 0", "value": 124.0, "unit": "W", "age_s": 1.1},
            {"what": "stack", "value": STACK, "unit": "", "age_s": 0.4},
        ],
    }
    near = {
        "rule": "worker_lost",
        "status": "pending",
        "reason": "drafter-1 stands still while target-0 moves.",
        "verdict": "partial_stall",
        "held_s": 31.0,
        "confirm_s": 45.0,
        "evidence": [],
    }
    blind = {"rule": "stale_process", "status": "unknown", "reason": "No driver answers.", "held_s": 0.0}
    content = {"rule": "exited", "status": "ok", "reason": "The main process lives.", "held_s": 0.0}
    told = {
        "kind": "verdict",
        "attempt": 2,
        "verdict": "hang",
        "cause": "none",
        "findings": [content, blind, near, fired],
        "notes": [],
        "next": {"what": "stop", "in_s": 12.0, "why": "then the run goes on from checkpoint 80"},
        "final": False,
    }
    incident = {
        "id": "2-hang",
        "run": run["id"],
        "attempt": 2,
        "verdict": "hang",
        "cause": "none",
        "severity": "page",
        "state": "open",
        "since_s": 4711.0,
        "sentence": "No step for 72 s.",
        "key_line": "",
        "evidence": [],
        "response": "restart",
        "response_text": "restarting (1 of 3)",
        "opened_at": "2026-11-30T05:07:48.000Z",
        "resolved_at": None,
    }
    old = {
        **incident,
        "id": "1-crash",
        "attempt": 1,
        "cause": "rank_exception",
        "verdict": "crash",
        "state": "resolved",
    }
    ended = {
        "attempt": 1,
        "verdict": "crash",
        "cause": "rank_exception",
        "ran_s": 26.0,
        "step": 49,
        "checkpoint_step": 40,
    }
    return {"run": run, "verdict": told, "incidents": [incident, old], "attempts": [ended], "age_s": 2.0}
