"""Pages as they leave the server: complete, honest about age, and safe with hostile text."""

from __future__ import annotations

import time
from html.parser import HTMLParser
from typing import Any

import pytest
from starlette.testclient import TestClient

from dflash_supervise.web import WebSettings, create_app
from dflash_supervise.web.timeline import timeline_values
from dflash_supervise.web.words import rfc3339
from tests.unit.web.conftest import TOKEN, Dashboard
from tests.unit.web.fakes import FakeControl, FakeStore
from tests.unit.web.fleet import HOSTILE
from tests.unit.web.story import FX_LINE

PAGES = ("/", "/runs/llama-anchor", "/runs/seed-picture", "/runs/demo-corpus", "/runs/llama-anchor/timeline", "/login")


class Page(HTMLParser):
    """What matters of a page: its words, and every element with its attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._quiet = 0
        self.feed(text)
        self.words = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data + " "

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def read(dashboard: Dashboard, path: str) -> Page:
    answer = dashboard.browser().get(path)
    assert answer.status_code == 200, path
    return Page(answer.text)


def test_the_fleet_shows_a_row_a_run_with_those_that_need_a_person_first(dashboard: Dashboard) -> None:
    page = read(dashboard, "/")
    rows = [attrs["id"] for attrs in page.all("tr") if attrs.get("id")]
    assert [str(row).removeprefix("row-").rsplit("-", 2)[0] for row in rows] == [
        "llama-anchor", "seed-picture", "mistral-long", "phi-small", "qwen-b16", "demo-corpus",
    ]  # fmt: skip
    for words in (
        "partial stall suspected", "Worker train-2 died in a traced function", "5 working; GPU 7 spinning",
        "861", "4.107", "30.1k", "Open incidents 4", "unreachable gpu-a07", "Last heard: running.",
    ):  # fmt: skip
        assert words in page.words, words


def test_an_empty_fleet_says_what_to_type() -> None:
    app = create_app(FakeStore(), FakeControl(), WebSettings(token=TOKEN, port=8000))
    answer = TestClient(app, base_url="http://localhost:8000", headers={"authorization": f"Bearer {TOKEN}"}).get("/")
    assert "dflash-supervise start lab8:/workspace" in answer.text
    assert "nothing runs" in answer.text


def test_a_run_page_has_ladder_reasons_charts_strips_log_and_forms(dashboard: Dashboard) -> None:
    page = read(dashboard, "/runs/llama-anchor")
    for words in (
        "Dead or alive", "process alive, 9 processes", "worker lost pending, true for 8 s", "step of train-2 812",
        "power GPU 2 122.4 W", "confirmed at 10 s", "Stands out thread train-2 on GPU 2", FX_LINE,
        "restart in 2 s: worker_lost is confirmed at 10 s", "Exception in thread train-2", "3 rules satisfied",
        "the last complete checkpoint is step 850: 11 steps may be lost", "slow: throughput is 63 %",
    ):  # fmt: skip
        assert words in page.words, words
    assert sum(str(attrs.get("class", "")).startswith("chart") for attrs in page.all("svg")) == 6
    assert any(attrs.get("aria-label", "").startswith("loss: ") for attrs in page.all("svg"))  # type: ignore[union-attr]
    assert [form["action"] for form in page.all("form")] == ["/runs/llama-anchor-2605041203-1a2b/goal"] * 3
    assert all(form["method"] == "post" for form in page.all("form"))


def test_a_run_that_is_over_offers_only_what_it_would_take(dashboard: Dashboard) -> None:
    def offered(run_id: str, **change: object) -> list[str]:
        dashboard.store.docs[run_id].update(change)
        page = read(dashboard, f"/runs/{run_id}")
        return [str(field["value"]) for field in page.all("input") if field.get("name") == "wish"]

    run_id = "llama-anchor-2605041203-1a2b"
    assert offered(run_id, final=True, verdict="crash") == ["restart"]
    assert offered(run_id, verdict="completed") == []
    assert offered(run_id, verdict="running", final=False, kind="adopted") == ["hold", "stop"]


def test_old_news_is_called_old_and_proves_nothing(dashboard: Dashboard) -> None:
    page = read(dashboard, "/runs/mistral-long")
    assert "The host cannot be reached: everything below is what was last heard" in page.words
    assert "The last verdict was running" in page.words
    marks = [attrs.get("aria-label") for attrs in page.all("svg") if str(attrs.get("class")).startswith("icon mark-")]
    assert marks == ["unknown"] * 5
    assert "has not acknowledged it yet" in page.words


def test_a_run_of_which_nothing_is_known_yet_shows_dashes_and_no_zeros(dashboard: Dashboard) -> None:
    dashboard.store.put_run({"id": "new-1", "name": "new", "host": "lab8", "created_at": rfc3339(time.time())})
    page = read(dashboard, "/runs/new-1")
    assert "no word yet" in page.words
    assert "Step \u2013 Loss \u2013 Tok/s \u2013" in page.words
    assert "nothing was observed yet" in page.words
    assert "The log is empty or does not exist." in page.words
    assert "no word yet" in read(dashboard, "/").words


@pytest.mark.parametrize("path", PAGES)
def test_pages_carry_no_script_style_or_address_that_the_policy_forbids(dashboard: Dashboard, path: str) -> None:
    page = read(dashboard, path)
    for tag, attrs in page.elements:
        assert "style" not in attrs, (tag, attrs)
        assert not [name for name in attrs if name.startswith("on")], (tag, attrs)
        for name in ("src", "href", "action"):
            assert (attrs.get(name) or "/").startswith(("/", "#", "?")), (tag, attrs)
    assert all(attrs.get("src") for attrs in page.all("script"))
    assert not page.all("style")


@pytest.mark.parametrize("path", PAGES)
def test_pages_have_a_language_a_title_one_heading_and_labels(dashboard: Dashboard, path: str) -> None:
    page = read(dashboard, path)
    assert page.all("html")[0]["lang"] == "en"
    tags = [tag for tag, _ in page.elements]
    assert tags.index("title") < tags.index("body")  # those of the pictures come later
    assert len(page.all("h1")) == 1
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    for svg in page.all("svg"):
        assert svg.get("aria-hidden") == "true" or svg.get("aria-label"), svg


def test_hostile_text_from_a_host_arrives_as_text_wherever_it_stands(dashboard: Dashboard) -> None:
    store = dashboard.store
    run = {**store.docs["llama-anchor-2605041203-1a2b"]}
    for key in ("sentence", "cause", "phase", "host", "target"):
        run[key] = HOSTILE
    run["notes"] = [{"slug": HOSTILE, "reason": HOSTILE}]
    store.put_run(run)
    store.logs[run["id"]] = (2, (HOSTILE + "\n").encode())
    store.incident_docs[0].update(
        sentence=HOSTILE, key_line=HOSTILE, response_text=HOSTILE, evidence=[{"what": HOSTILE, "value": HOSTILE}]
    )
    for kind in ("attempt_start", "attempt_end", "verdict", "action", "outcome", "note", "spec"):
        store.put_record(
            run["id"],
            {"kind": kind, "text": HOSTILE, "because": HOSTILE, "key_line": HOSTILE, "sentence": HOSTILE,
             "detail": HOSTILE,
             "type": HOSTILE, "remedies": [HOSTILE], "goal": {"want": HOSTILE}, "verdict": HOSTILE, "cause": HOSTILE,
             "findings": [{"rule": HOSTILE, "status": "failing", "reason": HOSTILE, "key_line": HOSTILE,
                           "evidence": [{"what": HOSTILE, "value": HOSTILE}]}]},
        )  # fmt: skip
    for path in ("/", "/runs/llama-anchor", "/runs/llama-anchor/timeline"):
        page = read(dashboard, path)
        assert not page.all("img"), path
        assert all(attrs.get("src") for attrs in page.all("script")), path
        assert all(attrs.get("href", "/").startswith(("/", "?", "#")) for attrs in page.all("a")), path  # type: ignore[union-attr]
        assert "<script>document.title" in page.words, path


def test_the_log_on_the_page_has_colours_but_no_commands(dashboard: Dashboard) -> None:
    store = dashboard.store
    store.logs["llama-anchor-2605041203-1a2b"] = (2, (HOSTILE + "\n").encode())
    text = dashboard.browser().get("/fragments/runs/llama-anchor/log").text
    assert '<span class="c-red">red</span>' in text
    for bad in ("\x1b", "\x07", "\x9b", "\u202e", "owned\x07", "evil.example\x07"):
        assert bad not in text


@pytest.mark.parametrize(
    ("fields", "goal"),
    [
        ({"wish": "stop"}, {"want": "stop"}),
        ({"wish": "run"}, {"want": "run"}),
        ({"wish": "hold", "hold_for_s": "7200"}, {"want": "hold", "hold_for_s": 7200.0}),
        ({"wish": "hold", "hold_for_s": ""}, {"want": "hold"}),
        ({"wish": "restart", "attempt": "2"}, {"want": "run", "end_attempt": 2}),
    ],
)
def test_each_form_asks_for_its_goal_and_leads_back(
    dashboard: Dashboard, fields: dict[str, str], goal: dict[str, object]
) -> None:
    answer = dashboard.browser().post("/runs/llama-anchor/goal", data=fields)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/runs/llama-anchor-2605041203-1a2b"
    assert dashboard.control.asked == [("set_goal", ("llama-anchor-2605041203-1a2b", goal))]


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"wish": "explode"}, {"wish": "hold", "hold_for_s": "1e9"}, {"wish": "restart"},
        {"wish": "restart", "attempt": "-1"}, {"wish": "restart", "attempt": "\u0663"},
    ],
)  # fmt: skip
def test_a_form_that_is_not_ours_moves_nothing(dashboard: Dashboard, fields: dict[str, str]) -> None:
    assert dashboard.browser().post("/runs/llama-anchor/goal", data=fields).status_code == 400
    assert dashboard.control.asked == []


def test_the_timeline_tells_the_story_newest_first_and_pages_backwards(dashboard: Dashboard) -> None:
    run_id = "phi-small-2605041203-1a2b"
    for n in range(250):
        dashboard.store.put_record(run_id, {"kind": "note", "text": f"note {n}"})
    first = read(dashboard, "/runs/phi-small/timeline")
    assert "note 249" in first.words and "note 49 " not in first.words
    older = [attrs["href"] for attrs in first.all("a") if str(attrs.get("href")).startswith("?before=")]
    second = read(dashboard, f"/runs/phi-small/timeline{older[0]}")
    assert "note 49 " in second.words and "note 50 " not in second.words
    assert "attempt 2 ended: crash (cuda_illegal_memory_access)" in second.words
    assert "because cuda_illegal_memory_access, restart 1 of 1" in second.words
    assert not [attrs for attrs in second.all("a") if str(attrs.get("href")).startswith("?before=")]


@pytest.mark.parametrize(
    ("ok", "word", "tone"), [(True, "done", "ok"), (False, "failed", "bad"), (None, "unknown", "unknown")]
)
def test_an_outcome_that_nobody_knows_is_not_shown_as_a_failure(
    dashboard: Dashboard, ok: bool | None, word: str, tone: str
) -> None:
    run = dashboard.store.run("phi-small")
    assert run is not None
    dashboard.store.put_record(run["id"], {"kind": "outcome", "type": "Stop", "ok": ok, "detail": "no word"})
    told = timeline_values(dashboard.store, run, None, 0.0)["entries"][0]
    assert (told.title, told.tone) == (f"outcome: Stop {word}", tone)


@pytest.mark.parametrize("before", [None, 10_000])
def test_a_page_of_the_timeline_reads_each_record_once(
    dashboard: Dashboard, monkeypatch: pytest.MonkeyPatch, before: int | None
) -> None:
    run, original = dashboard.store.run("phi-small"), dashboard.store.records
    rows: list[int] = []

    def counting(*arguments: Any, **options: Any) -> list[Any]:
        found = original(*arguments, **options)
        rows.extend(record["row"] for record in found)
        return found

    monkeypatch.setattr(dashboard.store, "records", counting)
    assert run is not None and timeline_values(dashboard.store, run, before, 0.0)["entries"]
    assert len(rows) == len(set(rows)) > 0


def test_an_unknown_run_gets_a_page_and_not_a_document(dashboard: Dashboard) -> None:
    answer = dashboard.browser().get("/runs/nobody")
    assert answer.status_code == 404
    assert "There is no run nobody." in answer.text
    assert "<code>dflash-supervise ps -a</code>" in answer.text


@pytest.mark.parametrize(
    ("changes", "due"),
    [
        ({"verdict_age_s": 0.5}, "restart in 2 s: worker_lost"),
        ({"verdict_age_s": 2.5}, "restart now: worker_lost"),
        (
            {"verdict_age_s": 122.0, "reachable": False},
            "restart, due 2 min ago; whether it has happened is not known: w",
        ),
        ({"verdict_age_s": 122.0, "news_unix": 0.0}, "restart, due 2 min ago; whether it has happened is not known: w"),
        ({"verdict_age_s": None}, "restart, at a time that is not known: worker_lost"),
    ],
)
def test_what_comes_next_counts_from_when_it_was_told_and_is_never_now_on_a_silent_host(
    dashboard: Dashboard, changes: dict[str, object], due: str
) -> None:
    dashboard.store.docs["llama-anchor-2605041203-1a2b"].update(changes)
    assert due in read(dashboard, "/runs/llama-anchor").words


def test_evidence_grows_old_after_it_was_told(dashboard: Dashboard) -> None:
    run = dashboard.store.docs["llama-anchor-2605041203-1a2b"]
    run["verdict_age_s"] = 20.0
    dashboard.store.incident_docs[0]["told_age_s"] = 7.0
    words = read(dashboard, "/runs/llama-anchor").words
    assert "step of train-2 812 20 s old" in words and "step of train-2 812 7 s old" in words
    run["verdict_age_s"] = None
    del dashboard.store.incident_docs[0]["told_age_s"]
    assert "old" not in read(dashboard, "/runs/llama-anchor").words.split("step of train-2 812", 1)[1][:8]
