"""The daemon's HTTP API. The standard library's client does: it is there in 20 ms, where others take 100."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

from dflash_supervise.cli import exits, words
from dflash_supervise.cli.errors import CliError, from_document
from dflash_supervise.daemon import state_files

Json = dict[str, Any]


class Api:
    """The daemon of this user on this machine. Every call is a connection of its own: a restart is not noticed.

    Raises from every call:
        CliError: the daemon is gone (exit 7), or it refused (its own exit code and fix).
    """

    def __init__(
        self, url: str, token: str, *, timeout_s: float = 30.0, facts: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.url = url.rstrip("/")
        self.facts = facts  # what the daemon's file says of it
        self._where = urlsplit(self.url).netloc
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self._timeout_s = timeout_s

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is held between calls."""

    def get(self, path: str, /, **params: Any) -> Json:
        query = urlencode({key: value for key, value in params.items() if value is not None})
        return self._call("GET", path + (f"?{query}" if query else ""), None)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self._call("POST", path, json.dumps(dict(body or {})).encode())

    def _call(self, method: str, path: str, body: bytes | None) -> Json:
        headers = {**self._headers, **({"Content-Type": "application/json"} if body is not None else {})}
        connection = http.client.HTTPConnection(self._where, timeout=self._timeout_s)
        try:
            connection.request(method, f"/api/v1{path}", body=body, headers=headers)
            answer = connection.getresponse()
            return _read(answer.status, answer.reason, answer.read())
        except TimeoutError as error:
            raise CliError(
                "the daemon is there but does not answer",
                fix=f"look at its log: {words.command('config', 'path')}",
                code="daemon_silent",
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise no_daemon() from error
        finally:
            connection.close()


def connect(state_dir: Path) -> Api:
    """A connection to the running daemon.

    Raises:
        CliError: there is none (exit 7), or its token cannot be read (exit 2; exit 7 for another account's).
    """
    file = state_dir / "daemon.json"
    try:
        facts = state_files.facts(file)
        return Api(_address(file, facts), _token(state_dir / "token", facts), facts=facts)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_daemon() from error
    except state_files.BadFile as error:
        # One that runs holds its lock, and says so to whoever starts another.
        raise no_daemon(f"no daemon is running, as far as its file tells: {error.what}") from error
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        raise CliError(text, fix="use the account that runs the daemon", exit_code=exits.NO_DAEMON) from error


def no_daemon(message: str = "no daemon is running") -> CliError:
    fix = f"start it with: {words.command('daemon', 'run')}   (`start` brings it up by itself)"
    return CliError(message, fix=fix, exit_code=exits.NO_DAEMON, code="no_daemon")


def _address(file: Path, facts: Json) -> str:
    url = facts.get("url")
    try:
        split = urlsplit(url if isinstance(url, str) else "")
        known = split.scheme == "http" and bool(split.hostname) and split.port is not None
    except ValueError:
        known = False
    if not known:
        raise state_files.BadFile(file, "names no address")
    return str(url)


def _token(file: Path, facts: Json) -> str:
    """The token; empty where there is none: a daemon that is alive then says that it wants one."""
    try:
        return state_files.token(file)
    except state_files.BadFile as error:
        from dflash_supervise.daemon.identity import start_ticks

        pid, start = facts.get("pid"), facts.get("start")
        # Only while it is the very process: a number may long be another's.
        alive = isinstance(pid, int) and isinstance(start, int) and start_ticks(pid) == start
        fix = error.fix + (f"; end the one that runs now by: kill {pid}" if alive else "")
        raise CliError(error.what, fix=fix, exit_code=exits.USAGE, code="bad_token_file") from error


def _read(status: int, reason: str, data: bytes) -> Json:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if 200 <= status < 300 and isinstance(body, dict):
        return body
    if status == 401:
        # Its own advice is for a browser: it names a link that only the token makes.
        raise CliError(
            "the daemon does not take our token",
            fix=f"its file was changed while it ran, or it was started with another state folder; see: "
            f"{words.command('config', 'path')}; end that daemon and start it anew",
            code="unauthorized",
        )
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        raise from_document(body["error"])
    if status == 422:
        raise CliError(f"the daemon did not understand: {_validation(body)}", exit_code=exits.USAGE, code="usage")
    raise CliError(
        f"the daemon answered {status} {reason}",
        fix=f"look at its log: {words.command('config', 'path')}",
        code="daemon_failed",
    )


def _validation(body: Any) -> str:
    """FastAPI's list of what is wrong with a request, as one line."""
    details = body.get("detail") if isinstance(body, dict) else None
    if not isinstance(details, list):
        return str(details or "the request")
    return "; ".join(
        f"{'.'.join(str(part) for part in item.get('loc', ())[1:])}: {item.get('msg', '')}" for item in details
    )
