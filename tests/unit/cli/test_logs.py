"""``logs`` where there is no log, or none of that attempt: it says so, and a script sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble, run_doc

RUN = "qwen-2611300501-1f2e"


def test_an_attempt_that_there_is_not_is_refused_with_those_that_there_are(
    invoke: Invoke, daemon: DaemonDouble
) -> None:
    daemon.runs = [run_doc(attempt=2)]
    daemon.logs = {(RUN, 1): b"a\n", (RUN, 2): b"b\n"}
    for arguments in (["logs", "qwen", "--attempt", "9"], ["logs", "qwen", "-f", "--attempt", "9"]):
        ran = invoke(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "qwen has no attempt 9" in ran.err and "its attempts: 1, 2" in ran.err
    refused = json.loads(invoke("logs", "qwen", "--attempt", "9", "--json").out)["error"]
    assert refused["code"] == "no_such_attempt"
    daemon.runs = [run_doc(attempt=40)]
    assert "its attempts: 1 to 40" in invoke("logs", "qwen", "--attempt", "41").err


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"attempt": 0, "verdict": "stale_process"}, 3, "nothing was launched yet"),
        ({"kind": "adopted", "missing": {"log": "no log was named"}}, 4, "cannot be read: no log was named"),
        ({"reachable": False, "verdict": "host_unreachable"}, 4, "lab8 does not answer"),
        ({"verdict": "crash", "attempt_ended": True}, 3, "attempt 1 of qwen wrote nothing"),
        ({"verdict": "stopped", "final": True}, 3, "attempt 1 of qwen wrote nothing"),
        ({"verdict": "starting"}, 4, "has written nothing yet"),
        ({"missing": {"log": "no answer"}}, 4, "has written nothing yet: no answer"),
    ],
)
def test_a_run_without_a_log_says_why(
    invoke: Invoke, daemon: DaemonDouble, changes: dict[str, Any], code: int, said: str
) -> None:
    daemon.runs = [run_doc(**changes)]
    ran = invoke("logs", "qwen")
    assert (ran.code, ran.out) == (code, "") and said in ran.err
    refused = json.loads(invoke("logs", "qwen", "--json").out)["error"]
    assert (refused["code"], refused["exit_code"]) == ("no_log", code)


def test_following_a_log_that_is_not_there_yet_says_so_and_waits_for_it(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(attempt=0, verdict="starting", step=None)]
    daemon.looks[RUN] = [
        run_doc(attempt=0, verdict="starting"),
        run_doc(verdict="completed", final=True, exit_status=0),
    ]
    original = daemon.answer

    def grow(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if query.get("attempt") == "1":
            daemon.logs[RUN, 1] = b"one\n"
        return original(method, path, query, body)

    daemon.answer = grow  # type: ignore[method-assign]  # the log appears when it is first read
    ran = invoke("logs", "qwen", "-f")
    assert (ran.code, ran.out) == (0, "one\n")
    assert ran.err == "qwen has no log: nothing was launched yet\n", "and no empty line for an attempt that was none"


def test_an_older_attempts_log_is_not_passed_off_as_the_newest(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc(attempt=2)]
    daemon.logs = {(RUN, 1): b"a\n"}
    ran = invoke("logs", "qwen")
    assert (ran.code, ran.out) == (0, "a\n")
    assert "attempt 2 has written nothing yet; attempt 1 wrote" in ran.err


def test_no_line_at_all_may_be_asked_for(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.logs = {(RUN, 1): b"a\nb\n"}
    ran = invoke("logs", "qwen", "-n", "0")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    assert ("GET", f"/runs/{RUN}/log", {}) in daemon.asked and "tail" not in daemon.queries[-1]


def test_following_goes_on_where_the_last_answer_ended_and_says_no_line_twice_or_never(
    invoke: Invoke, daemon: DaemonDouble
) -> None:
    daemon.runs = [run_doc()]
    daemon.looks[RUN] = [run_doc(), run_doc(verdict="completed", final=True, exit_status=0)]
    daemon.logs = {(RUN, 1): b"".join(b"%d\n" % n for n in range(100))}
    daemon.log_limit = 7
    assert invoke("logs", "qwen", "-f", "-n", "0").out == ""
    daemon.looks[RUN] = [run_doc(), run_doc(verdict="completed", final=True, exit_status=0)]
    original = daemon.answer

    def older(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        status, doc = original(method, path, query, body)
        if "tail" in query:  # the file was measured, then it grew, then it was read
            doc["size"] -= 6
        return status, doc

    daemon.answer = older  # type: ignore[method-assign]  # as a daemon answered whose numbers did not fit its text
    assert invoke("logs", "qwen", "-f", "-n", "3").out == "97\n98\n99\n"


def test_every_attempt_is_followed_also_when_two_began_between_two_looks(invoke: Invoke, daemon: DaemonDouble) -> None:
    daemon.runs = [run_doc()]
    daemon.looks[RUN] = [run_doc(), run_doc(attempt=3, verdict="completed", final=True, exit_status=0)]
    daemon.logs = {(RUN, number): b"a%d\n" % number * 9 for number in (1, 2, 3)}
    daemon.log_limit = 4
    original = daemon.answer

    def grow(method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if "tail" in query:
            return 200, {"attempt": 1, "offset": 0, "next": 3, "size": 3, "text": "a1\n"}
        return original(method, path, query, body)

    daemon.answer = grow  # type: ignore[method-assign]  # there was one attempt when it was asked first
    ran = invoke("logs", "qwen", "-f")
    assert ran.out == "a1\n" * 9 + "a2\n" * 9 + "a3\n" * 9
    assert "attempt 1 ended, attempt 2 goes on" in ran.err and "attempt 2 ended, attempt 3 goes on" in ran.err
