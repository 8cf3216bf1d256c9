"""A start, an adoption or a check as it was asked for, checked; and the spec and launch context made of a start."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_supervise import wire
from dflash_supervise.config import ConfigError, convert, toml_text
from dflash_supervise.config.target import HostTarget, parse_target
from dflash_supervise.core.policy import Policy, out_of_range
from dflash_supervise.daemon import fields, names
from dflash_supervise.daemon.fields import bad

Doc = dict[str, Any]

_WHAT = ("target", "command", "name", "gpus", "env", "python", "policy", "train", "train_file", "set", "resume")
_HOW = ("detach", "no_tmux", "replace", "options")
_ADOPT = ("target", "tmux", "pid", "log", "name", "options")
_MOST_PID = 2**31 - 1
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
    fields.only(request, (*_WHAT, *_HOW))
    target = target_of(request)
    command = fields.words(request, "command")
    train = fields.table(request, "train")
    settings = (*_flat_train(train), *fields.words(request, "set"))
    train_file = fields.text(request, "train_file")
    if command and (settings or train_file):
        raise bad("train", "is for the bundled trainer, and a command is given")
    if command and not command[0]:
        raise bad("command", "begins with an empty program")
    fields.flag(request, "detach")  # the client's own; it is sent along
    return StartRequest(
        target=target,
        name=_name(request, target),
        named=request.get("name") is not None,
        command=command,
        gpus=fields.gpus(request, "gpus"),
        python=fields.text(request, "python"),
        policy=policy_of(fields.table(request, "policy") or {}, configured, "foreign" if command else "bundled"),
        train_settings=settings,
        train_file=train_file,
        no_tmux=fields.flag(request, "no_tmux"),
        replace=fields.flag(request, "replace"),
        options=fields.table(request, "options"),
        env=fields.environment(request, "env"),
        resume=fields.text(request, "resume"),
    )


@dataclass(frozen=True)
class AdoptRequest:
    """What somebody started, and where; with nothing named, the runs that lie there are meant."""

    target: HostTarget
    name: str
    tmux: str | None
    pid: int | None
    log: str | None
    options: Mapping[str, Any] | None

    @property
    def takes_over(self) -> bool:
        return self.tmux is None and self.pid is None and self.log is None


def parse_adopt(request: Mapping[str, Any]) -> AdoptRequest:
    """A body of ``POST /adopt``.

    Raises:
        Refused: with exit code 2, naming the key.
    """
    fields.only(request, _ADOPT)
    target = target_of(request)
    wanted = AdoptRequest(
        target=target,
        name=_name(request, target),
        tmux=fields.text(request, "tmux"),
        pid=fields.whole(request, "pid", 2, _MOST_PID),
        log=fields.text(request, "log"),
        options=fields.table(request, "options"),
    )
    if wanted.tmux is not None and wanted.pid is not None:
        raise bad("tmux", "and pid exclude each other")
    if wanted.log is not None and not wanted.log.startswith("/"):
        raise bad("log", "must be an absolute path on the host")
    if wanted.takes_over and request.get("name") is not None:
        raise bad("name", "goes with tmux, pid or log: a run that is taken over keeps its own")
    return wanted


def parse_doctor(request: Mapping[str, Any]) -> HostTarget | None:
    """A body of ``POST /doctor``; None: this machine.

    Raises:
        Refused: with exit code 2, naming the key.
    """
    fields.only(request, ("target",))
    return None if request.get("target") is None else target_of(request)


def policy_of(given: Mapping[str, Any], configured: Mapping[str, object], kind: str) -> dict[str, object]:
    """All fields of the policy: the kind's preset, below the configuration, below the request.

    Raises:
        Refused: an unknown field, or a value of the wrong type or out of its range.
    """
    known = convert.kinds(Policy)
    values: dict[str, object] = {"preset": _DEFAULT_PRESET[kind], **configured}
    try:
        for key, value in given.items():
            if key not in known:
                raise convert.unknown(key, tuple(known), what="key", where="request", section="policy")
            values[key] = converted = convert.value(value, known[key], key=f"policy.{key}", where="request")
            wrong = out_of_range(key, converted)
            if wrong is not None:
                raise ConfigError(f"is {convert.shown(value)}; {wrong}", where="request", key=f"policy.{key}")
        policy = Policy(**values)  # type: ignore[arg-type]  # each value was converted by its field's type
    except ValueError as error:
        raise fields.refused("bad_policy", str(error)) from error
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
    tmux: bool = False,
) -> Doc:
    """The first generation of a run's spec. ``tmux``: a session on the host shows its log."""
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
        "tmux": tmux,
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
    """Raises Refused: it is absent or no target."""
    text = fields.text(request, "target")
    if text is None:
        raise bad("target", "is missing")
    try:
        return parse_target(text)
    except ValueError as error:
        raise fields.refused("bad_target", str(error)) from error


def _name(request: Mapping[str, Any], target: HostTarget) -> str:
    try:
        return names.run_name(fields.text(request, "name"), target.workspace)
    except ValueError as error:
        raise fields.refused("bad_name", str(error)) from error


def _flat_train(train: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The trainer's TOML as ``--set`` words: it needs no file of ours on the host, and argv shows what was asked."""
    if train is None:
        return ()
    text = train.get("text")
    if not isinstance(text, str):
        raise bad("train", 'must be {"name": ..., "text": TOML}')
    try:
        document = toml_text.parse(text)
    except ValueError as error:
        raise bad("train", str(error)) from error
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
