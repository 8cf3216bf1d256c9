"""A generic webhook: one JSON document, signed with HMAC-SHA256 over timestamp and body."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from dflash_supervise.alerts.message import compose
from dflash_supervise.alerts.post import BadAddress, NoAnswer, post
from dflash_supervise.alerts.result import Again, Never, Off, Result, Sent
from dflash_supervise.config import Secret

Doc = dict[str, Any]


@dataclass(frozen=True)
class Webhook:
    """A receiver of our own JSON. It should accept a message key that it has seen, and do nothing twice."""

    url: Secret = field(repr=False)
    secret: Secret | None = field(repr=False, default=None)
    public_url: str = ""
    allow_loopback_http: bool = False
    clock: Callable[[], float] = time.time

    @property
    def name(self) -> str:
        return "webhook"

    def send(self, entry: Doc) -> Result:
        body = json.dumps(self.document(entry), ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json; charset=utf-8", "Idempotency-Key": entry["key"]}
        if self.secret is not None:
            stamp = str(int(self.clock()))
            headers["X-Dflash-Timestamp"] = stamp
            headers["X-Dflash-Signature"] = signature(self.secret.reveal(), stamp, body)
        try:
            answer = post(self.url.reveal(), body, headers, allow_loopback_http=self.allow_loopback_http)
        except BadAddress as error:
            return Off(f"[webhook] url {error}")
        except NoAnswer as error:
            return Again(str(error))
        said = f"the webhook answered {answer.status} {answer.body}"
        if 200 <= answer.status < 300:
            return Sent()
        if answer.status in (404, 410) or 300 <= answer.status < 400:
            return Off(said)
        if answer.status in (408, 425, 429) or answer.status >= 500:
            return Again(said, answer.retry_after_s)
        return Never(said)

    def document(self, entry: Doc) -> Doc:
        """{"schema", "key", "kind", "severity", "headline", "text", "created_at", "facts"}"""
        message = compose(entry["kind"], entry["severity"], entry["facts"], self.public_url)
        return {
            "schema": 1,
            "key": entry["key"],
            "kind": entry["kind"],
            "severity": entry["severity"],
            "headline": message.headline,
            "text": message.text,
            "created_at": entry["created_at"],
            "facts": entry["facts"],
        }


def signature(secret: str, stamp: str, body: bytes) -> str:
    """``sha256=`` and the hex HMAC of ``<timestamp>.<body>``: a replay shows by its age."""
    return "sha256=" + hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
