"""A goal that another supervisor set is in force on the host, and must not pass for ours."""

from __future__ import annotations

from pathlib import Path

from tests.unit.store.writing import RUN, Writer, open_store


def test_a_goal_of_another_supervisor_acknowledges_nothing_of_ours_and_is_told(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.spec(1)])
    store.put_spec({**store.spec(RUN)["spec"], "generation": 3})
    theirs = {**write.spec(3, want="hold"), "owner": "sup-2"}
    store.apply(RUN, [theirs])
    run = store.run(RUN)
    assert run is not None
    assert run["goal"]["acknowledged"] is False and run["read_only"] == "sup-2"


def test_what_the_former_owner_did_before_we_took_the_run_back_is_history(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    store.put_spec({**store.spec(RUN)["spec"], "generation": 5})
    store.apply(RUN, [{**write.spec(4), "owner": "sup-2"}, write.spec(5)])
    run = store.run(RUN)
    assert run is not None
    assert run["goal"]["acknowledged"] is True and run["read_only"] is None
