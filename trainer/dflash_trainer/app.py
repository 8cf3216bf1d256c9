"""From a configuration to an exit code; the first module that costs torch's import."""

from __future__ import annotations

from dflash_trainer import exits, faults, log
from dflash_trainer.attempt import Attempt
from dflash_trainer.config import SEED_MITIGATIONS, Config
from dflash_trainer.finish import finish
from dflash_trainer.progress import Reporter
from dflash_trainer.seedmode import train_apart
from dflash_trainer.session import open_session
from dflash_trainer.signals import StopFlag
from dflash_trainer.train import train


def run(
    config: Config, attempt: Attempt, reporter: Reporter, stop: StopFlag, injected: tuple[faults.Fault, ...]
) -> int:
    """Train, export, mark completion.

    Raises:
        TrainerError: an end with a code of its own. Exception: whatever a worker raised, already printed.
    """
    stop.check()
    session = open_session(config, attempt, reporter, stop, injected)
    if config.layout.race_mitigation in SEED_MITIGATIONS:
        train_apart(session)
    else:
        train(session)
    finish(session)
    log.flush()
    return exits.OK
