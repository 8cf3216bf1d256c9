"""The agent itself behind the link: pushed, followed, cut off and found again."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.link import Follow, HostLink, HostTarget, LinkError, LinkSettings, push_trainer, start_session
from dflash_supervise.link.bundle import agent_bundle, trainer_bundle
from tests.integration.link.harness import WAIT_S, Sink, until
from tests.lab.sshd import Sshd

RUN = f"demo-2601010000-{secrets.token_hex(2)}"
Open = Callable[..., HostLink]


@pytest.fixture
def settings(settings: LinkSettings) -> LinkSettings:
    # The agent beats every five seconds.
    return replace(settings, agent_bundle=agent_bundle, silent_after_s=12.0, ping_every_s=1.0)


@pytest.fixture(params=["gpubox", "here"])
def target(request: pytest.FixtureRequest) -> HostTarget:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, HostTarget)
    return found


def run_folder(workspace: Path) -> Path:
    folder = workspace / ".dflash" / "runs" / RUN
    for part in (folder / "records", folder / "attempts" / "1"):
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def write_records(workspace: Path, first: int, last: int) -> None:
    folder = run_folder(workspace)
    with open(folder / "records" / "000001-ab12.0001.jsonl", "a") as records:
        for seq in range(first, last + 1):
            head = {"v": 1, "run": RUN, "epoch": "000001-ab12", "seq": seq, "t_s": 1.0, "at": "2026-01-01T00:00:00Z"}
            records.write(json.dumps({**head, "kind": "note", "text": f"note {seq}"}) + "\n")
    with open(folder / "attempts" / "1" / "train.log", "a") as log:
        for seq in range(first, last + 1):
            log.write(f"step={seq}\n")


def test_the_agent_says_hello_and_answers(target: HostTarget, open_link: Open, workspace: Path) -> None:
    link = open_link(target)
    state = link.wait_ready(WAIT_S)
    assert state.hello is not None
    assert state.hello["hash"] == agent_bundle().hash
    assert state.hello["uid"] == os.getuid()
    assert link.request({"op": "list", "workspace": str(workspace)})["runs"] == []
    assert link.request({"op": "ping"})["now_s"] > 0


def test_records_and_log_come_once_and_in_order_also_after_a_restart_of_this_side(
    target: HostTarget, open_link: Open, sink: Sink, workspace: Path
) -> None:
    write_records(workspace, 1, 20)
    sink.follows = [Follow(RUN, str(workspace))]
    first = open_link(target)
    until(lambda: sink.seqs() == list(range(1, 21)) and sink.log().endswith(b"step=20\n"))
    first.close()
    write_records(workspace, 21, 40)
    open_link(target)
    until(lambda: sink.seqs() == list(range(1, 41)) and sink.log().endswith(b"step=40\n"))


@pytest.mark.parametrize(("reset", "cut_s", "code"), [(True, 4.0, "unreachable"), (False, 14.0, "agent_silent")])
def test_a_cut_loses_and_doubles_no_record_of_the_agent(
    sshd: Sshd, gpubox: HostTarget, open_link: Open, sink: Sink, workspace: Path, reset: bool, cut_s: float, code: str
) -> None:
    write_records(workspace, 1, 100)
    sink.follows = [Follow(RUN, str(workspace))]
    open_link(gpubox)
    until(lambda: len(sink.seqs()) == 100)
    sshd.cut(cut_s, reset=reset)
    write_records(workspace, 101, 900)
    until(lambda: sink.seqs()[-1] == 900 and sink.log().endswith(b"step=900\n"))
    assert sink.seqs() == list(range(1, 901))
    assert sink.log() == b"".join(b"step=%d\n" % seq for seq in range(1, 901))
    assert sink.errors()[0] == code


def test_the_trainer_arrives_unpacked_under_its_hash(target: HostTarget, open_link: Open, workspace: Path) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    name = push_trainer(link, str(workspace))
    folder = workspace / ".dflash" / "trainer" / name
    assert name == trainer_bundle().hash and (folder / ".complete").exists()
    assert (folder / "dflash_trainer" / "py.typed").exists()
    before = folder.stat().st_mtime_ns
    push_trainer(link, str(workspace))
    assert folder.stat().st_mtime_ns == before


def test_tmux_runs_beside_the_agent(target: HostTarget, open_link: Open, workspace: Path) -> None:
    link = open_link(target)
    link.wait_ready(WAIT_S)
    assert start_session(link.tmux(), RUN, ["/bin/sleep", "1000"], cwd=str(workspace)).status == "started"
    assert [session.session_name for session in link.tmux().sessions] == [f"dflash-{RUN}"]


def test_an_unsafe_workspace_is_refused_and_the_agent_still_comes_up(
    target: HostTarget, open_link: Open, workspace: Path
) -> None:
    (workspace / ".dflash").mkdir(mode=0o700)
    (workspace / ".dflash").chmod(0o777)
    link = open_link(target)
    state = link.wait_ready(WAIT_S)
    assert state.hello is not None
    assert "ours alone" in state.hello["boot"]["notes"][0]
    assert not (workspace / ".dflash" / "agent").exists()
    with pytest.raises(LinkError) as unsafe:
        push_trainer(link, str(workspace))
    assert (unsafe.value.code, unsafe.value.exit_code) == ("unsafe_workspace", 6)


def test_a_workspace_that_is_not_there_still_lets_the_agent_speak(
    target: HostTarget, open_link: Open, workspace: Path
) -> None:
    elsewhere = replace(target, workspace=str(workspace / "absent"))
    state = open_link(elsewhere).wait_ready(WAIT_S)
    assert state.hello is not None
    assert state.hello["boot"]["notes"] == [f"{workspace / 'absent'} is not a folder"]
    assert not (workspace / "absent").exists()
