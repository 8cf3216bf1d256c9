"""`python -m dflash_trainer [train] [--train FILE] [--set a.b=c ...] [--plan | --check]`.

Says that it lives (progress.json, phase loading) before it pays for importing torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from dflash_trainer import attempt, config_load, exits, faults, log, progress, remedies, signals
from dflash_trainer.config import MITIGATIONS, PRESETS, Config, phase_limits_s

DEFAULT_FILE = "train.toml"


def main(argv: Sequence[str] | None = None) -> None:
    """Run and leave the process with the code of the contract. Does not return."""
    options = _parser().parse_args(argv)
    try:
        code = _run(options)
    except exits.TrainerError as error:
        code = error.code
        log.error("exit", f"code={code} meaning={exits.MEANING[code]} reason={error}")
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
        log.error("exit", f"code={code} meaning={exits.MEANING[code]}")
    except Exception as error:  # noqa: BLE001  # the process's last line of defence: every end has its code
        code = exits.code_of(error)
        traceback.print_exc()
        log.error("exit", f"code={code} meaning={exits.MEANING[code]} reason={type(error).__name__}: {error}")
    log.flush()
    os._exit(code)  # worker threads may be anywhere; the state on disk is whole


def _run(options: argparse.Namespace) -> int:
    config = remedies.applied(_config(options), os.environ.get("DFLASH_REMEDIES", ""))
    if options.check:
        return exits.OK
    if options.plan:
        return _plan(config)
    me = attempt.from_environment(os.environ, output=options.output)
    injected = faults.of_attempt(faults.parse(os.environ.get("DFLASH_FAULT", "")), me.number)
    me.folder.mkdir(parents=True, exist_ok=True)
    stop, _ = signals.install(me.folder / "stacks.txt")  # before anybody can see that we live, and ask us to end
    reporter = progress.Reporter(me, phase_limits_s(config.limits))
    reporter.update(steps_total=config.steps)
    reporter.phase("loading")
    log.info("start", f"run={me.run} attempt={me.number} pid={os.getpid()} preset={config.preset} steps={config.steps}")
    faults.at_start(injected)
    os.environ.setdefault("OMP_NUM_THREADS", str(config.layout.torch_threads))
    from dflash_trainer import app

    return app.run(config, me, reporter, stop, injected)


def _config(options: argparse.Namespace) -> Config:
    file = Path(options.train) if options.train else None
    if file is None and Path(DEFAULT_FILE).is_file():
        file = Path(DEFAULT_FILE)
    settings = list(options.set)
    if options.race_mitigation:
        settings.append(f'layout.race_mitigation="{options.race_mitigation}"')
    return config_load.load(file, settings, preset=options.preset)


def _plan(config: Config) -> int:
    from dflash_trainer.devices import describe, resolve

    sys.stdout.write(f"# {describe(resolve(config))}\n")
    for key, value in config_load.flat(config).items():
        sys.stdout.write(f"{key} = {_toml(value)}\n")
    return exits.OK


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return repr(value)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dflash_trainer", description="Train a DFlash drafter.")
    parser.add_argument("verb", nargs="?", choices=["train"], default="train")
    parser.add_argument("--train", metavar="FILE", help=f"settings in TOML (default: ./{DEFAULT_FILE} if there)")
    parser.add_argument("--set", metavar="a.b=c", action="append", default=[], help="change one setting")
    parser.add_argument("--preset", choices=sorted(PRESETS), help="where the defaults come from")
    parser.add_argument("--output", metavar="DIR", help="default: DFLASH_OUTPUT_DIR, else runs/local")
    parser.add_argument("--race-mitigation", choices=MITIGATIONS, help="all but full: see the README")
    parser.add_argument("--plan", action="store_true", help="print settings and layout, start nothing")
    parser.add_argument("--check", action="store_true", help="read the settings, start nothing; 64 when they are wrong")
    return parser


class _Parser(argparse.ArgumentParser):
    """A wrong option is a wrong configuration: code 64, not argparse's 2."""

    def error(self, message: str) -> None:  # type: ignore[override]  # argparse says NoReturn; exit() is
        self.print_usage(sys.stderr)
        self.exit(exits.CONFIG, f"{self.prog}: {message}\n")
