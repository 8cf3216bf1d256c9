"""``why``: every age is counted by the host's own clock, and what nobody can say stays unknown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dflash_supervise.store import Store
from tests.unit.store.writing import RUN, Clock, Writer, open_store

Doc = dict[str, Any]

EPOCH_2 = "000002-bbbb"


def finding(**changes: Any) -> Doc:
    doc: Doc = {
        "rule": "hang",
        "status": "pending",
        "reason": "no step",
        "verdict": "hang",
        "held_s": 0.5,
        "confirm_s": 20.0,
        "evidence": [{"what": "CPU idle", "value": 16, "unit": "s"}],
    }
    return {**doc, **changes}


def suspects(write: Writer, *findings: Doc) -> Doc:
    return write.verdict("hang", suspected=True, findings=list(findings or (finding(),)))


def why(store: Store) -> Doc:
    found = store.why(RUN)
    assert found is not None
    return found


def held(store: Store) -> list[float]:
    return [one["held_s"] for one in why(store)["verdict"]["findings"]]


def test_the_age_of_a_verdict_is_host_time_up_to_the_last_word_and_its_age(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.observation(step=1), write.verdict("running")], age_s=0.5)
    clock.now += 3600.0  # this machine's clock is set, or slept: the host says what passed there
    store.apply(RUN, [write.observation(step=2, after_s=12.0)], age_s=1.0)
    clock.now += 2.0
    run = store.run(RUN)
    assert run is not None and (run["verdict_age_s"], run["news_age_s"]) == (15.0, 3.0)
    store.apply(RUN, [write("heartbeat", after_s=4.0, tick_ms=3)], age_s=0.0)
    assert why(store)["run"]["verdict_age_s"] == 16.0, "a word without a reading counts as well"
    store.thin(fine_s=0.0, keep_s=0.0)
    assert why(store)["run"]["verdict_age_s"] == 16.0


def test_what_is_suspected_goes_on_with_the_time_that_the_host_has_watched(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    others = (finding(rule="worker_lost", verdict="partial_stall"), finding(rule="x", status="unknown", verdict=None))
    store.apply(RUN, [write.observation(), suspects(write, finding(), *others)])
    store.apply(RUN, [write.observation(after_s=9.0)])
    assert held(store) == [9.5, 0.5, 0.5]
    clock.now += 100.0
    store.apply(RUN, [write("heartbeat", after_s=100.0, tick_ms=3)])
    assert held(store)[0] == 9.5, "silence and a word without a look are no progress"
    store.apply(RUN, [write.observation(after_s=1.0)])
    assert held(store)[0] == 20.0, "beyond its limit it would have been told as confirmed"


def test_what_fired_keeps_what_it_was_told_with(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    confirmed = finding(status="failing", held_s=21.0)
    store.apply(
        RUN, [write.observation(), write.verdict("hang", findings=[confirmed]), write.observation(after_s=30.0)]
    )
    assert held(store) == [21.0]


@pytest.mark.parametrize(("boot_id", "age_s"), [("b1", 16.0), ("b2", None), (None, None)])
def test_a_verdict_of_another_boot_is_of_unknown_age(tmp_path: Path, boot_id: str | None, age_s: float | None) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write("agent_start", machine={"boot_id": "b1"}), write.observation(), suspects(write)])
    after = Writer(epoch=EPOCH_2, t_s=write.t_s + 15.0)
    store.apply(RUN, [after("agent_start", machine={"boot_id": boot_id} if boot_id else {})])
    assert why(store)["run"]["verdict_age_s"] == age_s
    store.apply(RUN, [after.observation(after_s=0.0)])
    assert held(store) == [0.5], "another agent's watch begins anew"


def test_a_verdict_of_this_machines_own_has_no_age_on_the_hosts_clock(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.end_undelivered(RUN, "nothing was launched")
    assert why(store)["run"]["verdict_age_s"] is None


def test_a_database_from_before_the_last_word_was_kept_counts_from_the_last_look(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.observation(), write.verdict("running"), write.observation(after_s=5.0)])
    with store._write() as connection:
        connection.exec_driver_sql("update runs set view = json_remove(view, '$.heard_t_s')")
    assert why(store)["run"]["verdict_age_s"] == 5.0


def test_an_incident_says_how_long_ago_its_evidence_was_told(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.incident("hang", "lock_deadlock"), write.observation(after_s=8.0)], age_s=1.0)
    store.set_link("lab8", "unreachable", {"code": "unreachable", "message": "no answer"})
    assert sorted((one["cause"], one["told_age_s"]) for one in why(store)["incidents"]) == [
        ("lock_deadlock", 9.0),
        ("ssh_connection_lost", None),
    ]


def test_a_run_shows_the_line_of_the_log_that_speaks_for_its_verdict(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    other = finding(rule="stale", status="failing", verdict="stale_process", key_line="not this one")
    mine = finding(rule="ended", status="failing", verdict="early_crash", key_line="stepz: unknown key")
    store.apply(RUN, [write.verdict("early_crash", findings=[other, mine])])
    assert why(store)["run"]["key_line"] == "stepz: unknown key"
    store.set_link("lab8", "unreachable", {"code": "unreachable", "message": "no answer"})
    assert why(store)["run"]["key_line"] == "", "it says nothing about a host that does not answer"
    store.set_link("lab8", "ready")
    store.apply(RUN, [write.verdict("running", findings=[finding(status="ok", verdict=None, key_line="x")])])
    assert why(store)["run"]["key_line"] == ""


# ---- holds


def hold(store: Store, for_s: float | None) -> None:
    goal = {"want": "hold", "hold_for_s": for_s, "end_attempt": None}
    store.put_spec({**store.spec(RUN)["spec"], "generation": 2, "goal": goal})


def left(store: Store) -> tuple[float | None, str | None]:
    goal = why(store)["run"]["goal"]
    return goal["hold_left_s"], goal["hold_until"]


def test_a_hold_runs_from_when_the_host_took_it(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.spec(1), write.observation()], age_s=20.0)
    hold(store, 60.0)
    assert left(store) == (None, None), "the host has not taken it"
    store.apply(RUN, [write.spec(2, "hold", hold_for_s=60.0), write.observation(after_s=10.0)], age_s=2.0)
    clock.now += 3.0
    assert left(store) == (45.0, "2027-01-15T08:00:48.000Z")
    clock.now += 100.0
    assert left(store) == (0.0, "2027-01-15T08:00:48.000Z"), "the host's clock goes on while it is silent"


def test_an_agent_that_says_a_hold_again_does_not_prolong_it_and_a_reboot_begins_it_anew(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write("agent_start", machine={"boot_id": "b1"})])
    hold(store, 60.0)
    store.apply(RUN, [write.spec(2, "hold"), write.observation()])
    second = Writer(epoch=EPOCH_2, t_s=write.t_s + 20.0)
    store.apply(RUN, [second("agent_start", machine={"boot_id": "b1"}), second.spec(2, "hold")])
    assert left(store)[0] == pytest.approx(60.0 - 23.0)
    third = Writer(epoch="000003-cccc", t_s=5.0)
    store.apply(RUN, [third("agent_start", machine={"boot_id": "b2"})])
    assert left(store)[0] is None
    store.apply(RUN, [third.spec(2, "hold"), third.observation(after_s=4.0)])
    assert left(store)[0] == 56.0


def test_a_hold_without_an_end_and_a_run_without_a_hold_have_no_time_left(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.spec(1), write.observation()])
    assert left(store) == (None, None)
    hold(store, None)
    store.apply(RUN, [write.spec(2, "hold")])
    assert left(store) == (None, None)


# ---- silence


def test_a_silent_agent_is_told_with_its_own_last_word_and_only_on_a_host_that_answers(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.observation()])
    clock.now += 40.0
    store.tell("mark_silent", host="lab8", run_id=RUN)
    said = "the host answers, the run's agent has not since 2027-01-15T08:00:00.000Z"
    assert why(store)["run"]["notes"] == [{"slug": "agent_silent", "reason": said}]
    store.set_link("lab8", "unreachable", {"code": "unreachable", "message": "no answer"})
    assert why(store)["run"]["notes"] == []
    store.set_link("lab8", "ready")
    clock.now += 1.0
    store.apply(RUN, [write.observation()])
    assert why(store)["run"]["notes"] == [], "news that came after the mark is no silence"
