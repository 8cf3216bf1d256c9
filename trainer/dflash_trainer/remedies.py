"""What whoever restarts us asks this attempt to do differently: DFLASH_REMEDIES=a,b in the environment."""

from __future__ import annotations

from dataclasses import replace

from dflash_trainer import log
from dflash_trainer.config import Config

PROCESS_WORKERS = "process_workers"  # after a race between threads: no two workers in one process


def applied(config: Config, asked: str) -> Config:
    """The settings of this attempt. Words that are not for the trainer are passed over."""
    if PROCESS_WORKERS not in (word.strip() for word in asked.split(",")) or config.layout.workers == "processes":
        return config
    log.info("remedy", f"{PROCESS_WORKERS}: workers=processes instead of {config.layout.workers}")
    # a mitigation is about threads; without them there is nothing to mitigate
    return replace(config, layout=replace(config.layout, workers="processes", race_mitigation="full"))
