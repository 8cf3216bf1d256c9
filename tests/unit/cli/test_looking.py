"""Verbs that look at runs: what they show, what they ask for, what they exit with."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, hang_why, run_doc

RUN = "qwen-2611300501-1f2e"


def test_ps_shows_a_row_a_run_and_the_sentence_of_the_sick_ones(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [
        run_doc(),
        run_doc(name="llama", verdict="hang", suspected=True, sentence="No step for 40 s.", gpus=[]),
        run_doc(name="old", verdict="completed", final=True, news_age_s=200000.0),
    ]
    ran = invoke("ps")
    lines = ran.out.splitlines()
    assert ran.code == 0
    assert lines[0].split() == ["RUN", "HOST", "VERDICT", "STEP", "TOK/S", "ETA", "GPUS", "ATT", "NEWS"]
    assert lines[1].split() == [
        "qwen",
        "lab8",
        "\u25cf",
        "running",
        "120/400",
        "12,346",
        "4m",
        "\u2588\u2588",
        "1",
        "1s",
    ]
    assert "hang?" in lines[2]
    assert "llama: No step for 40 s." in ran.out and "dflash-supervise why llama" in ran.out
    assert "old" not in ran.out
    assert "old" in invoke("ps", "-a").out
    assert max(len(line) for line in lines) <= 80


def test_json_is_one_document_with_a_schema_and_everything_the_daemon_said(
    invoke: Invoke, daemon: DaemonDouble
) -> None:
    daemon.runs = [run_doc(sentence="\x1b]0;pwned\x07x")]
    document = json.loads(invoke("ps", "--json").out)
    assert document["schema"] == 1 and document["runs"] == daemon.runs
    assert "\x1b" not in invoke("ps", "--json").out
    assert "pwned" not in invoke("status", "qwen").out


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, 0),
        ({"verdict": "starting"}, 0),
        ({"verdict": "completed", "final": True, "exit_status": 0}, 0),
        ({"verdict": "crash"}, 3),
        ({"verdict": None}, 3),
        ({"verdict": "hang"}, 3),
        ({"verdict": "host_unreachable", "reachable": False}, 4),
        ({"verdict": "crash", "final": True, "exit_status": 100}, 100),
        ({"verdict": "stopped", "final": True, "exit_status": 103}, 103),
        ({"verdict": "hang", "final": True, "exit_status": 104}, 104),
        ({"verdict": "ended_unclear", "final": True, "exit_status": 105}, 105),
        ({"verdict": "crash", "final": True, "exit_status": 100, "reachable": False}, 100),
    ],
)
def test_status_says_how_the_run_is_by_its_exit_code(
    invoke: Invoke, daemon: DaemonDouble, changes: dict[str, object], code: int
) -> None:
    daemon.runs = [run_doc(**changes)]
    assert invoke("status", "qwen").code == code


def test_a_run_is_found_by_id_name_and_beginning_and_else_guessed(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [
        run_doc(name="qwen-b16", created_at="2026-11-30T05:01:00Z"),
        {**run_doc(name="qwen-b16", created_at="2026-11-30T06:01:00Z"), "id": "qwen-b16-2611300601-aaaa"},
        run_doc(name="llama"),
    ]
    assert "llama" in invoke("status", "ll").out
    assert "qwen-b16-2611300601-aaaa" in invoke("status", "qwen-b16").out, "the newest of a name"
    assert "qwen-b16-2611300501-1f2e" in invoke("status", "qwen-b16-2611300501-1f2e").out
    ran = invoke("status", "lama")
    assert ran.code == 102 and "did you mean llama" in ran.err
    ran = invoke("status", "nothing-like-it", "--json")
    assert ran.code == 102 and json.loads(ran.out)["error"]["code"] == "no_such_run"
    daemon.runs.append(run_doc(name="qwen-b8"))
    assert "several runs" in invoke("status", "qwen").err


def test_why_shows_verdict_evidence_rules_with_margins_incidents_and_what_comes_next(
    invoke: Invoke, daemon: DaemonDouble
) -> None:
    why = hang_why()
    daemon.runs, daemon.whys = [why["run"]], {RUN: why}
    ran = invoke("why", "qwen")
    assert ran.code == 0
    text = ran.out
    assert (
        text.index("hang") < text.index("Evidence") < text.index("Rules") < text.index("Incidents") < text.index("Next")
    )
    assert text.index("flat_progress") < text.index("worker_lost") < text.index("stale_process")
    for part in (
        "qwen on lab8",
        "attempt 2",
        "step 90/240",
        "No step for 72 s, every GPU spins",
        "power GPU 0",
        "124 W",
        "3.1 s",  # age of the reading when it was sent, and the age of the news
        "culprit: thread drafter-1",
        "called by in_worker (faults.py:101), called by loop",
        "#1 crash, rank_exception 26 s 49 40",
        "waiting for the lock",
        "fired, held 1m 12s of the 45 s it needs",
        "31 s of 45 s, 14 s to go",
        "cannot say",
        "nothing found by exited",
        "restarting (1 of 3)",
        "1 resolved before: rank_exception (attempt 1)",
        "disk_low: 1.2 GiB",
        "host: cgroup files are not readable",
        "stop the attempt in 10 s: then the run goes on from checkpoint 80",
        "Goal: run (generation 2; the host knows it). Policy: auto.",
    ):
        assert part in text or part in " ".join(text.split()), part
    assert text.count(why["run"]["sentence"][:30]) == 1, "what stands above is not said again"
    assert "pwned" not in text and "\x1b" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_why_tells_what_the_newest_resolved_incident_rested_on(invoke: Invoke, daemon: DaemonDouble) -> None:
    why = hang_why()
    stack = {"what": "stack", "value": "thread 1: _wait_on_a_lock_for_ever (faults.py:137), called by in_worker"}
    cured = {**why["incidents"][0], "state": "resolved", "resolved_at": "2026-11-30T05:08:30.000Z", "evidence": [stack]}
    why = {**why, "incidents": [why["incidents"][1], cured], "run": run_doc(attempt=3), "verdict": None}
    daemon.runs, daemon.whys = [why["run"]], {RUN: why}
    text = " ".join(invoke("why", "qwen").out.split())
    assert "hang: was open since" in text and "resolved" in text and "_wait_on_a_lock_for_ever (faults.py:137)" in text
    assert "1 resolved before: rank_exception (attempt 1)" in text


def test_why_of_a_silent_host_concludes_nothing(invoke: Invoke, daemon: DaemonDouble) -> None:
    why = hang_why()
    why["run"].update(
        verdict="host_unreachable",
        cause="ssh_connection_lost",
        reachable=False,
        unreachable_since="2026-11-30T05:07:48.000Z",
        last_verdict="running",
    )
    why["verdict"] = None
    why["age_s"] = None
    daemon.runs, daemon.whys = [why["run"]], {RUN: why}
    text = invoke("why", "qwen").out
    assert "? host_unreachable, ssh_connection_lost" in text
    assert "nothing is concluded from its silence" in " ".join(text.split())
    assert "last word was running" in " ".join(text.split())


def test_logs_are_cleaned_unless_raw_is_asked_for(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.logs = {(RUN, 1): b"one\n\x1b]0;pwned\x07two\x1b[31m red\nlast"}
    assert invoke("logs", "qwen").out == "one\ntwo red\nlast\n"
    assert invoke("logs", "qwen", "--raw").out == "one\n\x1b]0;pwned\x07two\x1b[31m red\nlast"
    assert json.loads(invoke("logs", "qwen", "--json").out)["attempt"] == 1
    assert invoke("logs", "qwen", "-n", "1").out == "last\n"


def test_following_a_log_goes_on_over_a_restart_and_exits_as_the_run_did(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.logs = {(RUN, 1): b"a1\n" * 3, (RUN, 2): b"b1\nb2\n"}
    daemon.looks[RUN] = [
        run_doc(),
        run_doc(attempt=2),
        run_doc(attempt=2, verdict="completed", final=True, exit_status=0),
    ]
    ran = invoke("logs", "qwen", "-f", "--attempt", "1", "-n", "2")
    assert (ran.code, ran.out) == (0, "a1\na1\n"), "one attempt only, and it ends with it"
    del daemon.logs[RUN, 2]
    daemon.looks[RUN] = [run_doc(), run_doc(attempt=2, verdict="crash", final=True, exit_status=100)]
    original = daemon.answer

    def grow(method: str, path: str, query: dict[str, str], body: dict[str, object]) -> tuple[int, dict[str, object]]:
        if query.get("attempt") == "2":
            daemon.logs[RUN, 2] = b"b1\nb2\n"
        return original(method, path, query, body)

    daemon.answer = grow  # type: ignore[method-assign]  # the log of attempt 2 appears when it is first read
    ran = invoke("logs", "qwen", "-f", "-n", "2")
    assert (ran.code, ran.out) == (100, "a1\na1\nb1\nb2\n")
    assert "attempt 1 ended, attempt 2 goes on" in ran.err


def test_events_tell_the_story_in_order(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    at = "2026-11-30T05:0{}:00.000Z"
    daemon.records[RUN] = [
        {"row": 1, "kind": "attempt_start", "at": at.format(1), "attempt": 1, "because": "goal run", "remedies": []},
        {"row": 2, "kind": "observation", "at": at.format(2), "obs": {}},
        {
            "row": 3,
            "kind": "attempt_end",
            "at": at.format(3),
            "attempt": 1,
            "verdict": "crash",
            "cause": "rank_exception",
            "key_line": "RuntimeError: \x1b[2Jinjected",
            "code": 70,
            "ran_s": 61.0,
        },
        {
            "row": 4,
            "kind": "outcome",
            "at": at.format(4),
            "attempt": 1,
            "type": "Stop",
            "ok": None,
            "detail": "no word",
        },
    ]
    ran = invoke("events", "qwen")
    lines = ran.out.splitlines()
    assert len(lines) == 3 and ran.code == 0
    assert "goal run" in lines[0]
    assert "crash, rank_exception (exit 70, after 1m 01s) > RuntimeError: injected" in lines[1]
    assert "Stop unknown: no word" in lines[2]
    assert [json.loads(text)["row"] for text in invoke("events", "--json").out.splitlines()] == [1, 3, 4]


def test_watching_the_runs_ends_with_ctrl_c(
    invoke: Invoke, daemon: DaemonDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dflash_supervise.cli.verbs import ps

    pauses = iter([None])

    def pause(_seconds: float) -> None:
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(ps, "sleep", pause)
    daemon.runs = [run_doc()]
    ran = invoke("ps", "-w", "--json")
    assert ran.code == 130 and "every run goes on" in ran.err
    assert [json.loads(line)["schema"] for line in ran.out.splitlines()] == [1, 1]
