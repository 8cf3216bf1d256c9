"""The daemon's HTTP API. The standard library's client does: it is there in 20 ms, where others take 100."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlencode, urlsplit

from dflash_supervise.cli import exits, words
from dflash_supervise.cli.errors import CliError, from_document

Json = dict[str, Any]


class Api:
    """The daemon of this user on this machine. Every call is a connection of its own: a restart is not noticed.

    Raises from every call:
        CliError: the daemon is gone (exit 7), or it refused (its own exit code and fix).
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
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
        CliError: there is none (exit 7).
    """
    try:
        url = str(json.loads((state_dir / "daemon.json").read_text())["url"])
        token = (state_dir / "token").read_text().strip()
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError) as error:
        raise no_daemon() from error  # a torn file tells of none; one that runs holds its lock and says so
    except OSError as error:
        text = f"{error.filename}: {error.strerror}"
        raise CliError(text, fix="use the account that runs the daemon", exit_code=exits.NO_DAEMON) from error
    return Api(url, token)


def no_daemon() -> CliError:
    fix = f"start it with: {words.command('daemon', 'run')}   (`start` brings it up by itself)"
    return CliError("no daemon is running", fix=fix, exit_code=exits.NO_DAEMON, code="no_daemon")


def _read(status: int, reason: str, data: bytes) -> Json:
    try:
        body = json.loads(data)
    except ValueError:
        body = None
    if 200 <= status < 300 and isinstance(body, dict):
        return body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        raise from_document(body["error"])
    if status == 401:
        raise CliError(
            "the daemon does not take our token",
            fix=f"it was probably started with another state folder; see: {words.command('config', 'path')}",
            code="unauthorized",
        )
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
