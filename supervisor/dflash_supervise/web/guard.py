"""The outermost layer: who may speak to the dashboard at all, and what every answer must carry.

Order of the checks: Host (against DNS rebinding, as Ray had it in CVE-2025-62593), where the request comes from
(Fetch metadata and Origin; every method but GET, HEAD and OPTIONS, since Ray forgot DELETE in CVE-2026-27482), token,
size of the body. Plain ASGI: a wrapping response class would buffer the live stream.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dflash_supervise.web.control import Refused
from dflash_supervise.web.render import refusal_page
from dflash_supervise.web.session import Sessions
from dflash_supervise.web.settings import WebSettings

_LOOPBACK = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE | re.ASCII)
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
OPEN_PATHS = ("/healthz", "/readyz", "/login")
STATIC = "/static/"

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: tuple[tuple[str, str], ...] = (
    ("content-security-policy", CSP),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    # Not no-referrer: with that a browser sends "Origin: null" with the dashboard's own forms.
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), microphone=(), geolocation=()"),
)


class Guard:
    """ASGI middleware; ``scope["state"]["bearer"]`` tells the app that a program asked."""

    def __init__(self, app: ASGIApp, settings: WebSettings, sessions: Sessions) -> None:
        self._app = app
        self._settings = settings
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send, cacheable=scope["path"].startswith(STATIC))
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            headers = _headers(scope)
            self._check_host(headers)
            self._check_origin(scope, headers)
            self._check_token(scope, headers)
            self._check_declared_size(headers)
            if scope["method"] not in SAFE_METHODS:
                receive = await self._read_body(receive)
        except Refused as refused:
            await _refuse(refused, scope, send)
            return
        await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The app's answer. Our own failure gets one too, with every header, and goes on to the server's log."""
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if not begun:
                await _refuse(_our_failure(error), scope, send)
            raise

    def _check_host(self, headers: Mapping[str, str]) -> None:
        host = headers.get("host", "")
        if not host_allowed(host, self._settings.hosts):
            raise Refused(
                "bad_host",
                "This address is not one of the dashboard's names.",
                "Open it as http://localhost:PORT, or add the exact name and port to [daemon] allowed_hosts "
                "in the configuration.",
                exit_code=2,
                http_status=421,
            )

    def _check_origin(self, scope: Scope, headers: Mapping[str, str]) -> None:
        acts = scope["method"] not in SAFE_METHODS
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        navigates = headers.get("sec-fetch-mode") == "navigate" and not acts
        own = headers.get("host", "").lower()
        foreign_site = site not in (None, "same-origin") and not (site == "none" and not acts)
        # Either scheme: behind a proxy with TLS the origin is https and our own side is http.
        foreign_origin = origin is not None and origin.lower() not in (f"http://{own}", f"https://{own}")
        unsaid = acts and site is None and origin is None and "authorization" not in headers
        if (foreign_site and not navigates) or foreign_origin or unsaid:
            raise Refused(
                "cross_site",
                "This request does not come from the dashboard itself.",
                "Use the dashboard's own pages, or the API with a bearer token.",
                exit_code=2,
                http_status=403,
            )

    def _check_token(self, scope: Scope, headers: Mapping[str, str]) -> None:
        path = scope["path"]
        authorization = headers.get("authorization")
        state: dict[str, Any] = scope.setdefault("state", {})
        state["bearer"] = authorization is not None and self._sessions.bearer_ok(authorization)
        if path in OPEN_PATHS or path.startswith(STATIC) or state["bearer"]:
            return
        cookie = _cookie(headers.get("cookie", ""), self._settings.cookie)
        if authorization is None and cookie and self._sessions.cookie_ok(cookie):
            return
        raise Refused(
            "unauthorized",
            "The dashboard needs its token.",
            "Run `dflash-supervise open`, or sign in with the token from the daemon's state folder.",
            exit_code=2,
            http_status=401,
        )

    def _check_declared_size(self, headers: Mapping[str, str]) -> None:
        declared = headers.get("content-length", "0")
        if not declared.isascii() or not declared.isdigit() or int(declared) > self._settings.max_body_bytes:
            raise _too_large(self._settings.max_body_bytes)

    async def _read_body(self, receive: Receive) -> Receive:
        """The whole (small) body, so that one too large is refused before anything acts on its beginning."""
        chunks: list[Message] = []
        seen, more = 0, True
        while more:
            message = await receive()
            chunks.append(message)
            seen += len(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
            if seen > self._settings.max_body_bytes:
                raise _too_large(self._settings.max_body_bytes)

        async def replay() -> Message:
            return chunks.pop(0) if chunks else await receive()

        return replay


def host_allowed(host: str, extra: tuple[str, ...]) -> bool:
    """Loopback names with any port (so that ``ssh -L`` works), other names only exactly as configured."""
    return bool(_LOOPBACK.fullmatch(host)) or host.lower() in {item.lower() for item in extra}


def error_page_wanted(scope: Scope) -> bool:
    """A browser that navigates gets a page to read, everything else the API's error."""
    accept = b",".join(value for key, value in scope["headers"] if key.lower() == b"accept")
    return b"text/html" in accept and not scope["path"].startswith("/api/")


def _headers(scope: Scope) -> dict[str, str]:
    out: dict[str, str] = {}
    for key, value in scope["headers"]:
        name = key.decode("latin-1").lower()
        if name in out and name in ("host", "origin", "authorization", "content-length"):
            raise Refused(
                "bad_request", f"The header {name} came twice.", "Send it once.", exit_code=2, http_status=400
            )
        out[name] = f"{out[name]}; {value.decode('latin-1')}" if name in out else value.decode("latin-1")
    return out


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def _our_failure(error: Exception) -> Refused:
    return Refused(
        "internal_error",
        f"The dashboard itself failed: {type(error).__name__}.",
        "The daemon's log has the traceback; supervision on the hosts is not touched by this.",
        exit_code=1,
        http_status=500,
    )


def _too_large(limit: int) -> Refused:
    return Refused(
        "body_too_large",
        f"The request is larger than {limit // 1024} kB.",
        "Send a smaller request.",
        exit_code=2,
        http_status=413,
    )


def _with_headers(send: Send, *, cacheable: bool) -> Send:
    async def wrapped(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [(k, v) for k, v in message.get("headers", []) if k.lower() != b"server"]
            named = {key.lower() for key, _ in headers}
            headers += [(k.encode(), v.encode()) for k, v in HEADERS]
            if b"cache-control" not in named:
                headers.append((b"cache-control", b"no-cache" if cacheable else b"no-store"))
            message = {**message, "headers": headers}
        await send(message)

    return wrapped


async def _refuse(refused: Refused, scope: Scope, send: Send) -> None:
    if error_page_wanted(scope):
        body, kind = refusal_page(refused).encode(), b"text/html; charset=utf-8"
    else:
        body, kind = json.dumps(refused.as_doc()).encode(), b"application/json"
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
    if refused.http_status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="dflash-supervise"'))
    await send({"type": "http.response.start", "status": refused.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
