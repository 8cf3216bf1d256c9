"""spec.json on disk, changed by compare-and-swap only.

Two copies are written: one in the workspace, where it survives this host and a person can read it, and one in the
runtime folder, so that a goal reaches the agent also while the workspace does not answer. The newer one counts.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from dflash_supervise.agent.files import UnsafeFolder, check_folder, make_folder, read_json, write_json
from dflash_supervise.agent.runtime import Runtime, boot_id, boottime_s, take_lock
from dflash_supervise.agent.spec import Spec, SpecError, parse_spec, run_dir


class NoWorkspace(Exception):
    """The folder that the run lives in is not there."""


class NoContext(Exception):
    """What attempts are launched from is not on this host any more."""

    def __init__(self, attempt: int) -> None:
        super().__init__(
            f"the launch context of attempt {attempt} is gone from this host, so it could not be started again"
        )


class SpecConflict(Exception):
    """Somebody else changed the spec first, or it belongs to another owner."""

    def __init__(self, message: str, generation: int, owner: str) -> None:
        super().__init__(message)
        self.generation = generation
        self.owner = owner


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
        SpecError, SpecConflict, NoWorkspace, NoContext, UnsafeFolder, OSError: it is not in force.
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
        local = _good(runtime.in_run(spec.run_id, "spec.json")) if spec.want == "stop" else None
        current = local
        if local is None or int(local["generation"]) < based_on:  # a full runtime folder may have missed one
            current = newest(runtime, workspace, spec.run_id)
        if current is not None and _same(current, data):
            return parse_spec(current)
        _check_order(current, spec, based_on, take_over)
        if local is None and not os.path.isdir(workspace):
            raise NoWorkspace(f"{workspace} is not a folder")
        again = spec.want == "run" and spec.end_attempt is not None and spec.kind != "adopted"
        if again and context is None and not os.path.exists(runtime.context_path(spec.run_id)):
            raise NoContext(spec.end_attempt or 0)
        if context is not None:
            write_json(runtime.context_path(spec.run_id), context)
        data = dict(data, accepted=accepted)
        if local is not None:
            _write_stop(runtime, workspace, spec.run_id, data)
            return parse_spec(data)
        check_workspace(workspace, spec.run_id)
        _make_run_dir(workspace, folder)
        # The workspace first: a run that only this host knows must not be acknowledged.
        write_json(os.path.join(folder, "spec.json"), data)
        try:
            write_json(runtime.in_run(spec.run_id, "spec.json"), data)
        except OSError:
            if spec.want != "stop":
                raise
        if spec.want == "run" and spec.end_attempt is not None:
            for name in ("final.json", "STOP"):
                _unlink(os.path.join(folder, name))
            _unlink(runtime.in_run(spec.run_id, "final.json"))
        return parse_spec(data)
    finally:
        lock.release()


def newest(runtime: Runtime, workspace: str, run_id: str) -> Optional[Dict[str, Any]]:
    """The spec in force as plain data, or None for a run that is not there."""
    copies = [
        _good(os.path.join(run_dir(workspace, run_id), "spec.json")),
        _good(runtime.in_run(run_id, "spec.json")),
    ]
    good = [copy for copy in copies if copy is not None]
    return max(good, key=lambda copy: int(copy["generation"])) if good else None


def bring_home(runtime: Runtime, workspace: str, run_id: str) -> None:
    """Give the workspace the newest spec, where only this host holds it.

    Raises:
        OSError: the workspace does not take it.
    """
    lock = take_lock(runtime.in_run(run_id, "spec.lock"), {"pid": os.getpid()}, wait_s=1.0)
    if lock is None:
        return
    try:
        path = os.path.join(run_dir(workspace, run_id), "spec.json")
        wanted = newest(runtime, workspace, run_id)
        if wanted is not None and wanted != read_json(path):
            write_json(path, wanted)
    finally:
        lock.release()


def last_word(runtime: Runtime, workspace: str, run_id: str) -> Optional[Dict[str, Any]]:
    """final.json: what the run's agent said before it left; None when there is none for the spec in force."""
    wanted = newest(runtime, workspace, run_id)
    for folder in (run_dir(workspace, run_id), runtime.in_run(run_id, "")):
        final = read_json(os.path.join(folder, "final.json"))
        if final is not None and wanted is not None and final.get("generation") == wanted["generation"]:
            return final
    return None


def _write_stop(runtime: Runtime, workspace: str, run_id: str, data: Dict[str, Any]) -> None:
    """A stop reaches the agent even while one of its two places does not answer, is full or gone.

    It is in force once either has it; the agent brings it home when the workspace takes it.
    """
    refused: List[Exception] = []
    try:
        write_json(runtime.in_run(run_id, "spec.json"), data)
    except OSError as error:
        refused.append(error)
    try:
        check_workspace(workspace, run_id)
        write_json(os.path.join(run_dir(workspace, run_id), "spec.json"), data)
    except (OSError, UnsafeFolder) as error:
        refused.append(error)
    if len(refused) == 2:
        raise refused[0]


def _good(path: str) -> Optional[Dict[str, Any]]:
    data = read_json(path)
    try:
        parse_spec(data)
    except ValueError:
        return None
    return data


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
