"""The daemon's HTTP API, and the only importer of the HTTP client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from dflash_supervise.cli import exits
from dflash_supervise.cli.errors import CliError, from_document

Json = dict[str, Any]

_START_FIX = "start it with: dflash-supervise daemon run   (or `start`, which brings it up by itself)"


class Api:
    """A connection to the daemon of this user on this machine.

    Raises from every call:
        CliError: the daemon is gone (exit 7), or it refused (its own exit code and fix).
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/")
        # A proxy of the environment has no business between this program and its own machine.
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=timeout_s,
            trust_env=False,
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, /, **params: Any) -> Json:
        wanted = {key: value for key, value in params.items() if value is not None}
        return self._call("GET", path, params=wanted)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return self._call("POST", path, json=dict(body or {}))

    def _call(self, method: str, path: str, **arguments: Any) -> Json:
        try:
            answer = self._http.request(method, f"/api/v1{path}", **arguments)
        except httpx.TimeoutException as error:
            raise CliError(
                "the daemon is there but does not answer",
                fix="look at its log: dflash-supervise daemon status",
                code="daemon_silent",
            ) from error
        except httpx.HTTPError as error:
            raise no_daemon() from error
        return _read(answer)


def connect(state_dir: Path) -> Api:
    """A connection to the running daemon.

    Raises:
        CliError: there is none (exit 7).
    """
    try:
        url = str(json.loads((state_dir / "daemon.json").read_text())["url"])
        token = (state_dir / "token").read_text().strip()
    except FileNotFoundError as error:
        raise no_daemon() from error
    except PermissionError as error:
        raise CliError(f"{error.filename} is not readable by this user", exit_code=exits.NO_DAEMON) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(
            f"{state_dir / 'daemon.json'} is not what a daemon writes",
            fix="remove the file; a running daemon is not hurt by that, restart it afterwards",
            exit_code=exits.NO_DAEMON,
            code="no_daemon",
        ) from error
    return Api(url, token)


def no_daemon() -> CliError:
    return CliError("no daemon is running", fix=_START_FIX, exit_code=exits.NO_DAEMON, code="no_daemon")


def _read(answer: httpx.Response) -> Json:
    try:
        body = answer.json()
    except ValueError:
        body = None
    if answer.is_success and isinstance(body, dict):
        return body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        raise from_document(body["error"])
    if answer.status_code == 401:
        raise CliError(
            "the daemon does not take our token",
            fix="it was probably started with another state folder; see: dflash-supervise config path",
            code="unauthorized",
        )
    if answer.status_code == 422:
        raise CliError(f"the daemon did not understand: {_validation(body)}", exit_code=exits.USAGE)
    raise CliError(
        f"the daemon answered {answer.status_code} {answer.reason_phrase}",
        fix="look at its log: dflash-supervise daemon status",
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
