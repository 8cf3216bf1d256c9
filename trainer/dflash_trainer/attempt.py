"""Who we are and where we write: the environment that the keeper sets, or plain folders without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dflash_trainer.exits import ConfigError

_TOKEN = re.compile(r"(?P<run>[a-z0-9_-]+):(?P<attempt>[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a run.

    run: the run's id, "local" when nothing started us under a supervisor.
    number: the attempt, 1 for the first; it fences the output folder.
    folder: progress.json, done.json and stacks.txt of this attempt.
    output: checkpoints/, export/, cache/ and metrics.jsonl of the run.
    """

    run: str
    number: int
    folder: Path
    output: Path

    @property
    def token(self) -> str:
        return f"{self.run}:{self.number}"

    @property
    def checkpoints(self) -> Path:
        return self.output / "checkpoints"


def from_environment(env: Mapping[str, str], *, output: str | None = None) -> Attempt:
    """Read DFLASH_RUN, DFLASH_OUTPUT_DIR and DFLASH_ATTEMPT_DIR; create the two folders.

    Raises:
        ConfigError: DFLASH_RUN is not `<run_id>:<attempt>`.
    """
    token = env.get("DFLASH_RUN", "local:1")
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ConfigError(f"DFLASH_RUN={token!r}: want <run_id>:<attempt>, such as demo-2611300501-1f2e:1")
    out = Path(output or env.get("DFLASH_OUTPUT_DIR") or "runs/local").absolute()
    folder = Path(env.get("DFLASH_ATTEMPT_DIR") or out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    return Attempt(match["run"], int(match["attempt"]), folder, out)
