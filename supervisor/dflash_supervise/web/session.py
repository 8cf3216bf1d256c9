"""Who may look: the token itself, a cookie derived from it, and one-time links that turn into a cookie."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import threading
import time
from collections.abc import Callable

LINK_LIFE_S = 60.0
COOKIE_LIFE_S = 30 * 86400.0
MAX_LINKS = 32

_RUN_PAGE = re.compile(r"/runs/[a-z0-9_-]{1,200}", re.ASCII)


def same(given: str, wanted: str) -> bool:
    """Constant-time comparison; digests first, so that a length tells nothing either."""
    return hmac.compare_digest(_digest(given), _digest(wanted))


def next_path(wanted: str) -> str:
    """Where a login leads: to the page of a run, or to the fleet, whatever else a link may say."""
    return wanted if _RUN_PAGE.fullmatch(wanted) else "/"


class Sessions:
    """Cookies need no memory (they carry their own proof); one-time links live here until used or stale."""

    def __init__(self, token: str, *, clock: Callable[[], float] = time.time) -> None:
        self._token = token
        self._clock = clock
        self._lock = threading.Lock()
        self._links: dict[bytes, float] = {}

    def bearer_ok(self, header: str) -> bool:
        scheme, _, given = header.partition(" ")
        return scheme.lower() == "bearer" and same(given.strip(), self._token)

    def token_ok(self, given: str) -> bool:
        return same(given, self._token)

    def new_link(self) -> str:
        """A secret that opens one session within a minute."""
        secret = secrets.token_urlsafe(32)
        now = self._clock()
        with self._lock:
            self._links = {key: until for key, until in self._links.items() if until > now}
            while len(self._links) >= MAX_LINKS:
                del self._links[min(self._links, key=self._links.__getitem__)]
            self._links[_digest(secret)] = now + LINK_LIFE_S
        return secret

    def use_link(self, secret: str) -> bool:
        """True once for a link of ours that is not stale."""
        with self._lock:
            until = self._links.pop(_digest(secret), 0.0)
        return until > self._clock()

    def new_cookie(self) -> str:
        issued = str(int(self._clock()))
        return f"{issued}.{self._sign(issued)}"

    def cookie_ok(self, value: str) -> bool:
        issued, _, signature = value.partition(".")
        if not same(signature, self._sign(issued)) or not issued.isascii() or not issued.isdigit():
            return False
        return 0 <= self._clock() - int(issued) + 60 <= COOKIE_LIFE_S + 60  # a minute for a stepped clock

    def _sign(self, issued: str) -> str:
        return hmac.new(self._token.encode(), b"dashboard cookie " + issued.encode(), "sha256").hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
