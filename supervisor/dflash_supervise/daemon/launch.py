"""The start: look, push, hand over, tmux, agent, and the first word from the host. Each step says what it does."""

from __future__ import annotations

import queue
import secrets
import sys
import time
from collections.abc import Mapping
from typing import Any

from dflash_supervise.config.target import HostTarget
from dflash_supervise.daemon import goals, names, request, sessions
from dflash_supervise.daemon.handover import list_runs
from dflash_supervise.daemon.operations import Failed, Operation
from dflash_supervise.daemon.parts import Parts
from dflash_supervise.daemon.seam import HostLink

Doc = dict[str, Any]

READY_S = 60.0
PREFLIGHT_S = 180.0  # importing torch from a cold network disk
AGENT_S = 30.0
CONFIG_S = 60.0
FIRST_WORD_S = 90.0
REPLACE_S = 180.0

_REFUSE = frozenset({"live_run", "unsafe_workspace", "held"})  # exit 6; the others are failed checks, exit 5
# Whether GPUs are free is judged by the agent as attempt 0, with fresh readings each second.
_LEFT_TO_AGENT = frozenset({"gpu_busy", "gpu_stale", "stale_process"})


def start(parts: Parts, wanted: request.StartRequest, operation: Operation) -> None:
    """Start a run; the operation ends with the first attempt, or with the verdict that forbids it.

    Raises:
        Failed, LinkError
    """
    workspace = wanted.target.workspace
    link = connect(parts, wanted.target, operation)
    name = _free_name(parts, wanted)
    run_id = names.run_id(name, parts.clock(), secrets.token_hex(2))
    if wanted.options is not None:
        link.request({"op": "set_options", "run_id": run_id, "options": dict(wanted.options)}, AGENT_S)
    look = _preflight(link, wanted, run_id, operation)
    if look.get("live_run"):
        if wanted.replace and look.get("python"):
            _prepare(parts, link, wanted, look, operation)  # no run is ended for settings that are wrong
        _replace(parts, link, wanted, str(look["live_run"]), operation)
        look = _preflight(link, wanted, run_id, operation)
    _check(look, wanted, operation)
    trainer_hash, context = _prepare(parts, link, wanted, look, operation)
    spec = request.make_spec(
        run_id=run_id,
        name=name,
        workspace=workspace,
        owner=parts.handover.owner,
        kind=wanted.kind,
        gpus=_uuids(wanted.gpus, look),
        policy=wanted.policy,
        trainer_hash=trainer_hash,
        tmux=not wanted.no_tmux,
    )
    _hand_over(parts, link, wanted, spec, context, operation)


def connect(parts: Parts, target: Any, operation: Operation) -> HostLink:
    """A ready link.

    Raises:
        LinkError: why there is none.
    """
    operation.say(f"connecting to {target.key}")
    link = parts.links.to(target)
    state = link.wait_ready(READY_S)
    said = state.hello or {}
    operation.say(f"agent {str(said.get('hash', ''))[:12]} answers on Python {said.get('python', '?')}")
    return link


def _hand_over(
    parts: Parts,
    link: HostLink,
    wanted: request.StartRequest,
    spec: Doc,
    context: Doc,
    operation: Operation,
) -> None:
    run_id, workspace = spec["run_id"], spec["workspace"]
    words = parts.ingest.watch(run_id)
    parts.starting.add(run_id)
    try:
        parts.handover.register(link, wanted.target, spec, context, operation)
        operation.say(f"run {run_id}")
        parts.links.follow(link, run_id, workspace)
        agent = link.request({"op": "ensure_agent", "workspace": workspace, "run_id": run_id}, AGENT_S)
        session = sessions.ensure_session(link, spec, agent["command"])
        if session is not None:
            operation.say(session)
        _first_word(parts, words, operation)
    finally:
        parts.starting.discard(run_id)
        parts.ingest.unwatch(run_id, words)


def _give_up(parts: Parts, run_id: str) -> None:
    """A start that was refused must not come true by itself when the reason is gone."""
    run = parts.store.run(run_id)
    if run is not None and not run["final"]:
        goals.set_goal(parts, run_id, {"want": "stop"})


def _preflight(link: HostLink, wanted: request.StartRequest, run_id: str, operation: Operation) -> Doc:
    by_uuid = isinstance(wanted.gpus, str) or all(word.startswith(("GPU-", "MIG-")) for word in wanted.gpus)
    op = {
        "op": "preflight",
        "workspace": wanted.target.workspace,
        "python": wanted.python,
        "gpus": _plain(wanted.gpus) if by_uuid else "all",
        "bundled": wanted.bundled,
        "run_id": run_id,
        "pythons": own_python(wanted.target),
    }
    look = link.request(op, PREFLIGHT_S)
    python = look.get("python")
    if python:
        torch = f" with torch {python['torch']}" if python.get("torch") else ""
        operation.say(f"Python {python.get('version')}{torch}: {python.get('path')}")
    seen = look.get("gpus") or {}
    if seen.get("type") == "Missing":
        operation.say(f"GPUs cannot be read: {seen.get('reason')}")
    else:
        operation.say(f"GPUs on the host: {len(seen.get('gpus', []))}")
    return look


def own_python(target: HostTarget) -> list[str]:
    """The interpreter of this installation, where the host is this machine: its environment may hold the trainer's."""
    return [sys.executable] if target.local else []


