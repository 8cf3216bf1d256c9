"""From the options of ``start`` to the request that the daemon gets; every user's mistake is found here."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import exits
from dflash_supervise.cli.errors import CliError

if TYPE_CHECKING:
    from dflash_supervise.config import Settings

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SETTING = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*=.*", re.DOTALL)
# A command line is read by every user of this machine (/proc/PID/cmdline) and kept in the shell's history.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|CREDENTIAL|PRIVATE", re.IGNORECASE)
_TRAIN_FILE_BYTES = 48 * 1024  # a request's body may have 64 kB


@dataclass(frozen=True)
class StartOptions:
    """What was typed after ``start``."""

    target: str
    command: tuple[str, ...] = ()
    name: str | None = None
    gpus: str | None = None
    env: tuple[str, ...] = ()
    train: str | None = None
    set: tuple[str, ...] = ()
    python: str | None = None
    policy: str | None = None
    resume: str | None = None
    replace: bool = False
    no_tmux: bool = False
    detach: bool = False


def build(options: StartOptions, settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """The body of ``POST /runs``.

    Raises:
        CliError: a mistake in an option (exit 2).
    """
    if options.command and (options.train or options.set):
        raise _usage(
            "--train and --set are for the bundled trainer, and a command was given after --",
            "leave one of them out",
        )
    if options.name is not None and not _NAME.fullmatch(options.name):
        raise _usage(
            f"--name {options.name!r}", "use at most 40 of a-z, 0-9, _ and -, beginning with a letter or digit"
        )
    request: dict[str, Any] = {
        "target": options.target,
        "command": list(options.command) or None,
        "name": options.name,
        "gpus": gpus(options.gpus),
        "env": environment(options.env, environ) or None,
        "python": options.python or settings.start.python or None,
        "policy": policy(options.policy, settings) or None,
        "train": train(options.train),
        "set": list(check_settings(options.set)) or None,
        "resume": options.resume,
        "replace": options.replace or None,
        "no_tmux": (options.no_tmux or settings.start.no_tmux) or None,
        "detach": options.detach or None,
    }
    return {key: value for key, value in request.items() if value is not None}


def gpus(text: str | None) -> str | list[str] | None:
    """``all``, ``none``, or a list of indices or UUIDs."""
    if text is None or text in ("all", "none"):
        return text
    found = [part.strip() for part in text.split(",") if part.strip()]
    bad = [part for part in found if not (part.isdigit() or part.startswith(("GPU-", "MIG-")))]
    if bad or not found:
        raise _usage(f"--gpus {text!r}", "use all, none, or a list such as 0,1 or GPU-uuid,GPU-uuid")
    return found


def environment(given: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """``NAME`` takes the value from this environment, ``NAME=VALUE`` says it; secrets only the first way."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise _usage(f"--env {name!r} is no variable", "use NAME, or NAME=VALUE")
        if not equals:
            if name not in environ:
                raise _usage(f"--env {name}: it is not set here", f"export {name}=..., or say --env {name}=VALUE")
            value = environ[name]
        elif _SECRET.search(name):
            raise _usage(
                f"--env {name}=... would show a secret on the command line",
                f"export it, then say --env {name}: the value is taken from this environment",
            )
        found[name] = value
    return found


def policy(preset: str | None, settings: Settings) -> dict[str, Any]:
    """What the configuration sets of the policy, with the preset of the command line above it."""
    return {**settings.policy, **({"preset": preset} if preset else {})}


def train(path: str | None) -> dict[str, str] | None:
    """The trainer's configuration as text. It is checked to be TOML here; its keys are the trainer's to check."""
    if path is None:
        return None
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _usage(f"--train {path}: {error}", "name a readable TOML file on this machine") from error
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _usage(f"--train {path} is not TOML: {error}", "correct the file") from error
    if len(text.encode()) > _TRAIN_FILE_BYTES:
        raise _usage(f"--train {path} is larger than {_TRAIN_FILE_BYTES} bytes", "keep data out of it")
    return {"name": file.name, "text": text}


def check_settings(given: Sequence[str]) -> Sequence[str]:
    for text in given:
        if not _SETTING.fullmatch(text):
            raise _usage(f"--set {text!r}", "use KEY=VALUE with a dotted key, such as --set optim.lr=0.001")
    return given


def current(options: StartOptions, settings: Settings) -> dict[str, Any]:
    return build(options, settings, os.environ)


def _usage(message: str, fix: str) -> CliError:
    return CliError(message, fix=fix, exit_code=exits.USAGE, code="usage")
