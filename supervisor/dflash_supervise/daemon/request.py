"""A start as it was asked for, checked; and the spec and launch context made of it."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_supervise import wire
from dflash_supervise.config import ConfigError, convert
from dflash_supervise.config.target import HostTarget, parse_target
from dflash_supervise.core.policy import Policy
from dflash_supervise.daemon import names
from dflash_supervise.web.control import Refused

Doc = dict[str, Any]

_WHAT = ("target", "command", "name", "gpus", "env", "python", "policy", "train", "train_file", "set", "resume")
_HOW = ("detach", "no_tmux", "replace", "options")
_KEYS = frozenset((*_WHAT, *_HOW))
_DEFAULT_PRESET = {"bundled": "auto", "foreign": "careful", "adopted": "observe"}


@dataclass(frozen=True)
class StartRequest:
    """What is to be started where. ``env`` may hold secrets and is in no repr."""

    target: HostTarget
    name: str
    named: bool  # the user chose the name
    command: tuple[str, ...]
    gpus: str | tuple[str, ...]
    python: str | None
    policy: Mapping[str, object]
    train_settings: tuple[str, ...]
    train_file: str | None
    no_tmux: bool
    replace: bool
    options: Mapping[str, Any] | None
    env: Mapping[str, str] = field(repr=False, default_factory=dict)
    resume: str | None = None

    @property
    def bundled(self) -> bool:
        return not self.command

    @property
    def kind(self) -> str:
        return "bundled" if self.bundled else "foreign"


def parse_start(request: Mapping[str, Any], configured: Mapping[str, object]) -> StartRequest:
    """A body of ``POST /runs``.

    Raises:
        Refused: with exit code 2, naming the key.
    """
    _known_keys(request, _KEYS)
    target = target_of(request)
    command = _strings(request, "command")
    train = request.get("train")
    settings = (*_flat_train(train), *_strings(request, "set"))
    if command and (settings or request.get("train_file")):
        raise bad("train", "is for the bundled trainer, and a command is given")
    if any("\0" in word for word in command) or (command and not command[0]):
        raise bad("command", "holds an empty program or a NUL byte")
    return StartRequest(
        target=target,
        name=_name(request, target),
        named=request.get("name") is not None,
        command=command,
        gpus=_gpus(request.get("gpus", "all")),
        python=_text(request, "python"),
        policy=policy_of(request.get("policy") or {}, configured, "foreign" if command else "bundled"),
        train_settings=settings,
        train_file=_text(request, "train_file"),
        no_tmux=bool(request.get("no_tmux")),
        replace=bool(request.get("replace")),
        options=request.get("options"),
        env=_env(request.get("env") or {}),
        resume=_text(request, "resume"),
    )


def policy_of(given: Mapping[str, Any], configured: Mapping[str, object], kind: str) -> dict[str, object]:
    """All fields of the policy: the kind's preset, below the configuration, below the request.

    Raises:
        Refused: an unknown field or a wrong value.
    """
    known = convert.kinds(Policy)
    values: dict[str, object] = {"preset": _DEFAULT_PRESET[kind], **configured}
    try:
        for key, value in given.items():
            if key not in known:
                raise convert.unknown(key, tuple(known), what="key", where="request", section="policy")
            values[key] = convert.value(value, known[key], key=f"policy.{key}", where="request")
        policy = Policy(**values)  # type: ignore[arg-type]  # each value was converted by its field's type
    except ConfigError as error:
        raise Refused("bad_policy", error.message, exit_code=2, http_status=400) from error
    except ValueError as error:
        raise Refused("bad_policy", str(error), exit_code=2, http_status=400) from error
    return {item.name: wire.to_json(getattr(policy, item.name)) for item in dataclasses.fields(Policy)}


def make_spec(
    *,
    run_id: str,
    name: str,
    workspace: str,
    owner: str,
    kind: str,
    gpus: str | tuple[str, ...],
    policy: Mapping[str, object],
    trainer_hash: str | None = None,
    adopt: Mapping[str, Any] | None = None,
) -> Doc:
    """The first generation of a run's spec."""
    return {
        "schema": 1,
        "run_id": run_id,
        "name": name,
        "workspace": workspace,
        "generation": 1,
        "owner": owner,
        "goal": {"want": "run", "hold_for_s": None, "end_attempt": None},
        "kind": kind,
        "gpus": list(gpus) if isinstance(gpus, tuple) else gpus,
        "policy": dict(policy),
        "highest_attempt": 0,
        "trainer_hash": trainer_hash,
        "output_dir": f"{workspace}/runs/{run_id}",
        "adopt": dict(adopt) if adopt is not None else None,
    }


