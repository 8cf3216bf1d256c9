"""Tokens, cookies and one-time links."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from dflash_supervise.web.session import COOKIE_LIFE_S, LINK_LIFE_S, MAX_LINKS, Sessions, next_path
from dflash_supervise.web.settings import WebSettings
from tests.unit.web.conftest import TOKEN, Dashboard


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_link_opens_once_and_only_within_its_minute() -> None:
    clock = Clock()
    sessions = Sessions(TOKEN, clock=clock)
    first, late = sessions.new_link(), sessions.new_link()
    assert sessions.use_link(first)
    assert not sessions.use_link(first)
    clock.now += LINK_LIFE_S + 1
    assert not sessions.use_link(late)


def test_the_oldest_links_give_way_to_new_ones() -> None:
    clock = Clock()
    sessions = Sessions(TOKEN, clock=clock)
    links = []
    for _ in range(MAX_LINKS + 1):
        links.append(sessions.new_link())
        clock.now += 0.1
    assert not sessions.use_link(links[0])
    assert sessions.use_link(links[-1])


def test_a_cookie_outlives_the_daemon_but_not_its_month_nor_its_token() -> None:
    clock = Clock()
    cookie = Sessions(TOKEN, clock=clock).new_cookie()
    assert Sessions(TOKEN, clock=clock).cookie_ok(cookie)
    assert not Sessions("u" * 43, clock=clock).cookie_ok(cookie)
    clock.now += COOKIE_LIFE_S + 1
    assert not Sessions(TOKEN, clock=clock).cookie_ok(cookie)


def test_a_cookie_from_the_future_or_changed_is_refused() -> None:
    clock = Clock()
    sessions = Sessions(TOKEN, clock=clock)
    cookie = sessions.new_cookie()
    issued, _, signature = cookie.partition(".")
    assert not sessions.cookie_ok(f"{int(issued) + 5}.{signature}")
    for broken in ("", ".", signature, f"{issued}.", f"x.{signature}", f"{issued}.{signature}0"):
        assert not sessions.cookie_ok(broken)
    clock.now -= 3600
    assert not sessions.cookie_ok(cookie)


def test_the_browsers_cookie_is_named_with_the_port_and_kept_from_scripts_and_other_sites(dashboard: Dashboard) -> None:
    path = dashboard.program().post("/api/v1/login").json()["path"]
    answer = dashboard.client().get(path)
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("dflash_8000=")
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Path=/" in cookie
    assert TOKEN not in cookie
    assert dashboard.client().get(path).status_code == 401


def test_signing_in_with_the_token_works_and_a_wrong_one_is_told(dashboard: Dashboard) -> None:
    client = dashboard.client(origin="http://localhost:8000", sec_fetch_site="same-origin", accept="text/html")
    wrong = client.post("/login", data={"token": "nonsense"})
    assert wrong.status_code == 401 and "not this daemon" in wrong.text and "set-cookie" not in wrong.headers
    right = client.post("/login", data={"token": f" {TOKEN} "})
    assert right.status_code == 200 and "set-cookie" in right.headers
    assert client.get("/").status_code == 200


def test_a_link_is_made_only_for_a_bearer_token(dashboard: Dashboard) -> None:
    assert dashboard.browser().post("/api/v1/login").status_code == 401


def test_a_short_token_is_our_own_mistake_and_never_shown() -> None:
    with pytest.raises(ValueError, match="256 bits"):
        WebSettings(token="short", port=8000)
    assert TOKEN not in repr(WebSettings(token=TOKEN, port=8000))


HOSTILE = [
    "//evil",
    "/\\evil",
    "\\\\evil",
    "https://evil",
    "https:evil",
    "javascript:alert(1)",
    "%2f%2fevil",
    "/runs/../..//evil",
    "/runs/%2e%2e",
    "/runs//evil",
    "/runs/a/goal",
    "/runs/a\n",
    "/runs/a\r\nset-cookie: x=1",
    "/runs/a?x=//evil",
    "/runs/a#@evil",
    "/runs/a@evil",
    "/runs/A",
    "/runs/\uff41",
    '/runs/"><script>',
    "/runs/a; url=//evil",
    " /runs/a",
    "/runs/",
    "/runs/" + "a" * 500,
    "",
]


def test_a_link_for_a_run_leads_to_its_page_also_by_way_of_the_token(dashboard: Dashboard) -> None:
    run_id = dashboard.program().get("/api/v1/runs/qwen-b16").json()["id"]
    path = dashboard.program().post("/api/v1/login", json={"run": "qwen-b16"}).json()["path"]
    assert f'content="0; url=/runs/{run_id}"' in dashboard.client().get(path).text
    used = dashboard.client(accept="text/html").get(path)
    assert used.status_code == 401 and f'name="next" value="/runs/{run_id}"' in used.text
    client = dashboard.client(origin="http://localhost:8000", sec_fetch_site="same-origin", accept="text/html")
    wrong = client.post("/login", data={"token": "nonsense", "next": f"/runs/{run_id}"})
    assert f'name="next" value="/runs/{run_id}"' in wrong.text
    right = client.post("/login", data={"token": TOKEN, "next": f"/runs/{run_id}"})
    assert f'content="0; url=/runs/{run_id}"' in right.text
    assert dashboard.program().post("/api/v1/login", json={"run": "nobody"}).status_code == 404


@pytest.mark.parametrize("wanted", HOSTILE)
def test_a_login_leads_nowhere_but_to_a_run_or_to_the_fleet(dashboard: Dashboard, wanted: str) -> None:
    assert next_path(wanted) == "/"
    for written in (wanted, quote(wanted, safe=""), quote(quote(wanted, safe=""), safe="")):
        path = dashboard.program().post("/api/v1/login").json()["path"]
        answer = dashboard.client().get(path + "&next=" + quote(written, safe="%"))
        assert answer.status_code == 200 and "location" not in answer.headers
        assert 'content="0; url=/"' in answer.text and "evil" not in answer.text
    client = dashboard.client(origin="http://localhost:8000", sec_fetch_site="same-origin", accept="text/html")
    for token in (TOKEN, "nonsense"):
        answer = client.post("/login", data={"token": token, "next": wanted})
        assert "evil" not in answer.text and "<script>" not in answer.text
        assert ('url=/"' if token == TOKEN else 'value="/"') in answer.text
