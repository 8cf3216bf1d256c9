"""Which run a word means: what is advised and what is understood agree, also where names come twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dflash_supervise.cli import options, runs, status_text
from dflash_supervise.cli.main import cli
from dflash_supervise.cli.say import PLAIN
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc
from tests.unit.store.writing import Clock, open_store, spec

Doc = dict[str, Any]
OLD, NEW = "ws-2611300501-aaaa", "ws-2611300601-bbbb"


def two_of_one_name(**newer: Any) -> list[Doc]:
    """The older one has ended badly, the newer one goes on."""
    old = run_doc(name="ws", verdict="crash", final=True, exit_status=100, sentence="exit code 1", attempt_ended=True)
    return [
        {**run_doc(name="ws", created_at="2026-11-30T06:01:00.000Z"), "id": NEW, **newer},
        {**old, "id": OLD},
    ]


class Listed:
    """An API that knows these runs alone."""

    def __init__(self, found: list[Doc]) -> None:
        self.found = found

    def get(self, path: str, /, **params: Any) -> Doc:
        assert path == "/runs"
        return {"runs": self.found}


def test_what_is_advised_is_understood_as_the_same_run_whatever_they_are_called(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock)
    # Two of one name, and one whose name is the id of another.
    for run_id in ("ws-2611300501-aaaa", "ws-2611300601-bbbb", "solo-2611300601-cccc"):
        clock.now += 60.0
        store.add_run({**spec(run_id), "name": run_id.split("-")[0]}, host="lab8", target="lab8:/w")
    clock.now += 60.0
    store.add_run({**spec("odd-2611300701-dddd"), "name": "solo-2611300601-cccc"}, host="lab8", target="lab8:/w")
    found = store.runs()
    assert len(found) == 5
    for run in found:
        assert runs.find(Listed(found), runs.handle(run))["id"] == run["id"]  # type: ignore[arg-type]  # only get is used
        one = store.run(run["id"])
        assert one is not None and runs.handle(one) == runs.handle(run), "one run alone says the same as the list"
        assert store.run(runs.handle(run)) == one, "and the daemon takes the word as we do"
    assert {runs.handle(run) for run in found} == {
        "demo",
        "solo",
        "ws-2611300501-aaaa",
        "ws-2611300601-bbbb",
        "odd-2611300701-dddd",
    }


def test_a_daemon_that_says_nothing_about_names_is_answered_with_ids() -> None:
    old = run_doc()
    del old["name_unique"]
    assert runs.handle(old) == old["id"]


def test_advice_about_one_of_two_runs_of_one_name_uses_its_id(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = two_of_one_name()
    listed = invoke("ps").out
    assert f"dflash-supervise why {OLD}" in listed and "why ws\n" not in listed
    assert listed.splitlines()[1].split()[0] == NEW, "two rows that look alike could not be told apart"
    assert f"dflash-supervise why {OLD}" in invoke("status", OLD).out
    assert f"dflash-supervise why {NEW}" in invoke("status", "ws").out
    ran = invoke("stop", "ws", "--dry-run")
    assert f"would stop {NEW};" in ran.err and f"{NEW} on lab8" in ran.err
    assert f"{OLD} has ended already: crash" in invoke("stop", OLD, "--yes").err


def test_a_start_that_ends_in_a_second_run_of_the_name_says_its_id(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = two_of_one_name()
    daemon.operations["runs"] = [{"state": "done", "lines": [], "run_id": NEW}]
    ran = invoke("start", "lab8:/w", "--detach")
    assert f"look in with: dflash-supervise attach {NEW}\n" in ran.err


def test_runs_that_failed_alike_are_one_line_and_each_is_named(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = two_of_one_name(verdict="crash", sentence="exit code 1", final=True)
    listed = invoke("ps").out
    assert listed.count("exit code 1") == 1
    assert f"{NEW}, {OLD}: exit code 1\n  dflash-supervise why {NEW}\n" in listed
    many = [{**daemon.runs[0], "id": f"ws-2611300601-{n:04x}", "name_unique": False} for n in range(5)]
    told = [line for line in status_text.fleet(many, PLAIN) if "exit code 1" in line or "more" in line]
    assert "and 2 more of ws: exit code 1" in " ".join(told)


def test_a_beginning_that_fits_two_runs_is_refused_with_both_ids(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = two_of_one_name()
    ran = invoke("status", "ws-26")
    assert ran.code == 102 and f"did you mean {NEW} or {OLD}?" in ran.err
    assert NEW in invoke("status", "ws-26113006").out
    assert f"did you mean {NEW} or {OLD}?" in invoke("status", "wss").err


def test_completion_offers_what_means_one_run(daemon: DaemonDouble) -> None:
    daemon.runs = [*two_of_one_name(), run_doc(name="qwen")]
    offered = options.complete_run(click.Context(cli), click.Argument(["run"]), "")
    assert {item.value for item in offered} == {NEW, OLD, "qwen"}


def test_the_timeline_of_all_runs_tells_two_of_one_name_apart(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = two_of_one_name()
    for run_id in (OLD, NEW):
        record = {"row": 1, "kind": "attempt_start", "at": "2026-11-30T05:01:00.000Z", "attempt": 1, "because": "x"}
        daemon.records[run_id] = [record]
    told = invoke("events").out
    assert OLD in told and NEW in told
