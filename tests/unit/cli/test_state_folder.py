"""A state folder whose files are not what the daemon wrote: the command line names the file and the way out."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dflash_supervise.daemon import spawn
from dflash_supervise.daemon.identity import start_ticks
from tests.unit.cli.conftest import Invoke
from tests.unit.cli.double import DaemonDouble


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a b\nc", b"x" * 300, b"\x00" * 64, None])
def test_a_token_that_is_none_is_said_by_its_file_whether_the_daemon_lives_or_not(
    invoke: Invoke,
    daemon: DaemonDouble,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes | None,
) -> None:
    monkeypatch.delattr(spawn, "ensure_running")  # none is brought up over it either
    file = state_dir / "token"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    for arguments in (["ps"], ["start", "local:/tmp/w"], ["open", "--print"], ["daemon", "stop"]):
        ran = invoke(*arguments)
        assert (ran.code, ran.out) == (2, ""), ran
        assert ran.err.startswith(f"error: {file} ")
        assert "fix:   remove it: the daemon makes a new one at its next start\n" in ran.err
    assert json.loads(invoke("ps", "--json").out)["error"]["code"] == "bad_token_file"
    assert daemon.asked == []


def test_the_daemon_that_must_be_ended_for_a_new_token_is_named_only_if_it_is_the_very_process(
    invoke: Invoke, daemon: DaemonDouble, state_dir: Path
) -> None:
    (state_dir / "token").write_text("a b")
    start = start_ticks(os.getpid())
    assert start is not None
    for began, named in ((start, True), (start + 1, False)):
        (state_dir / "daemon.json").write_text(json.dumps({"pid": os.getpid(), "start": began, "url": daemon.url}))
        assert (f"end the one that runs now by: kill {os.getpid()}" in invoke("ps").err) is named


def test_a_token_that_was_removed_under_a_living_daemon_is_told_from_no_daemon(
    invoke: Invoke, daemon: DaemonDouble, state_dir: Path
) -> None:
    (state_dir / "token").unlink()
    ran = invoke("ps")
    assert ran.code == 1 and "does not take our token" in ran.err and "start it anew" in ran.err
    refused = {"code": "unauthorized", "message": "The dashboard needs its token.", "exit_code": 2}
    daemon.refusals["GET", "/runs"] = (401, {**refused, "fix": "Run `dflash-supervise open`."})
    (state_dir / "token").write_text("0123456789abcdef")
    ran = invoke("ps")
    assert "does not take our token" in ran.err and "supervise open" not in ran.err, "that needs the token too"


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b"\xff\xfe\xff", "is no JSON"),
        (b"[" * 60000, "is no JSON"),
        (b"{", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "names no address"),
        (b'{"url": 5}', "names no address"),
        (b'{"url": "http://127.0.0.1"}', "names no address"),
        (b'{"url": "http://127.0.0.1:99999999"}', "names no address"),
        (b'{"url": "http://[:1"}', "names no address"),
        (None, "is no file"),
    ],
)
def test_a_daemons_file_that_names_none_is_said_and_exits_7(
    invoke: Invoke, daemon: DaemonDouble, state_dir: Path, content: bytes | None, wrong: str
) -> None:
    file = state_dir / "daemon.json"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    for verb in ("ps", "daemon status"):
        ran = invoke(*verb.split())
        assert (ran.code, ran.out) == (7, "")
        assert f"no daemon is running, as far as its file tells: {file} {wrong}\n" in ran.err
    assert daemon.asked == []
