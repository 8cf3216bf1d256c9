"""The stream to a host: the same over SSH and on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.link import Follow, HostLink, HostTarget, LinkError, LinkSettings
from tests.conftest import Laboratory
from tests.integration.link.harness import WAIT_S, Sink, agents, until

Open = Callable[..., HostLink]


@pytest.fixture(params=["gpubox", "here"])
def target(request: pytest.FixtureRequest) -> HostTarget:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, HostTarget)
    return found


def write_records(workspace: Path, first: int, last: int) -> None:
    with open(workspace / "records.jsonl", "a") as records:
        for seq in range(first, last + 1):
            records.write(json.dumps({"epoch": "000001-aaaa", "seq": seq}) + "\n")
    with open(workspace / "train.log", "a") as log:
        for seq in range(first, last + 1):
            log.write(f"step={seq}\n")


def test_the_first_start_pushes_the_agent_and_the_second_finds_it(
    target: HostTarget, open_link: Open, workspace: Path
) -> None:
    first = open_link(target).wait_ready(WAIT_S)
    second = open_link(target).wait_ready(WAIT_S)
    assert first.hello is not None and second.hello is not None
    assert first.hello["argv"] == ["follow"]
    assert (first.hello["boot"]["pushed"], second.hello["boot"]["pushed"]) == (True, False)
    assert "shims" not in first.hello["boot"]["executable"]
    assert (workspace / ".dflash").stat().st_mode & 0o777 == 0o700
    assert len(list((workspace / ".dflash" / "agent").iterdir())) == 1


def test_the_agent_gets_its_environment_and_keeps_the_umask_of_its_login(
    target: HostTarget, open_link: Open, settings: LinkSettings
) -> None:
    state = open_link(target, replace(settings, agent_environment={"STAND_IN": "a 'b' \"c\" $d"})).wait_ready(WAIT_S)
    assert state.hello is not None
    assert state.hello["environment"]["STAND_IN"] == "a 'b' \"c\" $d"
    assert state.hello["umask"] != 0o077


def test_requests_of_many_threads_get_their_own_answers(target: HostTarget, open_link: Open) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    got: dict[int, str] = {}

    def ask(number: int) -> None:
        for turn in range(20):
            text = f"{number}.{turn}" * 200
            got[number] = str(link.request({"op": "say_back", "text": text})["text"])
            assert got[number] == text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert [got[number] for number in range(6)] == [f"{number}.19" * 200 for number in range(6)]


def test_a_request_without_an_answer_ends_by_its_own_deadline_and_the_link_goes_on(
    target: HostTarget, open_link: Open
) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    with pytest.raises(LinkError) as late:
        link.request({"op": "never"}, timeout_s=0.5)
    assert late.value.code == "request_timeout"
    assert link.request({"op": "say_back", "text": "still here"})["text"] == "still here"


def test_the_agents_refusal_arrives_with_code_message_and_fix(target: HostTarget, open_link: Open) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    with pytest.raises(LinkError) as refused:
        link.request({"op": "unheard_of"})
    assert (refused.value.code, refused.value.message, refused.value.exit_code) == ("no_op", "unheard_of", 5)


def test_megabytes_on_standard_error_do_not_stop_the_stream(target: HostTarget, open_link: Open) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    assert link.request({"op": "flood_stderr", "size": 5_000_000}, WAIT_S)["wrote"] == 5_000_000
    assert len(link.request({"op": "say_in_chunks", "size": 250_000}, WAIT_S)["text"]) == 250_000


def test_records_and_log_are_followed_from_the_start_and_go_on(
    target: HostTarget, open_link: Open, sink: Sink, workspace: Path
) -> None:
    write_records(workspace, 1, 3)
    sink.follows = [Follow("run-1", str(workspace))]
    open_link(target).wait_ready(WAIT_S)
    until(lambda: sink.seqs() == [1, 2, 3])
    write_records(workspace, 4, 5)
    until(lambda: sink.seqs() == [1, 2, 3, 4, 5] and sink.log().endswith(b"step=5\n"))
    assert {key for key, _ in sink.lines} == {target.key}


def test_a_run_that_is_not_there_is_told_to_the_sink(
    target: HostTarget, open_link: Open, sink: Sink, workspace: Path
) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    link.follow("missing-1", str(workspace))
    until(lambda: bool(sink.of("follow_refused")))
    assert sink.of("follow_refused")[0]["error"]["code"] == "no_such_run"


def test_a_line_that_the_sink_did_not_take_comes_again(
    target: HostTarget, open_link: Open, sink: Sink, workspace: Path
) -> None:
    write_records(workspace, 1, 20)
    sink.follows = [Follow("run-1", str(workspace))]
    sink.refuse_next = 1
    open_link(target)
    until(lambda: sink.seqs() == list(range(1, 21)))
    assert "internal" in sink.errors()


def test_an_agent_that_ends_is_started_again_and_its_last_words_are_told(
    target: HostTarget, open_link: Open, sink: Sink
) -> None:
    link = open_link(target)
    before = link.wait_ready(WAIT_S).hello
    with pytest.raises(LinkError) as ended:
        link.request({"op": "end", "code": 3})
    assert ended.value.code == "unreachable"
    until(lambda: sink.statuses() == ["ready", "connecting", "ready"])
    after = link.wait_ready(WAIT_S).hello
    assert before is not None and after is not None and before["pid"] != after["pid"]
    lost = next(line["error"] for line in sink.of("link") if line["error"])
    assert "exit status is 3" in lost["message"] and "ended on request" in lost["message"]


def test_a_silent_agent_is_noticed_and_replaced(
    target: HostTarget, open_link: Open, sink: Sink, laboratory: Laboratory
) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    with pytest.raises(LinkError) as frozen:
        link.request({"op": "freeze"})
    assert frozen.value.code == "agent_silent"
    until(lambda: sink.statuses()[-1] == "ready" and len(agents(laboratory)) == 1)


def test_closing_the_link_ends_the_agent_and_whoever_waits_for_it(
    target: HostTarget, open_link: Open, laboratory: Laboratory
) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    said: list[str] = []

    def ask() -> None:
        try:
            link.request({"op": "never"}, WAIT_S)
        except LinkError as error:
            said.append(error.code)

    waiting = threading.Thread(target=ask)
    waiting.start()
    link.close()
    waiting.join(WAIT_S)
    assert said == ["link_closed"]
    until(lambda: agents(laboratory) == [])
