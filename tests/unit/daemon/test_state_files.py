"""Files of the state directory that are not what the daemon wrote there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dflash_supervise.config import Settings, load
from dflash_supervise.daemon import identity, main, spawn, state_files

DEEP = "[" * 60000


def settings_in(folder: Path) -> Settings:
    environ = {"DFLASH_SUPERVISE_STATE_DIR": str(folder / "state"), "DFLASH_SUPERVISE_DAEMON_PORT": "0"}
    settings = load(files=(), environ=environ)
    identity.private_dir(settings.state_dir)
    return settings


def put(path: Path, content: bytes | None) -> None:
    """The content, or a folder of that name."""
    path.mkdir() if content is None else path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("token", b"\xff\xfe", "token holds no token, which is one word of 16 to 256 letters"),
        ("token", b"a b\nc", "token holds no token"),
        ("token", b"a" * 40 + b"\n" + b"b" * 40, "token holds no token"),
        ("token", b"short", "token holds no token"),
        ("token", b"a" * 257, "token holds no token"),
        ("token", None, "token is no file"),
        ("owner", b"\xff\xfe", "owner holds no id, which is one word"),
        ("owner", b"sup 1", "owner holds no id"),
        ("owner", None, "owner is no file"),
        ("daemon.json", None, "daemon.json is a folder"),
    ],
)
def test_the_daemon_names_the_file_and_the_way_out_and_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | None, said: str
) -> None:
    settings = settings_in(tmp_path)
    put(settings.state_dir / name, content)
    assert main.run(settings) == 2
    err = capsys.readouterr().err
    assert f"the state folder cannot be used: {settings.state_dir}/{said}" in err
    assert "; remove it: the daemon makes a new one at its next start" in err and err.count("\n") == 1
    if content is not None:
        assert (settings.state_dir / name).read_bytes() == content, "it may be somebody's; we change nothing"


@pytest.mark.parametrize("name", ["daemon.lock", "daemon.log"])
def test_a_folder_where_a_file_belongs_is_said_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    settings = settings_in(tmp_path)
    (settings.state_dir / name).mkdir()
    assert main.run(settings) == 2
    assert f"cannot be used: {settings.state_dir / name}: Is a directory\n" in capsys.readouterr().err


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(state_files.BadFile, match="is no file"):
        state_files.token(tmp_path / "token")


def test_an_empty_file_is_made_anew_and_a_token_of_ones_own_is_kept(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.token_file.write_text("my-own.token~0123456789\n")
    (settings.state_dir / "owner").write_text("\n")
    with identity.hold(settings) as instance:
        assert instance.token == "my-own.token~0123456789" and instance.owner.startswith("sup-")
    assert (settings.state_dir / "owner").read_text() == instance.owner + "\n"


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\xff", DEEP.encode(), b"5", b"null", *(json.dumps(doc).encode() for doc in (
        {"pid": 1e999, "port": 1, "url": "http://127.0.0.1:1"},
        {"pid": 1, "port": None, "url": "http://127.0.0.1:1"},
        {"pid": 1, "url": "http://127.0.0.1:1"},
        {"pid": 1, "port": 1},
    )), None],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_a_daemons_file_that_names_none_is_none_and_the_next_daemon_replaces_it(
    tmp_path: Path, content: bytes | None
) -> None:
    settings = settings_in(tmp_path)
    put(settings.daemon_file, content)
    assert identity.read_daemon_file(settings) is None and spawn.running(settings) is None
    if content is None:
        return
    with identity.hold(settings):
        identity.write_daemon_file(settings, url="http://127.0.0.1:1", port=1, version="0")
        found = identity.read_daemon_file(settings)
        assert found is not None and found["pid"] == os.getpid()


def test_who_holds_the_lock_is_named_also_when_the_daemons_file_is_lost(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    settings.daemon_file.write_bytes(b"\xff")
    with (
        identity.hold(settings),
        pytest.raises(identity.AlreadyRunning, match=f"end it by: kill {os.getpid()}$"),
        identity.hold(settings),
    ):
        pass


def test_a_lock_that_does_not_say_who_holds_it_still_tells_what_to_do(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with identity.hold(settings):
        settings.lock_file.write_text("")
        with (
            pytest.raises(identity.AlreadyRunning, match=r"another process holds .*daemon.lock"),
            identity.hold(settings),
        ):
            pass
