"""spec.json: what is wanted of a run, changed by compare-and-swap only.

Two copies are written: one in the workspace, where it survives this host and a person can read it, and one in the
runtime folder, so that a goal reaches the agent also while the workspace does not answer. The newer one counts.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple, Union

from dflash_supervise.agent.files import check_folder, make_folder, read_json, write_json
from dflash_supervise.agent.runtime import Runtime, boot_id, boottime_s, take_lock
from dflash_supervise.core.facts import Goal
from dflash_supervise.core.policy import Policy
from dflash_supervise.wire import from_json

SCHEMA = 1
KINDS = ("bundled", "foreign", "adopted")
WANTS = ("run", "stop", "hold")
RUN_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-")


class SpecError(ValueError):
    """A spec that is not one; the text names the key."""


class SpecConflict(Exception):
    """Somebody else changed the spec first, or it belongs to another owner."""

    def __init__(self, message: str, generation: int, owner: str) -> None:
        super().__init__(message)
        self.generation = generation
        self.owner = owner


@dataclass(frozen=True)
class Adopt:
    """What an adopted run consists of. ``log`` is an absolute path."""

    tmux: Optional[str] = None
    pid: Optional[int] = None
    log: Optional[str] = None


@dataclass(frozen=True)
class Spec:
    """What is wanted of one run."""

    run_id: str
    name: str
    workspace: str
    generation: int
    owner: str
    want: str
    hold_for_s: Optional[float]
    end_attempt: Optional[int]
    kind: str
    gpus: Union[str, Tuple[str, ...]]  # "all", "none", or UUIDs
    policy: Policy
    highest_attempt: int
    trainer_hash: Optional[str]
    output_dir: str
    adopt: Optional[Adopt]
    accepted_s: float  # boot-time seconds at which this generation was accepted
    accepted_boot_id: str

    def goal(self, boot: str, agent_started_s: float) -> Goal:
        """The goal on this boot's clock. A hold that a reboot cut begins anew: its clock is gone."""
        since = self.accepted_s if self.accepted_boot_id == boot else agent_started_s
        until = since + self.hold_for_s if self.want == "hold" and self.hold_for_s is not None else None
        return Goal(self.want, self.generation, until, self.end_attempt)


def parse_spec(data: Any) -> Spec:
    """A decoded spec.json.

    Raises:
        SpecError: the text names the key and what is wrong with it.
    """
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise SpecError(f"spec.schema: expected {SCHEMA}")
    goal = _object(data, "goal")
    kind = _choice(data, "kind", KINDS)
    adopt = data.get("adopt")
    try:
        policy = from_json(Policy, data.get("policy") or {})
        adopted = from_json(Adopt, adopt) if adopt is not None else None
    except ValueError as error:
        raise SpecError(f"spec.{error}") from None
    if kind == "adopted" and adopted is None:
        raise SpecError("spec.adopt: an adopted run needs tmux, pid or log")
    accepted = data.get("accepted") or {}
    return Spec(
        run_id=check_run_id(data.get("run_id")),
        name=_text(data, "name"),
        workspace=_text(data, "workspace"),
        generation=_whole(data, "generation"),
        owner=_text(data, "owner"),
        want=_choice(goal, "want", WANTS),
        hold_for_s=_seconds(goal.get("hold_for_s")),
        end_attempt=goal.get("end_attempt") if goal.get("end_attempt") is None else _whole(goal, "end_attempt"),
        kind=kind,
        gpus=_gpus(data.get("gpus", "all")),
        policy=policy,
        highest_attempt=_whole(data, "highest_attempt") if data.get("highest_attempt") is not None else 0,
        trainer_hash=data.get("trainer_hash"),
        output_dir=str(data.get("output_dir") or ""),
        adopt=adopted,
        accepted_s=float(accepted.get("boottime_s", 0.0)),
        accepted_boot_id=str(accepted.get("boot_id", "")),
    )


def check_run_id(value: Any) -> str:
    """The run id, which becomes a file name.

    Raises:
        SpecError: it is empty, too long or holds other characters than a-z, 0-9, _ and -.
    """
    if isinstance(value, str) and 0 < len(value) <= 120 and set(value) <= RUN_ID_CHARACTERS and value[0] != "-":
        return value
    raise SpecError(f"spec.run_id: {value!r} is no run id ([a-z0-9_-])")


def run_dir(workspace: str, run_id: str) -> str:
    """``<workspace>/.dflash/runs/<run_id>``."""
    return os.path.join(workspace, ".dflash", "runs", check_run_id(run_id))


def check_workspace(workspace: str, run_id: Optional[str] = None) -> None:
    """Refuse a .dflash that others could have prepared. What is not there yet is not judged.

    Raises:
        UnsafeFolder: with path, reason and fix.
    """
    folders = [os.path.join(workspace, ".dflash"), os.path.join(workspace, ".dflash", "runs")]
    if run_id is not None:
        folders.append(run_dir(workspace, run_id))
    for folder in folders:
        try:
            check_folder(folder, private=False)
        except FileNotFoundError:
            return


