"""The dashboard in a real browser: without scripts, live, on a phone, by keyboard, and against hostile text."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Route, expect

from dflash_supervise.web import render
from tests.browser.conftest import Desk
from tests.browser.serve import TOKEN, served
from tests.unit.web.docs import observation
from tests.unit.web.fleet import HOSTILE

PAGES = ("/", "/runs/llama-anchor", "/runs/seed-picture", "/runs/mistral-long", "/runs/llama-anchor/timeline")
QWEN = "qwen-b16-2605041203-1a2b"
LLAMA = "llama-anchor-2605041203-1a2b"


def change(desk: Desk, run_id: str, **changes: object) -> None:
    """What the daemon does when records of a run arrive."""
    desk.store.put_run({**desk.store.docs[run_id], "news_unix": time.time(), **changes})
    desk.store.put_record(run_id, observation(desk.store.docs[run_id]))


def test_pages_are_complete_without_javascript(desk: Desk) -> None:
    page = desk.open("/", java_script_enabled=False)
    expect(page.get_by_text("Worker train-2 died").first).to_be_visible()
    expect(page.get_by_text("as of")).to_be_visible()
    page.get_by_role("table").get_by_role("link", name="llama-anchor").click()
    expect(page.get_by_role("heading", name="Dead or alive")).to_be_visible()
    expect(page.locator("figure[data-chart=Loss] svg.wide")).to_be_visible()
    expect(page.get_by_text("Exception in thread train-2")).to_be_visible()
    page.get_by_text("Stop\u2026").click()
    page.get_by_role("button", name="Stop this run").click()
    expect(page).to_have_url(f"{desk.url}/runs/{LLAMA}")
    assert desk.control.asked == [("set_goal", (LLAMA, {"want": "stop"}))]


def test_the_fleet_follows_what_happens_without_a_reload(desk: Desk) -> None:
    page = desk.open("/")
    expect(page.locator("#live-words")).to_have_text("live")
    page.evaluate("window.still = true")
    change(desk, QWEN, step=12999, verdict="hang", sentence="No step for 95 s while all GPUs spin.", open_incidents=1)
    row = page.locator(f"#row-{QWEN}")
    expect(row.get_by_text("No step for 95 s while all GPUs spin.")).to_be_visible()
    expect(row.get_by_text("12,999")).to_be_visible()
    expect(page).to_have_title("5 with open incidents \u2013 dflash-supervise")
    assert page.evaluate("window.still")


def test_a_run_page_follows_and_its_title_and_icon_carry_the_state(desk: Desk) -> None:
    page = desk.open("/runs/qwen-b16")
    assert "icon-ok" in (page.locator("#favicon").get_attribute("href") or "")
    change(desk, QWEN, verdict="crash", cause="segfault", sentence="Attempt 1 ended by signal 11.")
    expect(page.get_by_text("Attempt 1 ended by signal 11.")).to_be_visible()
    expect(page).to_have_title("crash \u00b7 qwen-b16 \u2013 dflash-supervise")
    assert "icon-bad" in (page.locator("#favicon").get_attribute("href") or "")
    desk.store.logs[QWEN] = (1, b"a line that came later\n")
    change(desk, QWEN)
    expect(page.get_by_text("a line that came later")).to_be_visible()


def test_an_open_form_survives_news_and_says_what_would_be_lost_now(desk: Desk) -> None:
    page = desk.open("/runs/qwen-b16")
    expect(page.locator("#live-words")).to_have_text("live")
    change(desk, QWEN, step=12500)
    expect(page.locator(".facts").get_by_text("12,500")).to_be_visible()
    page.get_by_text("Stop\u2026").click()
    expect(page.locator("#stop-form")).to_contain_text("100 steps may be lost")
    expect(page.locator("#restart-form")).to_contain_text("80 steps may be lost")  # nobody opened that one
    change(desk, QWEN, step=12501)
    expect(page.locator(".facts").get_by_text("12,501")).to_be_visible()
    expect(page.get_by_role("button", name="Stop this run")).to_be_visible()


def test_what_a_reader_unfolded_stays_unfolded(desk: Desk) -> None:
    page = desk.open("/runs/llama-anchor")
    expect(page.locator("#live-words")).to_have_text("live")
    page.get_by_text("3 rules satisfied").click()
    change(desk, LLAMA, step=862)
    expect(page.locator(".facts").get_by_text("862")).to_be_visible()
    expect(page.get_by_text("The main process lives.")).to_be_visible()


def test_the_stop_form_is_reached_and_sent_by_keyboard_alone(desk: Desk) -> None:
    page = desk.open("/runs/qwen-b16")
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").startswith("Stop"):
            break
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    button = page.get_by_role("button", name="Stop this run")
    expect(button).to_be_visible()
    with page.expect_response(lambda answer: answer.url.endswith("/goal") and answer.request.method == "POST"):
        page.keyboard.press("Tab")
        expect(button).to_be_focused()
        page.keyboard.press("Enter")
    assert desk.control.asked == [("set_goal", (QWEN, {"want": "stop"}))]


def test_a_fresh_form_that_comes_late_takes_no_focus_away(desk: Desk) -> None:
    page = desk.open("/runs/qwen-b16")
    waiting: list[Route] = []

    def late(route: Route) -> None:
        waiting.append(route)

    page.route("**/goal/stop", late)
    page.locator("summary", has_text="Stop").press("Enter")
    button = page.get_by_role("button", name="Stop this run")
    expect(button).to_be_visible()
    button.focus()
    with page.expect_response("**/goal/stop"):
        page.wait_for_function("() => document.querySelector('#stop-form')")
        waiting[0].continue_()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    expect(button).to_be_focused()


def test_ages_grow_and_a_page_without_news_greys_out(desk: Desk) -> None:
    with served(desk.store, desk.control) as url:
        page = desk.context().new_page()
        page.clock.install()
        page.goto(f"{url}/runs/demo-corpus")
        expect(page.locator("#live-words")).to_have_text("live")
        news = page.locator(".facts").get_by_text("2 h ago")
        expect(news).to_be_visible()
    page.clock.fast_forward(600_000)
    expect(page.locator("html")).to_have_attribute("data-live", "lost")
    expect(page.locator("#live-words")).to_contain_text("this page is old")
    expect(page.locator(".facts").get_by_text("2 h 10 min ago")).to_be_visible()
    expect(page.locator("#now")).to_have_css("filter", "grayscale(1)")


def test_a_daemon_that_comes_back_is_heard_again_from_where_it_stopped(desk: Desk) -> None:
    with served(desk.store, desk.control) as url:
        page = desk.context().new_page()
        page.goto(f"{url}/runs/qwen-b16")
        expect(page.locator("#live-words")).to_have_text("live")
    change(desk, QWEN, sentence="This happened while nobody listened.")
    with served(desk.store, desk.control, port=urlsplit(url).port or 0):
        expect(page.get_by_text("This happened while nobody listened.")).to_be_visible()


def test_a_paused_page_stands_still_until_it_is_resumed(desk: Desk) -> None:
    page = desk.open("/")
    expect(page.locator("#live-words")).to_have_text("live")
    page.get_by_role("button", name="Pause").click()
    other = desk.open("/")  # shows that the news has gone out
    for step, text in ((13000, "13,000"), (13001, "13,001")):
        change(desk, QWEN, step=step)
        expect(other.get_by_text(text)).to_be_visible()
    expect(page.locator(f"#row-{QWEN} td[data-label=Step]")).to_contain_text("12,480")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("13,001")).to_be_visible()


def test_hostile_text_is_shown_and_not_executed(desk: Desk) -> None:
    run = {**desk.store.docs[LLAMA], "sentence": HOSTILE, "target": HOSTILE}
    desk.store.put_run(run)
    desk.store.logs[LLAMA] = (2, (HOSTILE + "\n").encode())
    page = desk.open("/runs/llama-anchor")
    expect(page.locator("#live-words")).to_have_text("live")
    change(desk, LLAMA)
    expect(page.locator(".log")).to_contain_text("<script>document.title='owned'</script>")
    expect(page.locator("img")).to_have_count(0)
    assert "owned" not in page.title()
    assert desk.complaints == []


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_phone_never_scrolls_sideways(desk: Desk, path: str, scripts: bool) -> None:
    page = desk.open(path, viewport={"width": 390, "height": 844}, java_script_enabled=scripts)
    wide = page.locator("html").evaluate("(el) => [el.scrollWidth, document.body.scrollWidth]")
    assert wide == [390, 390]


def test_every_request_goes_to_the_dashboard_and_nothing_breaks_its_policy(desk: Desk) -> None:
    for path in PAGES:
        page = desk.open(path)
        if "timeline" not in path:
            expect(page.locator("#live-words")).to_have_text("live")
    assert len(desk.requests) > 20
    assert {urlsplit(url).netloc for url in desk.requests} == {urlsplit(desk.url).netloc}
    assert desk.complaints == []


def test_charts_are_drawn_anew_with_a_shared_cursor(desk: Desk) -> None:
    page = desk.open("/runs/qwen-b16")
    expect(page.locator(".uplot canvas")).to_have_count(2)
    expect(page.locator("figure[data-chart=Loss] svg.wide")).to_be_hidden()
    page.locator("figure[data-chart=Loss] .u-over").hover()
    expect(page.locator("figure[data-chart='Tokens per second'] .u-legend")).not_to_contain_text("\u2013")
    change(desk, QWEN)
    expect(page.locator(".uplot canvas")).to_have_count(2)


def test_pages_work_without_the_fetched_libraries(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "vendored", lambda _static: {"htmx": False, "uplot": False})
    page = desk.open("/runs/qwen-b16")
    expect(page.locator("#live-words")).to_contain_text("reload for news")
    expect(page.locator("figure[data-chart=Loss] svg.wide")).to_be_visible()
    page.get_by_text("Hold\u2026").click()
    page.get_by_role("button", name="Hold", exact=True).click()
    expect(page).to_have_url(f"{desk.url}/runs/{QWEN}")
    assert desk.control.asked == [("set_goal", (QWEN, {"want": "hold", "hold_for_s": 7200.0}))]
    assert not [url for url in desk.requests if "vendor" in url]
    assert desk.complaints == []


def test_a_link_for_a_run_leads_a_browser_to_its_page(desk: Desk) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    path = httpx.post(f"{desk.url}/api/v1/login", headers=headers, json={"run": QWEN}).json()["path"]
    page = desk.context(extra_http_headers={}).new_page()
    page.goto(desk.url + path)
    expect(page).to_have_url(f"{desk.url}/runs/{QWEN}")


def test_a_one_time_link_signs_a_browser_in(desk: Desk) -> None:
    path = httpx.post(f"{desk.url}/api/v1/login", headers={"Authorization": f"Bearer {TOKEN}"}).json()["path"]
    page = desk.context(extra_http_headers={}).new_page()
    page.goto(desk.url + path)
    expect(page).to_have_url(f"{desk.url}/")
    expect(page.locator("#live-words")).to_have_text("live")
    page.goto(f"{desk.url}/runs/qwen-b16")
    page.get_by_text("Stop\u2026").click()
    page.get_by_role("button", name="Stop this run").click()
    expect(page).to_have_url(f"{desk.url}/runs/{QWEN}")
    assert desk.control.asked == [("set_goal", (QWEN, {"want": "stop"}))]
