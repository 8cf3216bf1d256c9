"""Watch what somebody started by hand; or take over the runs of another supervisor."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon import names, request
from dflash_supervise.daemon.handover import REQUEST_S, list_runs
from dflash_supervise.daemon.launch import AGENT_S, PREFLIGHT_S, connect
from dflash_supervise.daemon.operations import Failed, Operation
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.daemon.seam import HostLink
from dflash_supervise.store import NoSuchRun

Doc = dict[str, Any]

_NO_PLACE = frozenset({"workspace_missing", "workspace_not_writable", "unsafe_workspace"})


def adopt(parts: Parts, wanted: request.AdoptRequest, configured: Mapping[str, object], operation: Operation) -> None:
    """Adopt a tmux session or a process; with neither, the runs that lie in the workspace.

    Raises:
        Refused, Failed, LinkError
    """
    target = wanted.target
    link = connect(parts, target, operation)
    if wanted.takes_over:
        _take_over(parts, link, target, operation)
        return
    _check_workspace(link, target.workspace)
    _refuse_what_is_watched(parts, target, _look_for(link, wanted))
    if wanted.log is None:
        operation.say("no log is named, so no step of it can be seen; with --log PATH its steps and errors are read")
    taken = frozenset(run["name"] for run in parts.store.runs() if not run["final"])
    name = names.free_name(wanted.name, taken)
    observing = {**configured, "preset": "observe"}
    spec = request.make_spec(
        run_id=names.run_id(name, parts.clock(), secrets.token_hex(2)),
        name=name,
        workspace=target.workspace,
        owner=parts.handover.owner,
        kind="adopted",
        gpus="all",
        policy=request.policy_of({}, observing, "adopted"),
        adopt={"tmux": wanted.tmux, "pid": wanted.pid, "log": wanted.log},
    )
    _hand_over(parts, link, wanted, spec, operation)


def _check_workspace(link: HostLink, workspace: str) -> None:
    """Our records go there, also where what is watched lives elsewhere.

    Raises:
        Failed: it does not take them; exit code 5, or 6 where others could have prepared it.
    """
    op = {"op": "preflight", "workspace": workspace, "python": None, "gpus": "none", "bundled": False, "run_id": None}
    for blocker in link.request(op, PREFLIGHT_S).get("blockers", []):
        code = blocker.get("code")
        if code in _NO_PLACE:
            exit_code = 6 if code == "unsafe_workspace" else 5
            raise Failed(code, str(blocker.get("message")), fix=str(blocker.get("fix", "")), exit_code=exit_code)


def _refuse_what_is_watched(parts: Parts, target: HostTarget, pid: int | None) -> None:
    """One process is one run: two would answer for each other's stop.

    Raises:
        Failed: exit code 6, with the run that has it.
    """
    for run in parts.store.live_runs():
        if pid is None or run["host"] != target.key:
            continue
        began = parts.store.records(run["id"], kinds=("attempt_start",), limit=1, newest=True)
        if began and began[0].get("pid") == pid:
            text = f"process {pid} is watched already, as {run['id']}"
            raise Failed("already_watched", text, fix=f"dflash-supervise status {run['id']}", exit_code=6)


def _look_for(link: HostLink, wanted: request.AdoptRequest) -> int | None:
    """The main process of what is named; None where only a log is.

    Raises:
        Failed: it is not there; exit code 5, with what is.
    """
    host = wanted.target.key
    if wanted.tmux is None and wanted.pid is None:
        return None
    found = link.request({"op": "look_for", "tmux": wanted.tmux, "pid": wanted.pid}, REQUEST_S)
    if found["pid"] is not None:
        return int(found["pid"])
    if wanted.pid is not None:
        text = f"there is no process {wanted.pid} on {host}"
        raise Failed("no_such_process", text, fix="name the main process of the training run", exit_code=5)
    sessions = [str(name) for name in found["sessions"]]
    if wanted.tmux in sessions:
        text, fix = f"nothing runs in the tmux session {wanted.tmux}", "name the process: --pid PID"
    else:
        there = f"sessions are: {', '.join(sessions)}" if sessions else f"{host} has none"
        text, fix = f"there is no tmux session {wanted.tmux}; {there}", "name one of these, or a process: --pid PID"
    raise Failed("no_such_session", text, fix=fix, exit_code=5)


def _hand_over(parts: Parts, link: HostLink, wanted: request.AdoptRequest, spec: Doc, operation: Operation) -> None:
    run_id, target = spec["run_id"], wanted.target
    parts.starting.add(run_id)
    try:
        if wanted.options is not None:
            link.request({"op": "set_options", "run_id": run_id, "options": dict(wanted.options)}, AGENT_S)
        parts.handover.register(link, target, spec, None, operation)
        parts.links.follow(link, run_id, target.workspace)
        link.request({"op": "ensure_agent", "workspace": target.workspace, "run_id": run_id}, AGENT_S)
        operation.say(f"watching {run_id}; nothing is done to it")
    finally:
        parts.starting.discard(run_id)


def _take_over(parts: Parts, link: HostLink, target: HostTarget, operation: Operation) -> None:
    """Become the owner of the runs in this workspace: the generation rises, the former owner turns read-only."""
    found = [run for run in list_runs(link, target.workspace) if run.get("spec")]
    if not found:
        raise Failed(
            "nothing_to_adopt",
            f"no run of ours lies in {target.workspace}",
            fix="name what to watch: --tmux SESSION or --pid PID",
            exit_code=5,
        )
    for run in found:
        _take_one(parts, link, target, run["spec"], final=bool(run.get("final")), operation=operation)
    operation.result = {"run_ids": [run["run_id"] for run in found]}


def _take_one(
    parts: Parts, link: HostLink, target: HostTarget, there: Doc, *, final: bool, operation: Operation
) -> None:
    run_id = there["run_id"]
    there = {key: value for key, value in there.items() if key != "accepted"}
    known = _known(parts, run_id)
    if not final and there["owner"] != parts.handover.owner:
        # The goal stays; a restart in it was asked for once and is not asked for again.
        goal = {**there["goal"], "end_attempt": None}
        spec = {**there, "goal": goal, "owner": parts.handover.owner, "generation": there["generation"] + 1}
        op = {
            "op": "spec",
            "workspace": target.workspace,
            "spec": spec,
            "based_on": there["generation"],
            "take_over": True,
        }
        link.request(op, REQUEST_S)
        operation.say(f"{run_id} is ours now (before: {there['owner']})")
    else:
        spec = there
    if known:
        parts.store.put_spec(spec, tell_from=spec["generation"])
        parts.store.set_delivered(run_id, spec["generation"])
    else:
        # Its history was told by the supervisor that watched it; we speak from our own generation on.
        parts.store.add_run(
            spec,
            host=target.key,
            target=str(target),
            tell_from=spec["generation"],
            delivered=spec["generation"],
        )
    operation.run_id = run_id
    parts.links.follow(link, run_id, target.workspace)
    operation.say(f"following {run_id}")


def _known(parts: Parts, run_id: str) -> bool:
    try:
        parts.store.spec(run_id)
    except NoSuchRun:
        return False
    return True
