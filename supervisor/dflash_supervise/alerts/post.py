"""One POST to an address of the configuration: https, no redirects, and the address checked is the one used."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

TIMEOUT_S = 15.0
BODY_SHOWN = 200


class BadAddress(ValueError):
    """The URL may not be used; the text says why, never the URL itself (it is a secret)."""


class NoAnswer(Exception):
    """The world's: no name, no connection, no answer in time."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    retry_after_s: float | None


def check(url: str, *, allow_loopback_http: bool) -> httpx.URL:
    """The parsed URL, if its scheme and host may be used at all.

    Raises:
        BadAddress
    """
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError) as error:
        raise BadAddress("is not a URL") from error
    if not parsed.host:
        raise BadAddress("names no host")
    if parsed.scheme not in ("https", "http"):
        raise BadAddress("must begin with https://")
    if parsed.scheme == "http" and not allow_loopback_http:
        raise BadAddress("must begin with https:// (http is for loopback only, with [alerts] allow_loopback_http)")
    return parsed


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_loopback_http: bool) -> Answer:
    """Send it and read the answer. A redirect is an answer like any other and is not followed.

    Raises:
        BadAddress: the URL, or the address behind its name, may not be used.
        NoAnswer: nothing came back.
    """
    parsed = check(url, allow_loopback_http=allow_loopback_http)
    address = _address(parsed, allow_loopback_http)
    pinned = parsed.copy_with(host=address)
    sent = {**headers, "Host": parsed.netloc.decode("ascii")}
    try:
        # The environment's proxies would connect to an address that nobody checked.
        with httpx.Client(follow_redirects=False, timeout=TIMEOUT_S, trust_env=False) as client:
            answer = client.post(pinned, content=body, headers=sent, extensions={"sni_hostname": parsed.host})
    except httpx.HTTPError as error:
        raise NoAnswer(f"{parsed.host}: {type(error).__name__}") from error
    return Answer(answer.status_code, answer.text[:BODY_SHOWN].strip(), _retry_after(answer))


def _address(url: httpx.URL, allow_loopback: bool) -> str:
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise NoAnswer(f"{url.host}: the name is not known") from error
    address = ipaddress.ip_address(str(found[0][4][0]).partition("%")[0])
    if address.is_loopback and not allow_loopback:
        raise BadAddress("leads to this machine; [alerts] allow_loopback_http permits that")
    if url.scheme == "http" and not address.is_loopback:
        raise BadAddress("must begin with https:// unless it leads to this machine")
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise BadAddress("leads to an address that is no receiver (link-local, multicast or none)")
    return str(address)


def _retry_after(answer: httpx.Response) -> float | None:
    try:
        return max(0.0, float(answer.headers["retry-after"]))
    except (KeyError, ValueError):
        return None