def _check(look: Mapping[str, Any], wanted: request.StartRequest, operation: Operation) -> None:
    for blocker in look.get("blockers", []):
        code = str(blocker.get("code", ""))
        if code in _LEFT_TO_AGENT:
            operation.say(f"seen before the start: {blocker.get('message')}")
            continue
        if "tmux" in code and wanted.no_tmux:
            continue
        if "python" in code and not wanted.bundled:
            continue
        raise Failed(
            code,
            str(blocker.get("message", code)),
            fix=str(blocker.get("fix", "")),
            exit_code=6 if code in _REFUSE else 5,
            evidence={"tried": look.get("tried", []), "blockers": look.get("blockers", [])},
        )


def _prepare(
    parts: Parts, link: HostLink, wanted: request.StartRequest, look: Mapping[str, Any], operation: Operation
) -> tuple[str | None, Doc]:
    """The hash of the trainer that lies on the host now, and the launch context, to which it did not object.

    Raises:
        Failed: it did.
    """
    python = str((look.get("python") or {}).get("path", "python3"))
    if not wanted.bundled:
        return None, request.launch_context(wanted, python, None)
    trainer_hash = parts.push(link, wanted.target.workspace)
    operation.say(f"trainer {trainer_hash[:12]} is on the host")
    context = request.launch_context(wanted, python, trainer_hash)
    _check_config(link, wanted.target.workspace, context, operation)
    return trainer_hash, context


def _check_config(link: HostLink, workspace: str, context: Doc, operation: Operation) -> None:
    """Let the trainer read its settings on the host: a wrong key would else cost a launch to learn of."""
    answer = link.request({"op": "check_config", "workspace": workspace, "context": context}, CONFIG_S)
    if answer.get("settings") == "wrong":
        raise Failed(
            "config_error", str(answer.get("message")), fix="correct --set or --train; nothing was started", exit_code=5
        )
    if answer.get("settings") == "unknown":
        operation.say(f"the settings could not be checked: {answer.get('message')}")


def _replace(parts: Parts, link: HostLink, wanted: request.StartRequest, live: str, operation: Operation) -> None:
    """End the workspace's live run first, when that was asked for."""
    if not wanted.replace:
        raise Failed(
            "live_run",
            f"run {live} is alive in {wanted.target.workspace}",
            fix=f"watch it (status {live}), end it (stop {live}), or start with --replace",
            exit_code=6,
            evidence={"live_run": live},
        )
    if parts.store.run(live) is None:
        raise Failed(
            "live_run",
            f"run {live} is alive in {wanted.target.workspace} and belongs to another supervisor",
            fix=f"take it over first: dflash-supervise adopt {wanted.target}",
            exit_code=6,
            evidence={"live_run": live},
        )
    operation.say(f"ending {live} first")
    goals.set_goal(parts, live, {"want": "stop"})
    deadline = time.monotonic() + REPLACE_S
    while time.monotonic() < deadline:
        there = {run["run_id"]: run for run in list_runs(link, wanted.target.workspace)}
        if live not in there or (there[live].get("final") and not there[live].get("attempt_alive")):
            return
        time.sleep(0.5)
    raise Failed("live_run", f"run {live} did not end within {REPLACE_S:.0f} s", fix=f"why {live}", exit_code=6)


def _first_word(parts: Parts, words: queue.Queue[Doc], operation: Operation) -> None:
    """Wait for the first attempt, or the verdict that stands before it."""
    deadline = time.monotonic() + FIRST_WORD_S
    while True:
        try:
            record = words.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise Failed(
                "agent_silent",
                f"the host's agent said nothing of attempt 1 within {FIRST_WORD_S:.0f} s",
                fix=f"the run is kept: dflash-supervise why {operation.run_id}",
                exit_code=4,
            ) from None
        if record["kind"] == "attempt_start":
            operation.say(f"attempt {record['attempt']} started, pid {record.get('pid')}")
            return
        if record["kind"] == "verdict" and _refuses(record):
            _give_up(parts, record["run"])
            raise Failed(
                str(record["verdict"]),
                str(record.get("sentence", record["verdict"])),
                fix=f"dflash-supervise why {operation.run_id}",
                exit_code=6,
                evidence=record.get("findings", []),
            )


def _refuses(verdict: Mapping[str, Any]) -> bool:
    if verdict.get("suspected"):
        return False
    return bool(verdict.get("final")) or verdict.get("verdict") in ("stale_process", "gpu_fault")


def _free_name(parts: Parts, wanted: request.StartRequest) -> str:
    """The name itself, or with a number; a name that the user chose and a live run has is refused."""
    live = [run for run in parts.store.runs() if not run["final"]]
    if wanted.replace:
        here = (wanted.target.key, wanted.target.workspace)
        live = [run for run in live if (run["host"], run["workspace"]) != here]
    taken = frozenset(run["name"] for run in live)
    if wanted.named and wanted.name in taken:
        raise Failed("name_taken", f"a run named {wanted.name} is not over", fix="choose another --name", exit_code=6)
    return names.free_name(wanted.name, taken)


def _plain(gpus: str | tuple[str, ...]) -> str | list[str]:
    return list(gpus) if isinstance(gpus, tuple) else gpus


def _uuids(gpus: str | tuple[str, ...], look: Mapping[str, Any]) -> str | tuple[str, ...]:
    """Indices as the host numbers its GPUs now, turned into the UUIDs that name them for ever."""
    if isinstance(gpus, str):
        return gpus
    seen = (look.get("gpus") or {}).get("gpus", [])
    known = {str(gpu.get("index")): str(gpu["uuid"]) for gpu in seen}
    found = []
    for word in gpus:
        uuid = known.get(word, word)
        if uuid not in known.values():
            have = ", ".join(f"{index} ({uuid})" for index, uuid in sorted(known.items())) or "none"
            raise Failed("no_such_gpu", f"there is no GPU {word} on the host", fix=f"it has: {have}", exit_code=5)
        found.append(uuid)
    return tuple(dict.fromkeys(found))
