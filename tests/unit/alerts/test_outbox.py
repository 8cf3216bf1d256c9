"""Who hears what: each story of a run as the exact list of its messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from dflash_supervise.core.outbox import RunFacts, remind, tell
from tests.unit.store.writing import RUN, Writer

Doc = dict[str, Any]
FACTS = RunFacts(RUN, "demo", "lab8", "bundled", "run", step=12, steps_total=100, checkpoint_step=10, gpus=8)


def story(records: Iterable[Doc], run: RunFacts = FACTS) -> list[tuple[str, str, Doc]]:
    told: set[str] = set()
    found = []
    for record in records:
        run = replace(run, final=bool(record.get("final", run.final)))
        for telling in tell(record, run, told):
            assert telling.key not in told
            told.add(telling.key)
            found.append((telling.kind, telling.severity, dict(telling.facts)))
    return found


def kinds(records: Iterable[Doc], run: RunFacts = FACTS) -> list[str]:
    return [kind for kind, _severity, _facts in story(records, run)]


def test_a_crash_and_a_hang_that_are_cured_and_a_clean_end_are_exactly_four_messages() -> None:
    write = Writer()
    write.verdict("starting", attempt=0)
    write.attempt_start(1)
    write.verdict("running")
    write.observation(step=3)
    write.attempt_end(1, "crash", "rank_exception")
    write.verdict("crash", cause="rank_exception")
    write.incident("crash", "rank_exception")
    write.attempt_start(2)
    write.verdict("running", attempt=2)
    write.incident("crash", "rank_exception", state="resolved")
    write.verdict("hang", attempt=2, cause="lock_deadlock", suspected=True)
    write.incident("hang", "lock_deadlock", attempt=2, state="pending", response="")
    write.verdict("hang", attempt=2, cause="lock_deadlock")
    write.incident("hang", "lock_deadlock", attempt=2, response="")
    write.incident("hang", "lock_deadlock", attempt=2, response_text="restarting (1 of 3)")
    write.attempt_end(2, "hang", "lock_deadlock")
    write.attempt_start(3)
    write.incident("hang", "lock_deadlock", attempt=3, state="resolved")
    write.attempt_end(3, "completed")
    write.verdict("completed", attempt=3, final=True)
    found = story(write.written)
    assert [(kind, severity) for kind, severity, _ in found] == [
        ("started", "info"),
        ("incident", "warn"),
        ("incident", "warn"),
        ("done", "info"),
    ]
    crash = found[1][2]
    assert crash["key_line"] == "RuntimeError: injected fault" and crash["response_text"] == "restarting (1 of 3)"
    assert crash["checkpoint_step"] == 10 and found[2][2]["verdict"] == "hang"
    assert kinds(write.written + write.written) == ["started", "incident", "incident", "done"]


def test_a_crash_that_is_not_restarted_is_one_message_whichever_line_comes_first() -> None:
    write = Writer()
    finding = {"status": "failing", "key_line": "KeyError: 'x'", "evidence": [{"what": "exit code", "value": 1}]}
    final = write.verdict("crash", cause="bug_in_code", final=True, findings=[finding])
    final["next"]["why"] = "not restarted: a bug comes again"
    opened = write.incident("crash", "bug_in_code", severity="page", response="no_restart_fix_config")
    verdict_first, incident_first = story([final, opened]), story([opened, final])
    assert [kind for kind, *_ in verdict_first] == ["gave_up"]
    assert verdict_first[0][2]["key_line"] == "KeyError: 'x'"
    assert verdict_first[0][2]["response_text"] == "not restarted: a bug comes again"
    assert verdict_first[0][2]["evidence"] == finding["evidence"]
    assert [(kind, severity) for kind, severity, _ in incident_first] == [("incident", "page")]


def test_a_refused_start_is_one_page() -> None:
    write = Writer()
    stale = {"severity": "page", "response": ""}
    write.incident("stale_process", "zombie_gpu_memory", attempt=0, **stale)
    write.incident("stale_process", "zombie_gpu_memory", attempt=0, severity="page", response="alert_human")
    write.verdict("stale_process", attempt=0, cause="zombie_gpu_memory", final=True)
    assert kinds(write.written) == ["refused"]
    assert kinds(write.written[2:] + write.written[:2]) == ["refused"]


def test_giving_up_after_restarts_is_told_once_more_and_only_once() -> None:
    write = Writer()
    write.attempt_start(1)
    write.incident("crash", "segfault")
    write.attempt_start(2)
    write.incident(
        "crash", "segfault", attempt=2, severity="page", response="alert_human", response_text="giving up: 3"
    )
    write.verdict("crash", cause="segfault", attempt=2, final=True)
    assert kinds(write.written) == ["started", "incident", "incident"]


def test_a_hang_whose_answer_becomes_a_page_is_told_again() -> None:
    write = Writer()
    write.incident("hang", "lock_deadlock")
    write.incident("hang", "lock_deadlock", severity="page", response="alert_human")
    write.incident("hang", "lock_deadlock")
    assert [severity for _, severity, _ in story(write.written)] == ["warn", "page"]


def test_a_page_has_one_end_and_a_warning_has_none() -> None:
    write = Writer()
    page = {"severity": "page", "response": "alert_human"}
    write.incident("hang", "stopped_process", **page)
    write.incident("hang", "stopped_process", state="resolved", **page)
    write.incident("hang", "stopped_process", state="resolved", **page)
    write.incident("crash", "segfault")
    write.incident("crash", "segfault", state="resolved")
    assert kinds(write.written) == ["incident", "resolved", "incident"]


def test_the_end_of_the_run_ends_its_pages_without_a_word() -> None:
    write = Writer()
    page = {"severity": "page", "response": "alert_human"}
    write.incident("hang", "stopped_process", **page)
    write.verdict("completed", final=True)
    write.incident("hang", "stopped_process", state="resolved", **page)
    assert kinds(write.written) == ["incident", "done"]


def test_a_persons_stop_hides_everything_but_itself() -> None:
    write = Writer()
    write.incident("crash", "killed_externally", severity="page", response="alert_human")
    write.verdict("stopped", final=True)
    write.verdict("stopped", final=True)
    assert kinds(write.written, replace(FACTS, want="stop")) == ["stopped"]


def test_what_is_harmless_pending_or_muted_tells_nothing() -> None:
    write = Writer()
    write.attempt_start(0)
    write.incident("running", "throttled", severity="info", response="none")
    write.incident("hang", "lock_deadlock", state="pending")
    write.verdict("hang", cause="lock_deadlock")
    write.observation()
    assert kinds(write.written) == []
    write.attempt_start(1)
    assert kinds(write.written, replace(FACTS, muted=True)) == []


def test_two_crashes_of_different_attempts_are_two_messages() -> None:
    write = Writer()
    write.incident("crash", "segfault")
    write.incident("crash", "segfault", attempt=2)
    assert kinds(write.written) == ["incident", "incident"]


def test_a_verdict_without_a_cause_is_named_by_itself() -> None:
    write = Writer()
    write.incident("ended_unclear", "none", severity="page", response="alert_human")["id"] = "1-ended_unclear"
    write.verdict("ended_unclear", final=True)
    assert kinds(write.written) == ["incident"]


def test_reminders_are_numbered_and_end() -> None:
    page = Writer().incident("hang", "stopped_process", severity="page")
    keys = [
        telling.key
        for open_s in (10.0, 4000.0, 7300.0, 99999.0)
        for telling in remind(page, FACTS, open_s=open_s, every_s=3600.0, most=3)
    ]
    assert keys == ["reminder/1-stopped_process/1", "reminder/1-stopped_process/2", "reminder/1-stopped_process/3"]
    warn = Writer().incident("hang", "stopped_process")
    assert remind(warn, FACTS, open_s=1e6, every_s=3600.0, most=3) == ()
    assert remind(page, replace(FACTS, want="stop"), open_s=1e6, every_s=3600.0, most=3) == ()
    assert remind(page, FACTS, open_s=1e6, every_s=0.0, most=3) == ()
