"""A host in memory behind the daemon's seam: keeps specs by compare-and-swap, keeps records, can be cut off."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_supervise.config.target import HostTarget
from dflash_supervise.link import errors
from dflash_supervise.link.host import Follow, LinkState, Sink
from dflash_supervise.link.remote_tmux import remote_server

Doc = dict[str, Any]


@dataclass
class FakeHost:
    """What lives on the host and outlasts links and daemons."""

    look: Doc = field(default_factory=dict)
    config: Doc = field(
        default_factory=lambda: {"settings": "right", "message": ""}
    )  # what the trainer says of its settings
    specs: dict[str, Doc] = field(default_factory=dict)
    contexts: dict[str, Doc] = field(default_factory=dict)
    options: dict[str, Doc] = field(default_factory=dict)
    records: dict[str, list[Doc]] = field(default_factory=dict)
    logs: dict[tuple[str, int], bytes] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    there: Doc = field(default_factory=lambda: {"pid": 4321, "sessions": ["train"]})  # what look_for finds
    final: dict[str, Doc] = field(default_factory=dict)
    asked: list[Doc] = field(default_factory=list)
    on_ensure: Callable[[FakeHost, str], None] = lambda _host, _run: None
    refuse: dict[str, errors.LinkError] = field(default_factory=dict)
    up: bool = True
    now_s: float = 0.0
    links: list[FakeLink] = field(default_factory=list)

    def make(self, target: HostTarget, sink: Sink, cursors: Callable[[], Sequence[Follow]]) -> FakeLink:
        link = FakeLink(self, target, sink, cursors)
        self.links.append(link)
        return link

    def write(self, record: Doc) -> None:
        """A record of the agent: kept, and streamed to whoever follows the run."""
        self.records.setdefault(record["run"], []).append(record)
        for link in self.links:
            link.stream(record)

    def ops(self, name: str) -> list[Doc]:
        return [op for op in self.asked if op["op"] == name]

    def answer(self, op: Doc) -> Doc:
        self.asked.append(op)
        name = op["op"]
        if name in self.refuse:
            raise self.refuse[name]
        return getattr(self, "_" + name)(op)

    def _preflight(self, op: Doc) -> Doc:
        python = {"path": "/w/.venv/bin/python", "version": "3.12.1", "torch": "2.13.0", "cuda": True}
        gpus = {"gpus": [{"uuid": f"GPU-{n}", "index": n} for n in range(2)]}
        live = next(iter(sorted(self.live)), None)
        found = {"ok": True, "python": python, "tried": [], "tmux": {"path": "tmux"}, "gpus": gpus, "blockers": []}
        return {**found, "live_run": live, **self.look}

    def _check_config(self, op: Doc) -> Doc:
        return self.config

    def _set_options(self, op: Doc) -> Doc:
        self.options[op["run_id"]] = op["options"]
        return {}

    def _spec(self, op: Doc) -> Doc:
        spec, there = op["spec"], self.specs.get(op["spec"]["run_id"])
        generation = there["generation"] if there else 0
        same_owner = there is None or there["owner"] == spec["owner"] or op.get("take_over")
        if op["based_on"] != generation or spec["generation"] <= generation or not same_owner:
            raise errors.AgentRefusal("spec_conflict", f"generation {generation} is in force")
        self.specs[spec["run_id"]] = spec
        if "context" in op:
            self.contexts[spec["run_id"]] = op["context"]
        if spec["goal"]["want"] == "stop":
            self.live.discard(spec["run_id"])
            self.final[spec["run_id"]] = {"verdict": "stopped"}
        return {"generation": spec["generation"]}

    def _list(self, op: Doc) -> Doc:
        runs = []
        for run_id, spec in self.specs.items():
            facts = {"final": self.final.get(run_id), "attempt_alive": run_id in self.live}
            runs.append({"run_id": run_id, "spec": {**spec, "accepted": {"boottime_s": 1.0}}, **facts})
        return {"runs": runs}

    def _ensure_agent(self, op: Doc) -> Doc:
        self.on_ensure(self, op["run_id"])
        code = f"{op['workspace']}/.dflash/agent/{'f' * 64}"
        return {"pid": 77, "started": True, "command": ["/usr/bin/python3", "-IS", code]}

    def _tmux(self, op: Doc) -> Doc:
        return {"rc": 0, "out": "", "err": ""}

    def _look_for(self, op: Doc) -> Doc:
        return self.there

    def _doctor(self, op: Doc) -> Doc:
        return {"checks": [{"name": "python", "ok": True, "detail": "3.12", "fix": ""}]}


class FakeLink:
    """A link whose lines come in the caller's thread."""

    def __init__(self, host: FakeHost, target: HostTarget, sink: Sink, cursors: Callable[[], Sequence[Follow]]) -> None:
        self.host, self.target, self._sink, self._cursors = host, target, sink, cursors
        self._followed: set[str] = set()
        self._lock = threading.RLock()
        self._state = LinkState("connecting", 0.0)
        self.closed = False

    @property
    def state(self) -> LinkState:
        return self._state

    def start(self) -> None:
        self.reconnect()

    def close(self) -> None:
        self.closed = True

    def retry(self) -> None:
        self.reconnect()

    def cut(self) -> None:
        """The connection is gone; what the host writes meanwhile waits there."""
        with self._lock:
            self._followed.clear()
            self._set(LinkState("unreachable", 0.0, errors.Unreachable("no answer on port 22")))

    def reconnect(self) -> None:
        if not self.host.up:
            self._set(LinkState("unreachable", 0.0, errors.Unreachable("no answer on port 22")))
            return
        boot = {"executable": "/usr/bin/python3", "pushed": False, "notes": []}
        machine = {"machine_id": "m", "boot_id": "b", "hostname": "lab8"}
        hello = {"uid": 1000, "python": "3.11.2", "hash": "f" * 64, "machine": machine, "runtime_dir": "/run/d"}
        self._set(LinkState("ready", 0.0, hello={**hello, "now_s": self.host.now_s, "boot": boot}))
        for follow in self._cursors():
            self.follow(follow.run_id, follow.workspace, follow.cursor, follow.log)

    def wait_ready(self, timeout_s: float) -> LinkState:
        if self._state.hello is None:
            raise self._state.error or errors.Unreachable("not connected")
        return self._state

    def request(self, op: Doc, timeout_s: float = 30.0) -> Doc:
        if self._state.status != "ready":
            raise self._state.error or errors.Unreachable("not connected")
        return self.host.answer(op)

    def follow(self, run_id: str, workspace: str, cursor: Doc | None = None, log: Doc | None = None) -> None:
        with self._lock:
            self._followed.add(run_id)
            after = (cursor["epoch"], cursor["seq"]) if cursor else ("", 0)
            for record in self.host.records.get(run_id, []):
                if (record["epoch"], record["seq"]) > after:
                    self._sink(self.target.key, {"t": "rec", "rec": record})
            for (of_run, attempt), data in sorted(self.host.logs.items()):
                if of_run == run_id and (log is None or attempt >= log["attempt"]):
                    offset = log["offset"] if log is not None and attempt == log["attempt"] else 0
                    text = base64.b64encode(data[offset:]).decode()
                    line = {"t": "log", "run": run_id, "attempt": attempt, "offset": offset, "data": text}
                    self._sink(self.target.key, line)

    def stream(self, record: Doc) -> None:
        with self._lock:
            if record["run"] in self._followed and self._state.status == "ready" and not self.closed:
                self._sink(self.target.key, {"t": "rec", "rec": record})

    def tmux(self) -> Any:
        return remote_server(self.target.key, 1000, self.request)

    def _set(self, state: LinkState) -> None:
        self._state = state
        self._sink(self.target.key, state.as_line())