def apply_spec(
    runtime: Runtime,
    workspace: str,
    data: Dict[str, Any],
    based_on: int,
    *,
    take_over: bool = False,
    context: Optional[Dict[str, Any]] = None,
) -> Spec:
    """Put a spec in force if nobody changed it meanwhile; the same spec again changes nothing.

    Args:
        based_on: the generation that the caller last saw; 0 for a new run.
        take_over: a person moves the run to another owner.
        context: argv, cwd, env and umask of the trainer; frozen before the spec that needs it is in force.

    Raises:
        SpecError, SpecConflict, UnsafeFolder, OSError
    """
    spec = parse_spec(data)
    if os.path.realpath(spec.workspace) != os.path.realpath(workspace):
        raise SpecError(f"spec.workspace: {spec.workspace!r} is not {workspace!r}")
    folder = run_dir(workspace, spec.run_id)
    runtime.run(spec.run_id)
    lock = take_lock(runtime.in_run(spec.run_id, "spec.lock"), {"pid": os.getpid()}, wait_s=5.0)
    if lock is None:
        raise SpecConflict("another change of this run is under way", 0, "")
    try:
        accepted = {"boottime_s": round(boottime_s(), 3), "boot_id": boot_id(runtime.proc_root)}
        local = read_json(runtime.in_run(spec.run_id, "spec.json")) if spec.want == "stop" else None
        current = local or newest(runtime, workspace, spec.run_id)
        if current is not None and _same(current, data):
            return parse_spec(current)
        _check_order(current, spec, based_on, take_over)
        if context is not None:
            write_json(runtime.context_path(spec.run_id), context)
        data = dict(data, accepted=accepted)
        if local is not None:
            # A stop reaches the agent even while the workspace does not answer.
            write_json(runtime.in_run(spec.run_id, "spec.json"), data)
        check_workspace(workspace, spec.run_id)
        _make_run_dir(workspace, folder)
        # The workspace first: a run that only this host knows must not be acknowledged.
        write_json(os.path.join(folder, "spec.json"), data)
        write_json(runtime.in_run(spec.run_id, "spec.json"), data)
        if spec.want == "run":
            for name in ("final.json", "STOP"):
                _unlink(os.path.join(folder, name))
        return parse_spec(data)
    finally:
        lock.release()


def newest(runtime: Runtime, workspace: str, run_id: str) -> Optional[Dict[str, Any]]:
    """The spec in force as plain data, or None for a run that is not there."""
    copies = [
        read_json(os.path.join(run_dir(workspace, run_id), "spec.json")),
        read_json(runtime.in_run(run_id, "spec.json")),
    ]
    good = [copy for copy in copies if copy is not None and _parses(copy)]
    return max(good, key=lambda copy: int(copy["generation"])) if good else None


def _parses(data: Dict[str, Any]) -> bool:
    try:
        parse_spec(data)
    except SpecError:
        return False
    return True


def _same(current: Dict[str, Any], wanted: Dict[str, Any]) -> bool:
    def bare(data: Dict[str, Any]) -> str:
        return json.dumps({key: value for key, value in data.items() if key != "accepted"}, sort_keys=True)

    return bare(current) == bare(wanted)


def _check_order(current: Optional[Dict[str, Any]], spec: Spec, based_on: int, take_over: bool) -> None:
    generation = int(current["generation"]) if current else 0
    owner = str(current["owner"]) if current else ""
    if based_on != generation:
        text = "generation {} of {} is in force, and this change was made on generation {}"
        raise SpecConflict(text.format(generation, owner or "nobody", based_on), generation, owner)
    if spec.generation <= generation:
        text = "generation {} is in force, and {} is not newer"
        raise SpecConflict(text.format(generation, spec.generation), generation, owner)
    if current and spec.owner != owner and not take_over:
        raise SpecConflict(f"the run belongs to {owner}", generation, owner)


def _make_run_dir(workspace: str, folder: str) -> None:
    base = os.path.join(workspace, ".dflash")
    for path in (base, os.path.join(base, "runs")):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            check_folder(path, private=False)
    make_folder(folder)
    for name in ("records", "attempts"):
        make_folder(os.path.join(folder, name))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _object(data: Dict[str, Any], key: str) -> Dict[str, Any]:
    value = data.get(key)
    if not isinstance(value, dict):
        raise SpecError(f"spec.{key}: expected an object")
    return value


def _text(data: Dict[str, Any], key: str) -> str:
    value = data.get(key)
    if not isinstance(value, str) or not value:
        raise SpecError(f"spec.{key}: expected text, got {value!r}")
    return value


def _whole(data: Dict[str, Any], key: str) -> int:
    value = data.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SpecError(f"spec.{key}: expected a whole number, got {value!r}")
    return value


def _choice(data: Dict[str, Any], key: str, options: Tuple[str, ...]) -> str:
    value = data.get(key)
    if value not in options:
        raise SpecError("spec.{}: {!r} is not one of {}".format(key, value, ", ".join(options)))
    return str(value)


def _seconds(value: Any) -> Optional[float]:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise SpecError(f"spec.goal.hold_for_s: expected seconds, got {value!r}")
    return float(value)


def _gpus(value: Any) -> Union[str, Tuple[str, ...]]:
    if value in ("all", "none"):
        return str(value)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise SpecError(f"spec.gpus: {value!r} is not all, none or a list of UUIDs")
