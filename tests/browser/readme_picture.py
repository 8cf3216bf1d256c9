"""The README's picture, from a real hang: ``python -m tests.browser.readme_picture``.

Starts a daemon of its own and the bundled trainer on this machine, lets every worker wait on a lock, and takes the
run's page once the hang is confirmed. The policy is careful, so the hang stays to be looked at.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[2]
CLI = str(Path(sys.executable).parent / "dflash-supervise")
EXAMPLES = ROOT / "templates" / "examples"
PATIENCE_S = 180.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="picture-") as folder:
        home = Path(folder)
        for name in ("workspace", "run", "state"):
            (home / name).mkdir(mode=0o700)
        os.environ.update(
            DFLASH_SUPERVISE_STATE_DIR=str(home / "state"),
            DFLASH_SUPERVISE_DAEMON_PORT="0",
            DFLASH_SUPERVISE_CONFIG=str(EXAMPLES / "demo.toml"),
            XDG_RUNTIME_DIR=str(home / "run"),
            TMUX_TMPDIR=str(home / "run"),
            DFLASH_FAULT="hang-lock@60",
        )
        try:
            _picture(home)
        finally:
            _run("stop", "drafter", "--yes")
            _run("daemon", "stop")
            subprocess.run(["tmux", "-L", f"dflash-{os.getuid()}", "kill-server"], check=False, capture_output=True)


def _picture(home: Path) -> None:
    limits = ("--config", str(EXAMPLES / "demo.toml"), "--policy", "careful", "--python", sys.executable)
    words = ("--name", "drafter", "--env", "DFLASH_FAULT", "--set", "limits.stall_s=0", "--no-tmux", "--detach")
    started = _run("start", f"local:{home / 'workspace'}", *limits, *words)
    if started.returncode != 0:
        raise SystemExit(started.stderr)
    run_id = started.stdout.split()[-1]
    url = (home / "state" / "daemon.json").read_text().partition('"url": "')[2].partition('"')[0]
    token = (home / "state" / "token").read_text().strip()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        run = httpx.get(f"{url}/api/v1/runs/{run_id}", headers={"Authorization": f"Bearer {token}"}).json()
        if run["verdict"] == "hang" and not run["suspected"]:
            break
        if time.monotonic() > deadline:
            raise SystemExit(f"no hang within {PATIENCE_S:.0f} s: {run['verdict']}, {run['sentence']}")
        time.sleep(0.5)
    shot = [sys.executable, "-m", "tests.browser.screenshot", url, token, "--path", f"/runs/{run_id}"]
    out = ["--height", "900", "--out", str(ROOT / "docs" / "dashboard.png")]
    subprocess.run([*shot, *out], check=True, cwd=ROOT)


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CLI, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    main()