def launch_context(request: StartRequest, python: str, trainer_hash: str | None) -> Doc:
    """argv, cwd and environment of every attempt; it travels apart from the spec and stays on the host."""
    workspace, env = request.target.workspace, dict(request.env)
    if not request.bundled:
        return {"argv": list(request.command), "cwd": workspace, "env": env, "umask": None}
    assert trainer_hash is not None
    env["PYTHONPATH"] = f"{workspace}/.dflash/trainer/{trainer_hash}"
    argv = [python, "-m", "dflash_trainer", "train"]
    if request.train_file:
        argv += ["--train", request.train_file]
    for setting in request.train_settings:
        argv += ["--set", setting]
    if request.resume:
        argv += ["--resume", request.resume]
    return {"argv": argv, "cwd": workspace, "env": env, "umask": None}


def target_of(request: Mapping[str, Any]) -> HostTarget:
    try:
        return parse_target(str(request.get("target", "")))
    except ValueError as error:
        raise Refused("bad_target", str(error), exit_code=2, http_status=400) from error


def bad(key: str, what: str) -> Refused:
    return Refused("bad_request", f"{key} {what}", exit_code=2, http_status=400)


def _known_keys(request: Mapping[str, Any], known: frozenset[str]) -> None:
    for key in request:
        if key not in known:
            error = convert.unknown(key, tuple(sorted(known)), what="key", where="request")
            raise Refused("bad_request", error.message, exit_code=2, http_status=400)


def _name(request: Mapping[str, Any], target: HostTarget) -> str:
    try:
        return names.run_name(request.get("name"), target.workspace)
    except ValueError as error:
        raise Refused("bad_name", str(error), exit_code=2, http_status=400) from error


def _flat_train(train: Any) -> tuple[str, ...]:
    """The trainer's TOML as ``--set`` words: it needs no file of ours on the host, and argv shows what was asked."""
    if train is None:
        return ()
    try:
        document = tomllib.loads(train["text"])
    except (KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        raise bad("train", f"is not TOML: {error}") from error
    return tuple(_flatten(document, ""))


def _flatten(table: Mapping[str, Any], prefix: str) -> list[str]:
    found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flatten(value, f"{prefix}{key}.")
            continue
        try:
            # For what a configuration holds (text, numbers, booleans, lists) JSON is TOML.
            found.append(f"{prefix}{key}={json.dumps(value, ensure_ascii=False, allow_nan=False)}")
        except (TypeError, ValueError) as error:
            raise bad("train", f"{prefix}{key}: {error}") from error
    return found


def _strings(request: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = request.get(key) or ()
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise bad(key, "must be a list of strings")
    return tuple(value)


def _text(request: Mapping[str, Any], key: str) -> str | None:
    value = request.get(key)
    if value is not None and not isinstance(value, str):
        raise bad(key, "must be a string")
    return value


def _gpus(value: Any) -> str | tuple[str, ...]:
    if value in ("all", "none"):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str | int) for item in value):
        return tuple(str(item) for item in value)
    raise bad("gpus", 'must be "all", "none" or a list of indices or UUIDs')


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in (*value, *value.values())):
        raise bad("env", "must map names to text")
    return dict(value)
