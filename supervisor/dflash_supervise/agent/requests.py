"""What a peer may ask of the stream, beside following: one method for each op of the protocol."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from typing import Any, Callable, Dict, List, Optional

from dflash_supervise.agent import preflight, put, spec, spec_store
from dflash_supervise.agent.files import read_json, write_json
from dflash_supervise.agent.runtime import Runtime
from dflash_supervise.agent.start import NotStarted, agent_dir, at_home, ensure_agent

TMUX_S = 20.0
TMUX_OUTPUT_BYTES = 100 * 1024
LOG_RANGE_BYTES = 128 * 1024


class RequestError(Exception):
    """A refusal with its code, for the person at the other end: message and what to do."""

    def __init__(self, code: str, message: str, fix: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.facts = facts


class Requests:
    """Answers requests about runs of this user on this host. Each call may block; the stream gives it a thread."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.code_gone = False  # ours was deleted, with the workspace it lay in: nothing can be started from it

    def handle(self, op: str, request: Dict[str, Any]) -> Dict[str, Any]:
        """The answer's own keys.

        Raises:
            RequestError, UnsafeFolder, OSError
        """
        ops: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "spec": self._spec,
            "ensure_agent": self._ensure_agent,
            "list": self._list,
            "preflight": self._preflight,
            "log_range": self._log_range,
            "tmux": self._tmux,
            "put": self._put,
            "have": self._have,
            "look": self._look,
            "look_for": self._look_for,
            "doctor": self._doctor,
            "check_config": self._check_config,
            "set_options": self._set_options,
        }
        if op not in ops:
            raise RequestError("unknown_op", f"this agent knows no op {op!r}", "start the agent of this version")
        return ops[op](request)

    def run_id(self, request: Dict[str, Any]) -> str:
        """The request's run id, checked."""
        try:
            return spec.check_run_id(request.get("run_id"))
        except spec.SpecError as error:
            raise RequestError("bad_request", str(error)) from None

    def workspace(self, request: Dict[str, Any]) -> str:
        """The request's workspace: an absolute path."""
        value = request.get("workspace")
        if not isinstance(value, str) or not os.path.isabs(value):
            raise RequestError("bad_request", f"workspace: expected an absolute path, got {value!r}")
        return value

    def run_dir(self, request: Dict[str, Any]) -> str:
        """The run directory of the request, with its safety checked.

        Raises:
            UnsafeFolder: others could have prepared it.
        """
        workspace, run_id = self.workspace(request), self.run_id(request)
        spec_store.check_workspace(workspace, run_id)
        return spec.run_dir(workspace, run_id)

    def _spec(self, request: Dict[str, Any]) -> Dict[str, Any]:
        workspace = self.workspace(request)
        based_on = request.get("based_on")
        if not isinstance(based_on, int):
            raise RequestError("bad_request", f"based_on: expected a generation, got {based_on!r}")
        context = request.get("context")
        try:
            accepted = spec_store.apply_spec(
                self.runtime,
                workspace,
                request.get("spec") or {},
                based_on,
                take_over=bool(request.get("take_over")),
                context=freeze_context(context, workspace) if context is not None else None,
            )
        except spec.SpecError as error:
            raise RequestError("bad_spec", str(error)) from None
        except spec_store.NoWorkspace as error:
            raise RequestError("workspace_missing", str(error), "mkdir -p " + workspace) from None
        except spec_store.NoContext as error:
            raise RequestError("no_context", str(error), "stop it, and start it anew") from None
        except spec_store.SpecConflict as error:
            fix = "take the run over, or give the order from the machine that owns it"
            raise RequestError(
                "spec_conflict", str(error), fix, generation=error.generation, owner=error.owner
            ) from None
        return {"generation": accepted.generation}

    def _ensure_agent(self, request: Dict[str, Any]) -> Dict[str, Any]:
        run_dir = self.run_dir(request)
        try:
            pid, started = ensure_agent(self.runtime, run_dir)
        except NotStarted as error:
            self.code_gone = not os.path.isdir(agent_dir())
            raise RequestError("agent_not_started", str(error), "run doctor on this host") from None
        return {"pid": pid, "started": started, "command": list(at_home(run_dir))}

    def _list(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return {"runs": preflight.list_runs(self.runtime, self.workspace(request))}

    def _preflight(self, request: Dict[str, Any]) -> Dict[str, Any]:
        return preflight.preflight(
            self.runtime,
            self.workspace(request),
            python=request.get("python"),
            gpus=request.get("gpus", "all"),
            bundled=bool(request.get("bundled")),
            run_id=request.get("run_id"),
            pythons=_words(request.get("pythons")),
        )

    def _log_range(self, request: Dict[str, Any]) -> Dict[str, Any]:
        path = os.path.join(self.run_dir(request), "attempts", str(int(request["attempt"])), "train.log")
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise RequestError("no_log", f"{path} is not there") from None
        try:
            length = max(0, min(int(request["length"]), LOG_RANGE_BYTES))
            data = os.pread(fd, length, max(0, int(request["offset"])))
            return {"data": base64.b64encode(data).decode("ascii"), "size": os.fstat(fd).st_size}
        finally:
            os.close(fd)

    def _tmux(self, request: Dict[str, Any]) -> Dict[str, Any]:
        argv = request.get("argv")
        if not isinstance(argv, list) or not all(isinstance(word, str) for word in argv):
            raise RequestError("bad_request", "argv: expected a list of words")
        path = shutil.which("tmux")
        if path is None:
            raise RequestError("tmux_missing", "there is no tmux in PATH", "install tmux, or start with --no-tmux")
        try:
            done = subprocess.run(
                [path, *argv],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TMUX_S,
                env=tmux_environment(),
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RequestError("tmux_stuck", f"tmux did not answer within {TMUX_S:.0f} s") from None
        return {"rc": done.returncode, "out": _text(done.stdout), "err": _text(done.stderr)}

    def _put(self, request: Dict[str, Any]) -> Dict[str, Any]:
        workspace = self.workspace(request)
        spec_store.check_workspace(workspace)
        try:
            return put.put(
                workspace,
                str(request.get("kind")),
                str(request.get("hash")),
                int(request.get("offset", 0)),
                base64.b64decode(request.get("data") or ""),
                bool(request.get("last")),
            )
        except ValueError as error:
            raise RequestError("bad_put", str(error)) from None

    def _have(self, request: Dict[str, Any]) -> Dict[str, Any]:
        try:
            return {"have": put.have(self.workspace(request), str(request.get("kind")), str(request.get("hash")))}
        except ValueError as error:
            raise RequestError("bad_request", str(error)) from None

    def _look(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from dflash_supervise.agent.look import look

        return look(self.runtime, self.workspace(request))

    def _look_for(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from dflash_supervise.agent.adopt import look_for

        return look_for(spec.Adopt(tmux=request.get("tmux"), pid=request.get("pid")), self.runtime.proc_root)

    def _doctor(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from dflash_supervise.agent.doctor import doctor

        return {"checks": doctor(self.runtime, self.workspace(request), _words(request.get("pythons")))}

    def _check_config(self, request: Dict[str, Any]) -> Dict[str, Any]:
        from dflash_supervise.agent.config_check import check_config

        workspace = self.workspace(request)
        spec_store.check_workspace(workspace)
        return check_config(freeze_context(request.get("context"), workspace))

    def _set_options(self, request: Dict[str, Any]) -> Dict[str, Any]:
        options = request.get("options")
        if not isinstance(options, dict):
            raise RequestError("bad_request", "options: expected an object")
        run_id = self.run_id(request)
        self.runtime.run(run_id)
        write_json(self.runtime.options_path(run_id), options)
        return {"options": read_json(self.runtime.options_path(run_id))}


def freeze_context(given: Any, workspace: str) -> Dict[str, Any]:
    """The launch context of all attempts: the host's environment now, with what the user set over it.

    Raises:
        RequestError: argv is no list of words.
    """
    if not isinstance(given, dict) or not isinstance(given.get("argv"), list) or not given["argv"]:
        raise RequestError("bad_request", "context.argv: expected a list of words")
    if not all(isinstance(word, str) for word in given["argv"]):
        raise RequestError("bad_request", "context.argv: expected a list of words")
    extra: Dict[str, str] = {str(key): str(value) for key, value in (given.get("env") or {}).items()}
    ours = ("DFLASH_", "TMUX", "SSH_")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    env.update(extra)
    umask: Optional[int] = given.get("umask")
    if umask is None:
        umask = os.umask(0o022)
        os.umask(umask)
    return {"argv": list(given["argv"]), "cwd": given.get("cwd") or workspace, "env": env, "umask": umask}


def tmux_environment() -> Dict[str, str]:
    """For a tmux server that outlives us: nothing of a trainer or of another pane, and a locale it can draw with."""
    env: Dict[str, str] = {
        key: value
        for key, value in os.environ.items()
        if key not in ("TMUX", "TMUX_PANE") and not key.startswith("DFLASH_")
    }
    env["LC_ALL"] = "C.UTF-8"
    if "DFLASH_AGENT_OPTIONS" in os.environ:
        env["DFLASH_AGENT_OPTIONS"] = os.environ["DFLASH_AGENT_OPTIONS"]
    return env


def _words(given: Any) -> List[str]:
    return [word for word in given if isinstance(word, str)] if isinstance(given, list) else []


def _text(data: bytes) -> str:
    return data[:TMUX_OUTPUT_BYTES].decode("utf-8", "replace")
