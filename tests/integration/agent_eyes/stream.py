"""A peer of the stream process, and a run on this machine: what the daemon does, in a few lines."""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


def wait_for(what: str, look: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The first answer that is true.

    Raises:
        AssertionError: none came in time.
    """
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {patience_s:.0f} s for {what}")


class Peer:
    """The other end of `follow`'s pipes."""

    def __init__(self, agent_dir: Path, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-IS", str(agent_dir), "follow"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        self.lines: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self._number = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.raw.append(line)
            self.lines.append(json.loads(line.lstrip(b"\x1e")))

    def send(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def ask(self, op: str, **keys: Any) -> dict[str, Any]:
        """The answer, good or bad."""
        self._number += 1
        number = self._number
        self.send(json.dumps({"id": number, "op": op, **keys}).encode() + b"\n")
        found: dict[str, Any] = wait_for(
            f"the answer to {op}", lambda: next((x for x in self.lines if x.get("re") == number), None)
        )
        return found

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("t") == kind]

    def records(self, *kinds: str) -> list[dict[str, Any]]:
        return [line["rec"] for line in self.told("rec") if not kinds or line["rec"]["kind"] in kinds]

    def log(self, attempt: int) -> bytes:
        pieces = [line for line in self.told("log") if line["attempt"] == attempt]
        out = bytearray()
        for piece in pieces:
            assert piece["offset"] == len(out), "no byte lost or doubled"
            out += base64.b64decode(piece["data"])
        return bytes(out)

    def close(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(timeout=20)
        self._reader.join(timeout=5)
        self.process.stdout.close()
        return code


class Toy:
    """One run of a small foreign command, steered as the daemon does it."""

    def __init__(self, peer: Peer, workspace: Path) -> None:
        self.peer, self.workspace = peer, workspace
        # A name of its own: what an aborted test left alive would rightly forbid a launch.
        self.run_id = run_id = f"toy-2611300501-{secrets.token_hex(2)}"
        self.generation = 0
        self.run_dir = workspace / ".dflash" / "runs" / run_id
        self.body: dict[str, Any] = {}

    def start(self, script: str, *, policy: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        argv = [sys.executable, "-c", script]
        self.body = {"policy": {"preset": "auto", "backoff_s": 0.2, "grace_s": 5.0, **(policy or {})}, **changes}
        answer = self.goal("run", context={"argv": argv, "env": {"PYTHONUNBUFFERED": "1"}})
        assert answer["ok"], answer
        return self.ensure_agent()

    def ensure_agent(self) -> dict[str, Any]:
        answer = self.peer.ask("ensure_agent", workspace=str(self.workspace), run_id=self.run_id)
        assert answer["ok"], answer
        return answer

    def spec(self, want: str, generation: int, **goal: Any) -> dict[str, Any]:
        return {
            "schema": 1,
            "run_id": self.run_id,
            "name": "toy",
            "workspace": str(self.workspace),
            "generation": generation,
            "owner": "laptop",
            "goal": {"want": want, "hold_for_s": None, "end_attempt": None, **goal},
            "kind": "foreign",
            "gpus": "none",
            "policy": {},
            "highest_attempt": 0,
            "trainer_hash": None,
            "output_dir": str(self.workspace / "runs" / self.run_id),
            "adopt": None,
            **self.body,
        }

    def goal(self, want: str, *, context: dict[str, Any] | None = None, **goal: Any) -> dict[str, Any]:
        answer = self.peer.ask(
            "spec",
            workspace=str(self.workspace),
            spec=self.spec(want, self.generation + 1, **goal),
            based_on=self.generation,
            **({"context": context} if context else {}),
        )
        if answer["ok"]:
            self.generation = answer["generation"]
        return answer

    def follow(self, cursor: dict[str, Any] | None = None, log: dict[str, Any] | None = None) -> None:
        answer = self.peer.ask("follow", workspace=str(self.workspace), run_id=self.run_id, cursor=cursor, log=log)
        assert answer["ok"], answer

    @property
    def private(self) -> Path:
        """The run's folder in the runtime folder."""
        return Path(os.environ["XDG_RUNTIME_DIR"]) / "dflash/runs" / self.run_id

    def last_word(self) -> dict[str, Any] | None:
        """final.json; in the runtime folder where the run directory is gone."""
        found = [path for path in (self.run_dir / "final.json", self.private / "final.json") if path.exists()]
        return dict(json.loads(found[0].read_text())) if found else None

    def final(self, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        found: dict[str, Any] = wait_for("final.json", self.last_word, patience_s)
        return found

    def agent_pid(self) -> int | None:
        found = self.peer.ask("list", workspace=str(self.workspace))["runs"]
        run = next(run for run in found if run["run_id"] == self.run_id)
        if not run["agent_alive"]:
            return None
        about = json.loads((self.private / "agent.json").read_text())
        return int(about["pid"])
