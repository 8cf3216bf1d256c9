"""Who may speak to the dashboard, and what every answer carries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.routing import APIRoute

from dflash_supervise.web import Refused
from dflash_supervise.web.guard import OPEN_PATHS
from tests.unit.web.conftest import TOKEN, Dashboard

BEARER = f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LOCALHOST:8000",
        "127.0.0.1:8000",
        "[::1]:8000",
        "localhost:9123",
        "gpu-desk.lan:8000",
    ],
)
def test_loopback_names_with_any_port_and_configured_names_are_served(dashboard: Dashboard, host: str) -> None:
    assert dashboard.client(host=host, authorization=BEARER).get("/api/v1/runs").status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8000", "localhost.evil.example:8000", "127.0.0.1.nip.io:8000", "gpu-desk.lan",
        "gpu-desk.lan:9000", "localhost:8000@evil.example", "localhost:", "localhost:80a", "0.0.0.0:8000", "::1", "",
        "localhost:8000\tx", "127.0.0.2:8000",
    ],
)  # fmt: skip
def test_a_rebound_name_is_refused_even_with_the_token_and_on_open_paths(dashboard: Dashboard, host: str) -> None:
    client = dashboard.client(host=host, authorization=BEARER)
    for path in ("/api/v1/runs", "/healthz", "/static/app.css", "/login"):
        answer = client.get(path)
        assert answer.status_code == 421, path
        assert answer.json()["error"]["code"] == "bad_host"
        assert "[daemon] allowed_hosts" in answer.json()["error"]["fix"], "the key that the configuration knows"


def test_a_second_host_header_is_refused(dashboard: Dashboard) -> None:
    client = dashboard.client(authorization=BEARER)
    answer = client.get("/healthz", headers=[("host", "localhost:8000"), ("host", "evil.example")])
    assert answer.status_code == 400


def _routes(dashboard: Dashboard) -> Iterator[tuple[str, str]]:
    schema = [route for route in _flat(dashboard.app.routes) if isinstance(route, APIRoute)]
    assert len(schema) > 25
    for route in schema:
        path = route.path
        for name, value in (
            ("{name}", "qwen-b16"), ("{operation_id}", "op-1"), ("{wish}", "stop"),
        ):  # fmt: skip
            path = path.replace(name, value)
        for method in route.methods or ():
            yield method, path


def _flat(routes: object) -> Iterator[object]:
    for route in routes:  # type: ignore[attr-defined]
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from _flat(inner.routes)
        else:
            yield route


def test_every_route_but_the_open_ones_needs_the_token(dashboard: Dashboard) -> None:
    client = dashboard.client(sec_fetch_site="same-origin", origin="http://localhost:8000")
    for method, path in _routes(dashboard):
        if path in OPEN_PATHS:
            continue
        answer = client.request(method, path, json={})
        assert answer.status_code == 401, (method, path)
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_no_get_asks_the_daemon_for_anything(dashboard: Dashboard) -> None:
    client = dashboard.program()
    gets = [path for method, path in _routes(dashboard) if method == "GET" and "events" not in path]
    assert len(gets) > 15
    for path in gets:
        assert client.get(path).status_code == 200, path
    assert dashboard.control.asked == []


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "origin": "http://localhost:3000"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:3000"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "none", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "same-origin", "origin": "http://evil.example"},
    ],
)
def test_whatever_acts_is_refused_from_another_site(dashboard: Dashboard, method: str, headers: dict[str, str]) -> None:
    client = dashboard.client(authorization=BEARER, **headers)
    answer = client.request(method, "/api/v1/runs/qwen-b16/goal", json={"want": "stop", "yes": True})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "cross_site"
    assert dashboard.control.asked == []


def test_a_cookie_alone_moves_nothing_without_word_of_where_it_comes_from(dashboard: Dashboard) -> None:
    signed_in = dashboard.browser()
    client = dashboard.client(cookie="; ".join(f"{k}={v}" for k, v in signed_in.cookies.items()))
    assert client.get("/api/v1/runs").status_code == 200
    assert client.post("/runs/qwen-b16/goal", data={"wish": "stop"}).status_code == 403
    assert dashboard.control.asked == []


def test_the_dashboards_own_form_is_heard(dashboard: Dashboard) -> None:
    answer = dashboard.browser().post("/runs/qwen-b16/goal", data={"wish": "stop"})
    assert answer.status_code == 303
    assert dashboard.control.asked == [("set_goal", ("qwen-b16-2605041203-1a2b", {"want": "stop"}))]


def test_a_program_with_the_token_needs_no_origin(dashboard: Dashboard) -> None:
    answer = dashboard.program().post("/api/v1/runs/qwen-b16/goal", json={"want": "hold", "yes": True})
    assert answer.json() == {"generation": 4, "acknowledged": False}


def test_another_site_may_link_here_but_not_read_here(dashboard: Dashboard) -> None:
    link = dashboard.browser(sec_fetch_site="cross-site", sec_fetch_mode="navigate", origin="http://localhost:8000")
    assert link.get("/").status_code == 200
    for site in ("cross-site", "same-site"):
        peek = dashboard.client(authorization=BEARER, sec_fetch_site=site, sec_fetch_mode="no-cors")
        for path in ("/events", "/api/v1/runs", "/static/live.js"):
            assert peek.get(path).status_code == 403, (site, path)


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer " + "t" * 42, "Bearer " + "t" * 44, f"Basic {TOKEN}", TOKEN]
)
def test_a_wrong_token_is_refused(dashboard: Dashboard, authorization: str) -> None:
    answer = dashboard.client(authorization=authorization).get("/api/v1/runs")
    assert answer.status_code == 401
    assert answer.json()["error"]["exit_code"] == 2
    assert TOKEN not in answer.text


def test_a_wrong_token_is_not_saved_by_a_good_cookie(dashboard: Dashboard) -> None:
    client = dashboard.browser(authorization="Bearer wrong")
    assert client.get("/api/v1/runs").status_code == 401


def test_a_declared_body_over_64_kb_is_refused(dashboard: Dashboard) -> None:
    answer = dashboard.program().post("/api/v1/runs", content=b"x" * 65537)
    assert answer.status_code == 413
    assert dashboard.control.asked == []


def test_a_body_that_grows_over_64_kb_is_refused(dashboard: Dashboard) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"target": "'
        for _ in range(80):
            yield b"x" * 1024

    answer = dashboard.program().post("/api/v1/runs", content=endless())
    assert answer.status_code == 413
    assert dashboard.control.asked == []


def test_a_body_of_just_64_kb_is_read(dashboard: Dashboard) -> None:
    frame = b'{"target": "lab8:/w", "train_file": ""}'
    body = frame[:-2] + b"x" * (65536 - len(frame)) + b'"}'
    answer = dashboard.program().post("/api/v1/runs", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 202


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 200), ("/nowhere", 404), ("/static/app.css", 200), ("/healthz", 200), ("/api/v1/runs", 200)],
)
def test_every_answer_carries_the_security_headers(dashboard: Dashboard, path: str, status: int) -> None:
    answer = dashboard.program().get(path)
    assert answer.status_code == status
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy and "http" not in policy and "data:" not in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["cache-control"] == ("no-cache" if path.startswith("/static") else "no-store")
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_failure_carries_them_too_and_tells_no_secret(dashboard: Dashboard) -> None:
    def breaks() -> list[object]:
        raise RuntimeError("secret detail")

    dashboard.store.runs = breaks  # type: ignore[method-assign, assignment]
    client = dashboard.program()
    client._transport.raise_server_exceptions = False
    answer = client.get("/api/v1/runs")
    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    assert answer.json()["error"]["code"] == "internal_error"
    assert "content-security-policy" in answer.headers


def test_a_browser_that_is_not_signed_in_gets_a_page_that_says_how(dashboard: Dashboard) -> None:
    answer = dashboard.client(accept="text/html", sec_fetch_site="none", sec_fetch_mode="navigate").get("/")
    assert answer.status_code == 401
    assert "dflash-supervise open" in answer.text


def test_no_path_of_a_client_reaches_a_file_outside(dashboard: Dashboard) -> None:
    client = dashboard.program()
    for path in ("/static/../web/base.html", "/static/%2e%2e/web/base.html", "/static/..%2fweb/base.html"):
        assert client.get(path).status_code == 404


def test_websockets_are_closed(dashboard: Dashboard) -> None:
    from starlette.websockets import WebSocketDisconnect

    with pytest.raises(WebSocketDisconnect) as closed:
        with dashboard.program().websocket_connect("/events"):
            pass
    assert closed.value.code == 1008


def test_what_the_daemon_refuses_is_told_with_its_fix(dashboard: Dashboard) -> None:
    dashboard.control.refusal = Refused("host_key_unknown", "The key of lab8 is new.", "Run `host trust`.", exit_code=5)
    answer = dashboard.program().post("/api/v1/adopt", json={"target": "lab8:/workspace"})
    assert answer.status_code == 409
    assert answer.json()["error"] == {
        "code": "host_key_unknown",
        "message": "The key of lab8 is new.",
        "fix": "Run `host trust`.",
        "exit_code": 5,
    }
    page = dashboard.browser().post("/runs/qwen-b16/goal", data={"wish": "stop"})
    assert page.status_code == 409
    assert "<code>host trust</code>" in page.text
