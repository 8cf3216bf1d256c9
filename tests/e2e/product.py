"""The whole product as its user has it: the command line, a daemon, a host behind SSH, the CPU trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.lab import processes
from tests.lab.processes import Process, wait_until

CLI = (str(Path(sys.executable).parent / "dflash-supervise"),)
COMMAND_S = 180.0
CALM = "slow@5"  # from here on the trainer rests half a second a step: most tests only look at it

# Minutes become seconds, nothing else changes.
SHORT_POLICY: dict[str, Any] = {
    "suspect_floor_s": 4.0,
    "stacks_apart_s": 3.0,
    "worker_lost_s": 6.0,
    "worker_lost_traceback_s": 2.0,
    "stopped_s": 3.0,
    "stopped_cure_s": 3.0,
    "stale_confirm_s": 2.0,
    "grace_s": 6.0,
    "killed_wait_s": 4.0,
    "backoff_s": 0.5,
}


class Product:
    """Start runs with ``start``, look with ``run``, ``records`` and ``cli``; ``close`` ends the daemon."""

    def __init__(
        self,
        home: Path,
        workspace: Path,
        cache: Path,
        slack_url: str = "",
        *,
        host: str = "gpubox",
        program: tuple[str, ...] = CLI,
    ) -> None:
        self.home, self.workspace, self.cache, self.host, self.program = home, workspace, cache, host, program
        self.state = home / "state" / "dflash-supervise"
        # One for all questions: a client reads every certificate of the machine when it is made.
        self.web = httpx.Client(timeout=20, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0))
        config = home / "config" / "dflash-supervise" / "config.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        policy = "".join(f"{key} = {value}\n" for key, value in SHORT_POLICY.items())
        slack = f'[slack]\nwebhook = "{slack_url}"\n' if slack_url else ""
        config.write_text(
            f'[daemon]\nport = 0\n[start]\npython = "{sys.executable}"\n{slack}'
            f"[alerts]\nallow_loopback_http = true\ninterval_s = 0.1\nretry_max_s = 2.0\nagent_silent_s = 5.0\n"
            f"[policy]\n{policy}"
        )

    # ---- the user

    def cli(self, *words: str, within_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """One command of the user; the result is not checked."""
        return subprocess.run(
            [*self.program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    def start(self, *words: str, fault: str = CALM, steps: int = 400) -> str:
        """Start the bundled trainer with a tiny target, detached, and give the run's id."""
        settings = ['preset="tiny"', f"steps={steps}", f'target.cache_dir="{self.cache}"', "limits.stall_s=0"]
        options = [word for setting in settings for word in ("--set", setting)]
        if fault:
            options += ["--env", f"DFLASH_FAULT={fault}"]
        done = self.cli("start", f"{self.host}:{self.workspace}", "--detach", *options, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def start_command(self, *command: str, folder: Path | None = None) -> str:
        """Start a foreign command, detached, under the policy auto; in another workspace when one is given."""
        place = f"{self.host}:{folder or self.workspace}"
        done = self.cli("start", place, "--detach", "--policy", "auto", "--", *command)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    def start_daemon(self) -> Process:
        """Bring the daemon up as its unit would, and wait until it answers."""
        log = (self.home / "daemon.out").open("ab")
        subprocess.Popen(
            [*self.program, "daemon", "run"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        self.wait("the daemon answers", lambda: bool(self.get("/runs")), 40.0)
        found = processes.look(int(self.daemon["pid"]))
        assert found is not None
        return found

    # ---- what the daemon knows

    @property
    def daemon(self) -> dict[str, Any]:
        return dict(json.loads((self.state / "daemon.json").read_text()))

    def get(self, path: str) -> dict[str, Any]:
        token = (self.state / "token").read_text().strip()
        url = f"{self.daemon['url'].rstrip('/')}/api/v1{path}"
        answer = self.web.get(url, headers={"Authorization": f"Bearer {token}"})
        answer.raise_for_status()
        return dict(answer.json())

    def run(self, run_id: str) -> dict[str, Any]:
        return self.get(f"/runs/{run_id}")

    def records(self, run_id: str, *kinds: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after = 0
        while True:
            kind = f"&kind={','.join(kinds)}" if kinds else ""
            page = self.get(f"/runs/{run_id}/records?after={after}&limit=1000{kind}")["records"]
            if not page:
                return found
            found += page
            after = max(record["row"] for record in page)

    def verdicts(self, run_id: str) -> list[tuple[str, str, bool]]:
        """(verdict, cause, suspected) in order, without repetitions."""
        told = [(r["verdict"], r["cause"], bool(r.get("suspected"))) for r in self.records(run_id, "verdict")]
        return [one for index, one in enumerate(told) if index == 0 or told[index - 1] != one]

    def attempts(self, run_id: str) -> list[int]:
        return [record["attempt"] for record in self.records(run_id, "attempt_start")]

    def incidents(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The newest word on each incident of a run, by its id."""
        return {record["id"]: record for record in self.records(run_id, "incident")}

    # ---- what is on the host

    def run_dir(self, run_id: str) -> Path:
        """Where the run lies: in the workspace, or in one below it."""
        found = [*self.workspace.glob(f".dflash/runs/{run_id}"), *self.workspace.glob(f"*/.dflash/runs/{run_id}")]
        return found[0]

    def host_records(self, run_id: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for segment in sorted((self.run_dir(run_id) / "records").glob("*.jsonl")):
            lines += [json.loads(line) for line in segment.read_text().splitlines() if line.endswith("}")]
        return lines

    def trainers(self, run_id: str) -> list[Process]:
        """Living processes that carry the run's token."""
        token = f"DFLASH_RUN={run_id}:"
        return [p for p in processes.everything() if any(word.startswith(token) for word in p.environment)]

    def ours(self, run_id: str, verb: str) -> list[Process]:
        """Our own processes on the host for a run: verb is run (the agent) or keep (the keeper)."""
        folder = str(self.run_dir(run_id))
        return [p for p in processes.everything() if verb in p.argv and folder in p.argv]

    def leave_behind(self, run_id: str) -> subprocess.Popen[bytes]:
        """A process that a finished run left: it carries the run's token, and nobody waits for it any more."""
        env = {
            **os.environ,
            "DFLASH_RUN": f"{run_id}:1",
            "DFLASH_ATTEMPT_DIR": str(self.run_dir(run_id) / "attempts/1"),
        }
        return subprocess.Popen(["sleep", "600"], env=env, start_new_session=True)

    # ---- waiting

    def wait(self, what: str, condition: Callable[[], bool], within_s: float = 90.0) -> None:
        def holds() -> bool:
            try:
                return condition()
            except (httpx.HTTPError, OSError, ValueError, KeyError):
                return False  # the daemon is away for the moment

        assert wait_until(holds, within_s), f"within {within_s:.0f} s it was not so: {what}\n{self.told()}"

    def wait_step(self, run_id: str, step: int, attempt: int = 1) -> None:
        def reached() -> bool:
            run = self.run(run_id)
            return (run["attempt"] or 0) >= attempt and (run["step"] or 0) >= step and run["verdict"] == "running"

        self.wait(f"step {step} of attempt {attempt}", reached)

    def wait_final(self, run_id: str, within_s: float = 120.0) -> dict[str, Any]:
        self.wait("the run is final", lambda: bool(self.run(run_id)["final"]), within_s)
        return self.run(run_id)

    def wait_verdict(self, run_id: str, verdict: str, cause: str | None = None, within_s: float = 60.0) -> None:
        def said() -> bool:
            return any(v == verdict and cause in (None, c) and not s for v, c, s in self.verdicts(run_id))

        self.wait(f"verdict {verdict} ({cause})", said, within_s)

    def told(self) -> str:
        """What happened, for a failing test."""
        lines = []
        try:
            for run in self.get("/runs")["runs"]:
                lines.append(f"run {run['id']}: {run['verdict']} {run['cause']}: {run['sentence']}")
                for record in self.records(run["id"])[-400:]:
                    if record["kind"] not in ("observation", "heartbeat"):
                        lines.append("  " + json.dumps(_brief(record))[:400])
        except (httpx.HTTPError, OSError, ValueError) as error:
            lines.append(f"the daemon cannot be asked: {error}")
        log = self.state / "daemon.log"
        if log.exists():
            lines += ["daemon.log:", *log.read_text(errors="replace").splitlines()[-40:]]
        for path in sorted((self.workspace / ".dflash" / "runs").glob("*/attempts/*/train.log")):
            lines += [f"{path}:", *path.read_text(errors="replace").splitlines()[-15:]]
        for path in sorted(self.home.parent.glob("**/agent.err")):
            lines += [f"{path}:", *path.read_text(errors="replace").splitlines()[-20:]]
        return "\n".join(lines)

    def close(self) -> None:
        """End what lives as a user would, and the daemon."""
        try:
            for run in self.get("/runs")["runs"]:
                if not run["final"] and run["kind"] != "adopted":
                    self.cli("stop", run["id"], "--yes")
                    self.wait(f"{run['id']} stopped", lambda run=run: bool(self.run(run["id"])["final"]), 40.0)
        except (httpx.HTTPError, OSError):
            pass  # no daemon any more: the laboratory looks for what is left
        finally:
            self.cli("daemon", "stop")
            self.web.close()


def _brief(record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value for key, value in record.items() if key not in ("v", "run", "row", "t_s", "findings", "evidence")
    }
