"""A host that does not answer is a state of its own: told once, for the host, and ended once."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.writing import RUN, Clock, Writer, open_store, spec, told

ERROR = {"code": "unreachable", "message": "no answer on port 22", "fix": "look at the network", "exit_code": 5}


def test_a_run_behind_a_cut_link_is_unreachable_and_keeps_its_last_verdict(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.verdict("running")])
    store.set_link("lab8", "unreachable", ERROR)
    clock.now += 30
    store.set_link("lab8", "connecting")
    run = store.run(RUN)
    assert run is not None
    assert (run["verdict"], run["cause"], run["last_verdict"]) == ("host_unreachable", "ssh_connection_lost", "running")
    assert run["reachable"] is False and "no answer on port 22" in run["sentence"]
    assert store.hosts()[0]["age_s"] == 30.0, "a new try does not make the silence younger"
    store.set_link("lab8", "ready", hello={"machine": {"hostname": "lab8"}, "python": "3.11.2"})
    back = store.run(RUN)
    assert back is not None and back["verdict"] == "running" and back["reachable"] is True
    assert store.hosts()[0]["machine"] == {"hostname": "lab8"}


def test_a_host_key_or_a_login_names_its_own_cause(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for code, cause in (
        ("auth", "auth_error"),
        ("host_key_changed", "host_key_changed"),
        ("no_channel", "too_many_sessions"),
    ):
        store.set_link("lab8", "unreachable", {**ERROR, "code": code})
        run = store.run(RUN)
        assert run is not None and run["cause"] == cause


def test_a_run_that_is_over_stays_what_it_was(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.verdict("completed", final=True)])
    store.set_link("lab8", "unreachable", ERROR)
    run = store.run(RUN)
    assert run is not None and run["verdict"] == "completed" and store.incidents() == []


def test_one_message_for_the_host_and_one_when_it_is_back(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    store.add_run(spec("other-2601010000-ffff"), host="lab8", target="lab8:/v")
    store.set_link("lab8", "unreachable", ERROR)
    assert [one["state"] for one in store.incidents()] == ["pending", "pending"]
    clock.now += 130
    store.tell("tell_unreachable", host="lab8")
    store.tell("tell_unreachable", host="lab8")
    assert [one["state"] for one in store.incidents()] == ["open", "open"]
    store.set_link("lab8", "ready")
    store.tell("tell_reachable", host="lab8")
    assert [kind for kind, _key in told(store)] == ["unreachable", "reachable"]
    assert store.messages()[1]["runs"] == ["demo", "other"]
    assert [one["state"] for one in store.incidents()] == ["resolved", "resolved"]


def test_an_agent_that_is_silent_is_a_note_and_told_once(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    store.tell("mark_silent", host="lab8", run_id=RUN)
    clock.now += 300
    store.tell("tell_silent", host="lab8", run_id=RUN)
    store.tell("tell_silent", host="lab8", run_id=RUN)
    run = store.run(RUN)
    assert run is not None and [note["slug"] for note in run["notes"]] == ["agent_silent"]
    assert [kind for kind, _key in told(store)] == ["silent"]
    store.tell("clear_silent", host="lab8", run_id=RUN)
    cleared = store.run(RUN)
    assert cleared is not None and cleared["notes"] == []


def test_an_open_page_is_repeated_a_few_times_and_no_more(tmp_path: Path) -> None:
    clock = Clock()
    store, write = open_store(tmp_path, clock), Writer()
    store.apply(RUN, [write.incident("hang", "stopped_process", severity="page", response="alert_human")])
    for _hour in range(40):
        store.remind(every_s=4 * 3600.0, most=3)
        clock.now += 3600.0
    assert [kind for kind, _key in told(store)] == ["incident", "reminder", "reminder", "reminder"]


def test_after_a_restart_of_the_daemon_what_was_ready_is_not_known(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.links_unknown()
    run = store.run(RUN)
    assert run is not None and run["reachable"] is None
