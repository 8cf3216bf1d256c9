"""Records go in once, in one transaction, and change what the API shows."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dflash_supervise.store import NoSuchRun
from tests.unit.store.writing import RUN, Clock, Writer, open_store, spec, told


def test_a_record_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    first = [write.spec(1), write.attempt_start(1), write.observation(step=1), write.verdict("running")]
    assert store.apply(RUN, first) == 4
    assert store.apply(RUN, first) == 0
    more = [*first[2:], write.incident("crash", "rank_exception")]
    assert store.apply(RUN, more) == 1
    assert [r["seq"] for r in store.records(RUN)] == [1, 2, 3, 4, 5]
    assert told(store) == [("started", "started"), ("incident", "incident/1-rank_exception/warn")]
    assert store.cursor(RUN) == {"epoch": "000001-aaaa", "seq": 5}


def test_any_mixture_of_batches_and_repetitions_gives_the_same_store(tmp_path: Path) -> None:
    write = Writer()
    write.spec(1)
    write.attempt_start(1)
    for step in range(20):
        write.observation(step=step)
        write.verdict("running", phase=f"p{step}")
    write.incident("crash", "rank_exception")
    write.attempt_end(1, "crash", "rank_exception")
    write.attempt_start(2)
    write.incident("crash", "rank_exception", state="resolved")
    write.verdict("completed", attempt=2, final=True)
    (tmp_path / "whole").mkdir()
    whole = open_store(tmp_path / "whole")
    whole.apply(RUN, write.written)
    luck = random.Random(7)
    for number in range(5):
        (tmp_path / str(number)).mkdir()
        store, at = open_store(tmp_path / str(number)), 0
        while at < len(write.written):
            back, size = luck.randrange(0, 6), luck.randrange(1, 8)
            store.apply(RUN, write.written[max(0, at - back) : at + size])
            at += size
        assert [r["seq"] for r in store.records(RUN)] == [r["seq"] for r in whole.records(RUN)]
        assert told(store) == told(whole)
        assert store.run(RUN) == whole.run(RUN)


def test_an_older_record_is_kept_and_does_not_turn_the_view_back(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    early, late = write.verdict("running"), write.verdict("hang", cause="lock_deadlock")
    store.apply(RUN, [late])
    assert store.apply(RUN, [early]) == 1
    run = store.run(RUN)
    assert run is not None and run["verdict"] == "hang"
    assert len(store.records(RUN)) == 2


def test_a_new_epoch_begins_its_own_numbers(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.verdict("running") for _ in range(5)])
    second = Writer(epoch="000002-bbbb", t_s=2000.0)
    assert store.apply(RUN, [second.verdict("hang", cause="lock_deadlock")]) == 1
    assert store.cursor(RUN) == {"epoch": "000002-bbbb", "seq": 1}


def test_records_of_an_unknown_run_are_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(NoSuchRun):
        store.apply("other-2601010000-ffff", [Writer().verdict("running")])


def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    good = write.attempt_start(1)
    bad = write("incident", id="1-x")  # lacks what every incident has
    with pytest.raises(KeyError):
        store.apply(RUN, [good, bad])
    assert store.records(RUN) == [] and store.cursor(RUN) is None and told(store) == []


def test_the_view_shows_the_newest_observation_and_the_age_of_the_news(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.observation(step=1), write.observation(step=3, loss=2.5, tokens_per_s=70.0)], age_s=4.0)
    clock.now += 6.0
    run = store.run("demo")
    assert run is not None
    assert (run["step"], run["steps_total"], run["loss"], run["tokens_per_s"]) == (3, 100, 2.5, 70.0)
    assert run["news_age_s"] == 10.0
    assert run["gpus"][0]["class"] == "working" and run["gpus"][0]["temp_c"] is None
    assert run["missing"] == {"host": "not asked"}


def test_the_time_to_the_end_follows_the_rate_of_the_last_minutes(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.observation(step=step, after_s=2.0) for step in range(51)])
    run = store.run(RUN)
    assert run is not None and run["eta_s"] == pytest.approx(100.0, rel=0.05)
    store.apply(RUN, [write.observation(step=40, attempt=2)])
    fresh = store.run(RUN)
    assert fresh is not None and fresh["eta_s"] is None, "a new attempt has no rate yet"


@pytest.mark.parametrize(
    ("verdict", "cause", "attempt", "status"),
    [
        ("completed", "none", 1, 0),
        ("crash", "bug_in_code", 1, 100),
        ("hang", "lock_deadlock", 2, 104),
        ("stopped", "none", 1, 103),
        ("crash", "history_lost", 1, 105),
        ("stale_process", "zombie_gpu_memory", 0, 6),
    ],
)
def test_a_final_verdict_gives_the_exit_status(
    tmp_path: Path, verdict: str, cause: str, attempt: int, status: int
) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.verdict(verdict, cause=cause, attempt=attempt, final=True)])
    run = store.run(RUN)
    assert run is not None and run["final"] and run["exit_status"] == status
    assert store.live_runs() == []


def test_a_restart_opens_a_run_that_was_over_and_a_release_does_not(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.spec(1), write.verdict("crash", cause="bug_in_code", final=True)])
    before = store.spec(RUN)["spec"]
    store.put_spec({**before, "generation": 2})
    store.apply(RUN, [write.spec(2)])
    released = store.run(RUN)
    assert released is not None and released["final"]
    store.put_spec({**before, "generation": 3, "goal": {"want": "run", "end_attempt": 1}})
    run = store.run(RUN)
    assert run is not None and not run["final"] and run["goal"]["acknowledged"] is False
    store.apply(RUN, [write.spec(3, end_attempt=1), write.verdict("starting", attempt=2)])
    again = store.run(RUN)
    assert again is not None and again["goal"] == {**run["goal"], "acknowledged": True}


def test_a_goal_that_the_host_forgot_is_pending_again(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.put_spec({**store.spec(RUN)["spec"], "generation": 2, "goal": {"want": "stop"}})
    store.apply(RUN, [write.spec(1), write.spec(2, "stop")])
    run = store.run(RUN)
    assert run is not None and run["goal"]["acknowledged"]
    store.apply(RUN, [write.spec(1)])
    run, known = store.run(RUN), store.spec(RUN)
    assert run is not None and not run["goal"]["acknowledged"]
    assert known["delivered"] == 1 and known["spec"]["generation"] == 2, "the watch hands it over again"


def test_a_new_run_in_a_workspace_answers_what_ended_runs_there_waited_for(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.spec(1), write.incident("early_crash", "config_error")])
    store.apply(RUN, [write.verdict("early_crash", cause="config_error", final=True)])
    elsewhere = spec("other-2605041203-1a2b", workspace="/other")
    store.add_run(elsewhere, host="lab8", target="lab8:/other")
    run = store.run(RUN)
    assert run is not None and run["open_incidents"] == 1
    store.add_run(spec("again-2605041203-1a2b"), host="lab8", target="lab8:/w")
    run = store.run(RUN)
    assert run is not None and run["open_incidents"] == 0 and store.incidents(RUN)[0]["state"] == "resolved"


def test_why_gives_findings_in_full_and_open_incidents_first(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    finding = {
        "rule": "hang",
        "status": "failing",
        "reason": "r",
        "verdict": "hang",
        "evidence": [{"what": "w", "value": 1}],
    }
    store.apply(
        RUN,
        [
            write.incident("crash", "segfault"),
            write.incident("hang", "lock_deadlock", attempt=2),
            write.incident("crash", "segfault", state="resolved"),
            write.attempt_start(1),
            write.attempt_end(1, "crash", "segfault"),
            write.verdict("hang", cause="lock_deadlock", findings=[finding, {"of": "a newer agent"}]),
        ],
    )
    why = store.why(RUN)
    assert why is not None
    first, unknown = why["verdict"]["findings"]
    assert first["held_s"] == 0.0 and first["evidence"] == [{"what": "w", "value": 1, "unit": "", "age_s": 0.0}]
    assert unknown == {"of": "a newer agent"}
    assert [(i["cause"], i["state"]) for i in why["incidents"]] == [("lock_deadlock", "open"), ("segfault", "resolved")]
    assert why["incidents"][1]["opened_at"] < why["incidents"][1]["resolved_at"]
    assert why["attempts"][0]["cause"] == "segfault" and why["attempts"][0]["ran_s"] == 9.0
    assert why["run"]["open_incidents"] == 1


def test_series_are_equally_long_lists_with_none_where_nothing_was_seen(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.observation(step=step, loss=float(step)) for step in range(10)])
    blind = write.observation()
    blind["obs"]["gpus"] = {"type": "Missing", "reason": "the driver does not answer"}
    store.apply(RUN, [blind])
    series = store.series(RUN, since_s=5.0)
    assert series["loss"] == [5.0, 6.0, 7.0, 8.0, 9.0, None]
    assert series["gpus"]["GPU-a"]["class"] == ["working"] * 5 + [None]
    assert len(series["t"]) == 6 and series["t"] == sorted(series["t"])


def test_old_observations_are_thinned_and_everything_else_stays(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer(t_s=1000.5)
    store.apply(RUN, [write.observation(step=n) for n in range(100)])
    store.apply(RUN, [write.verdict("running"), write.incident("crash", "segfault"), write("heartbeat", tick_ms=3)])
    clock.now += 1000.0
    store.apply(RUN, [write.observation(step=200)])
    store.thin(fine_s=900.0, keep_s=86400.0)
    kept = store.records(RUN, kinds=("observation",))
    assert 10 <= len(kept) <= 12
    assert store.apply(RUN, write.written[:50]) == 0, "what was thinned does not come back"
    clock.now += 90000.0
    store.thin(fine_s=900.0, keep_s=86400.0)
    assert {r["kind"] for r in store.records(RUN)} == {"verdict", "incident"}


def test_the_feed_gives_rows_of_all_runs_after_one(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.verdict("running"), write.verdict("hang", cause="lock_deadlock")])
    rows = store.feed(0)
    assert [row["record"]["verdict"] for row in rows] == ["running", "hang"]
    assert store.feed(rows[0]["row"]) == rows[1:]
    assert store.last_row() == rows[1]["row"]
