"""From the options of ``start`` to the request that the daemon gets; every user's mistake is found here."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dflash_supervise.cli import exits
from dflash_supervise.cli.errors import CliError
from dflash_supervise.config import toml_text
from dflash_supervise.config.convert import shown

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
    if options.command and not options.command[0]:
        raise _usage("the command after -- begins with an empty word", "name the program to start")
    check_name(options.name)
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


def check_name(name: str | None) -> None:
    if name is not None and not _NAME.fullmatch(name):
        raise _usage(
            f"--name {name!r} is no name of a run",
            "use at most 40 of a-z, 0-9, _ and -, beginning with a letter or digit",
        )


def gpus(text: str | None) -> str | list[str] | None:
    """``all``, ``none``, or a list of indices or UUIDs."""
    if text is None or text in ("all", "none"):
        return text
    found = [part.strip() for part in text.split(",") if part.strip()]
    bad = [part for part in found if not (part.isdigit() or part.startswith(("GPU-", "MIG-")))]
    if bad or not found:
        raise _usage(f"--gpus {text!r} names no GPUs", "use all, none, or a list such as 0,1 or GPU-uuid,GPU-uuid")
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
    except OSError as error:
        raise _usage(f"--train {path}: {error.strerror}", "name a readable TOML file on this machine") from error
    except UnicodeDecodeError as error:
        raise _usage(f"--train {path} is no UTF-8 text", "name a readable TOML file on this machine") from error
    try:
        document = toml_text.parse(text)
    except ValueError as error:
        raise _usage(f"--train {path} {error}", "correct the file") from error
    try:
        json.dumps(document, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _usage(
            f"--train {path}: a date, a time, inf or nan is no value of the trainer's", "correct the file"
        ) from error
    if len(text.encode()) > _TRAIN_FILE_BYTES:
        raise _usage(f"--train {path} is larger than {_TRAIN_FILE_BYTES} bytes", "keep data out of it")
    return {"name": file.name, "text": text}


def check_settings(given: Sequence[str]) -> Sequence[str]:
    for text in given:
        if not _SETTING.fullmatch(text):
            raise _usage(
                f"--set {text!r} is no setting", "use KEY=VALUE with a dotted key, such as --set optim.lr=0.001"
            )
    return given


def described(request: Mapping[str, Any]) -> list[str]:
    """What would be started and with what, a line each, values as TOML; a value of the environment is never shown."""
    what = shlex.join(request["command"]) if request.get("command") else "the bundled DFlash trainer"
    lines = [f"would start on {request['target']}: {what}"]
    for key, value in request.items():
        if key == "env":
            lines.append(f"  env: {', '.join(value)} (the values are not shown)")
        elif key == "policy":
            lines += [f"  policy: {name} = {shown(item)}" for name, item in value.items()]
        elif key == "train":
            lines.append(f"  train: {value['name']}")
        elif key == "set":
            lines += [f"  set: {_as_toml(text)}" for text in value]
        elif key not in ("target", "command"):
            lines.append(f"  {key}: {', '.join(value) if isinstance(value, list) else shown(value)}")
    return lines


def _as_toml(setting: str) -> str:
    """``KEY=VALUE`` as the trainer reads it: a value that is no TOML is a string."""
    key, _, value = setting.partition("=")
    try:
        toml_text.parse(f"v = {value}")
    except ValueError:
        value = json.dumps(value.strip())
    return f"{key} = {value.strip()}"


def current(options: StartOptions, settings: Settings) -> dict[str, Any]:
    return build(options, settings, os.environ)


def _usage(message: str, fix: str) -> CliError:
    return CliError(message, fix=fix, exit_code=exits.USAGE, code="usage")
