"""Names, ports, the one daemon, ingest and operations."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from dflash_supervise.config import Settings, load
from dflash_supervise.daemon import identity, main, names, port
from dflash_supervise.daemon.ingest import HostClock, Ingest
from dflash_supervise.daemon.operations import Failed, Operation, Operations
from dflash_supervise.link import errors
from dflash_supervise.web.control import Refused
from tests.unit.store.writing import RUN, Writer, open_store

Doc = dict[str, Any]


def settings_in(folder: Path) -> Settings:
    return load(files=(), environ={"DFLASH_SUPERVISE_STATE_DIR": str(folder / "state")})


def test_a_run_id_is_name_time_and_four_letters() -> None:
    assert names.run_id("demo", 0.0, "beef") == "demo-7001010000-beef"
    assert names.run_name(None, "/data/My Run!") == "my-run"
    assert names.run_name(None, "/") == "run"
    assert names.run_name("qwen-b16", "/w") == "qwen-b16"
    assert names.free_name("a", frozenset({"a", "a-2"})) == "a-3"


def test_a_folder_that_everybody_writes_into_is_not_taken_from_them(tmp_path: Path) -> None:
    shared = tmp_path / "state"
    shared.mkdir()
    for mode in (0o1777, 0o777):
        shared.chmod(mode)
        with pytest.raises(PermissionError, match="shared by everybody"):
            identity.private_dir(shared)
        assert stat.S_IMODE(shared.stat().st_mode) == mode


@pytest.mark.parametrize("url", ["postgresql://me:s3cret@db/x", "nonsense", "junk"])
def test_a_database_that_cannot_be_used_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    junk = tmp_path / "junk"
    junk.write_text("no database at all " * 100)
    environ = {
        "DFLASH_SUPERVISE_STATE_DIR": str(tmp_path / "state"),
        "DFLASH_SUPERVISE_STORE_URL": f"sqlite:///{junk}" if url == "junk" else url,
        "DFLASH_SUPERVISE_DAEMON_PORT": "0",
    }
    monkeypatch.setattr(main, "_log_to", lambda _settings: None)
    assert main.run(load(files=(), environ=environ)) == 2
    said = capsys.readouterr().err
    assert "the database cannot be used: " in said and "s3cret" not in said and "Traceback" not in said


def test_a_taken_port_says_by_whom_and_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = other.getsockname()[1]
        with pytest.raises(port.PortTaken) as error:
            port.bind("127.0.0.1", number)
    comm = Path("/proc/self/comm").read_text().strip()
    assert f"port {number} is taken by pid {os.getpid()} ({comm})" in str(error.value)
    assert f"--port {number + 1}" in str(error.value)


def test_loopback_is_told_from_the_rest() -> None:
    assert all(port.is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost"))
    assert not any(port.is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-desk.lan"))


def test_one_daemon_holds_the_state_directory_and_its_secrets_are_private(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    before = os.umask(0)
    try:
        with identity.hold(settings) as first:
            with pytest.raises(identity.AlreadyRunning), identity.hold(settings):
                pass
            assert stat.S_IMODE(settings.token_file.stat().st_mode) == 0o600
            assert stat.S_IMODE(settings.state_dir.stat().st_mode) == 0o700
            assert len(first.token) == 64
            assert first.token not in repr(first)
    finally:
        os.umask(before)
    with identity.hold(settings) as second:
        assert second == first, "owner and token are made once"


def test_the_daemons_file_is_believed_only_while_its_process_lives(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    identity.private_dir(settings.state_dir)
    assert identity.read_daemon_file(settings) is None
    identity.write_daemon_file(settings, url="http://127.0.0.1:1", port=1, version="0")
    facts = identity.read_daemon_file(settings)
    assert facts is not None and facts["pid"] == os.getpid()
    settings.daemon_file.write_text(json.dumps({**facts, "start": facts["start"] + 1}))
    assert identity.read_daemon_file(settings) is None, "the pid belongs to another process now"
    settings.daemon_file.write_text("{")
    assert identity.read_daemon_file(settings) is None


def test_an_age_is_counted_on_the_hosts_own_clock() -> None:
    clock = HostClock(now_s=500.0, heard=10.0)
    assert clock.age_s(498.0, now=13.0) == 5.0
    assert clock.age_s(9999.0, now=13.0) == 0.0, "a time of another boot gives no age"


def test_a_line_that_is_no_record_does_not_hold_up_the_others(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    ingest = Ingest(store)
    good = write.verdict("running")
    bad = write("incident", id="1-x")
    unknown = {**Writer(run="gone-1").verdict("running")}
    lines: list[Doc] = [{"t": "rec", "rec": one} for one in (good, {"run": 3}, bad, unknown, write.attempt_start(1))]
    lines += [{"t": "rec"}, {"t": "log", "run": RUN}, {"t": "from the future"}, {"t": "follow_refused", "run": RUN}]
    ingest.take([("lab8", line) for line in lines])
    assert [record["seq"] for record in store.records(RUN)] == [1, 3]


def test_a_store_that_is_busy_is_tried_until_it_takes_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, write = open_store(tmp_path), Writer()
    ingest, tries, real = Ingest(store), [], store.apply

    def busy(*args: Any, **more: Any) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("insert", {}, Exception("database is locked"))
        return real(*args, **more)

    monkeypatch.setattr(store, "apply", busy)
    monkeypatch.setattr("dflash_supervise.daemon.ingest.RETRY_S", (0.0,))
    watcher = ingest.watch(RUN)
    ingest.take([("lab8", {"t": "rec", "rec": write.verdict("running")})])
    assert len(tries) == 3 and len(store.records(RUN)) == 1
    assert watcher.get_nowait()["verdict"] == "running"


def test_what_has_arrived_is_stored_before_the_daemon_ends(tmp_path: Path) -> None:
    store, write = open_store(tmp_path), Writer()
    ingest = Ingest(store)
    ingest.start()
    for _ in range(500):
        ingest.put("lab8", {"t": "rec", "rec": write.verdict("running")})
    ingest.close()
    assert len(store.records(RUN, limit=1000)) == 500


def outcome(work: Any) -> Doc:
    done = threading.Event()

    def wrapped(operation: Operation) -> None:
        try:
            work(operation)
        finally:
            done.set()

    operations = Operations()
    name = operations.begin("start", wrapped)
    assert done.wait(10)
    for thread in threading.enumerate():
        if thread.name == f"start-{name}":
            thread.join(10)
    doc = operations.get(name)
    assert doc is not None
    return doc


def test_an_operation_ends_done_or_with_an_error_for_its_reader() -> None:
    def good(operation: Operation) -> None:
        operation.say("one")
        operation.run_id = "r"
        operation.result["checks"] = []

    def failing(error: Exception) -> Any:
        def work(operation: Operation) -> None:
            raise error

        return work

    assert {**outcome(good), "operation": ""} == {
        "operation": "",
        "kind": "start",
        "state": "done",
        "lines": ["one"],
        "run_id": "r",
        "error": None,
        "checks": [],
    }
    failed = outcome(failing(Failed("live_run", "m", fix="f", exit_code=6, evidence=[1])))
    assert failed["state"] == "failed"
    assert failed["error"] == {"code": "live_run", "message": "m", "fix": "f", "exit_code": 6, "evidence": [1]}
    key = errors.HostKeyUnknown("new", name="lab8", key_type="ssh-ed25519", fingerprint="SHA256:x", fix="trust it")
    assert outcome(failing(key))["error"]["evidence"]["fingerprint"] == "SHA256:x"
    assert outcome(failing(Refused("bad_name", "m", exit_code=2)))["error"]["exit_code"] == 2
    ours = outcome(failing(ZeroDivisionError("oops")))["error"]
    assert ours["exit_code"] == 1 and "oops" in ours["message"]
    assert Operations().get("unknown") is None
