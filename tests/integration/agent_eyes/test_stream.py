"""The stream process: hello, requests, following with a cut in between, and how it ends."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

from dflash_supervise.agent.runtime import Runtime
from tests.fakes.gpus import FakeGpus
from tests.integration.agent_eyes.stream import Peer, Toy, wait_for
from tests.integration.agent_eyes.test_agent import FOREVER, STEPS


def test_the_first_line_says_who_answers(start_peer: Callable[..., Peer], agent_dir: Path) -> None:
    peer = start_peer()
    hello = wait_for("hello", lambda: peer.told("hello"))[0]
    assert peer.raw[0].startswith(b"\x1e")
    assert (hello["protocol"], hello["pid"], hello["hash"]) == (1, peer.process.pid, agent_dir.name)
    assert hello["machine"]["boot_id"] and hello["runtime_dir"].endswith("/dflash")


def test_the_end_of_stdin_is_the_end_of_the_process(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer()
    assert peer.ask("ping")["ok"]
    assert peer.close() == 0


def test_a_runtime_folder_that_takes_nothing_does_not_cut_the_host_off(start_peer: Callable[..., Peer]) -> None:
    (Path(Runtime.open().root) / "tmux.conf").mkdir()
    assert start_peer().ask("ping")["ok"]


def test_a_line_that_is_no_request_is_refused_and_the_next_one_answered(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer()
    peer.send(b"what?\n[1]\n" + b"[" * 200_000 + b"\n")
    assert peer.ask("ping")["ok"]
    refused = [line for line in peer.lines if line.get("ok") is False]
    assert [line["error"]["code"] for line in refused] == ["bad_request"] * 3
    assert peer.ask("dance")["error"]["code"] == "unknown_op"


def test_following_on_from_the_cursor_after_a_cut_is_without_loss_or_doubling(
    toy: Toy, start_peer: Callable[..., Peer]
) -> None:
    toy.start(STEPS + STEPS)
    toy.follow()
    wait_for("some records and log", lambda: len(toy.peer.records()) > 5 and toy.peer.log(1))
    first = toy.peer
    first.close()
    toy.peer = start_peer()
    last, log = first.records()[-1], first.log(1)
    toy.follow({"epoch": last["epoch"], "seq": last["seq"]}, {"attempt": 1, "offset": len(log)})
    toy.final()
    wait_for("the last verdict", lambda: [r for r in toy.peer.records("verdict") if r["final"]])
    seqs = [(r["epoch"], r["seq"]) for r in first.records() + toy.peer.records()]
    assert seqs == [(seqs[0][0], n) for n in range(1, len(seqs) + 1)]
    path = toy.run_dir / "attempts/1/train.log"
    rest = wait_for("the footer", lambda: [x for x in toy.peer.told("log") if b"ended" in base64.b64decode(x["data"])])
    end = rest[-1]["offset"] + len(base64.b64decode(rest[-1]["data"]))
    assert end == path.stat().st_size
    pieces = b"".join(base64.b64decode(line["data"]) for line in toy.peer.told("log"))
    assert log + pieces == path.read_bytes()


def test_a_range_of_the_log_is_answered(toy: Toy) -> None:
    toy.start(STEPS)
    toy.final()
    answer = toy.peer.ask("log_range", workspace=str(toy.workspace), run_id=toy.run_id, attempt=1, offset=1, length=6)
    assert base64.b64decode(answer["data"]) == b"dflash"
    assert answer["size"] == (toy.run_dir / "attempts/1/train.log").stat().st_size


def test_an_unsafe_workspace_is_refused_with_what_to_do(start_peer: Callable[..., Peer], workspace: Path) -> None:
    (workspace / ".dflash").mkdir()
    (workspace / ".dflash").chmod(0o777)
    toy = Toy(start_peer(), workspace)
    answer = toy.goal("run", context={"argv": ["true"]})
    assert answer["error"]["code"] == "unsafe_workspace"
    assert "chmod" in answer["error"]["fix"]


def test_the_launch_context_is_private_and_holds_the_environment(toy: Toy) -> None:
    toy.start(STEPS)
    path = Path(os.environ["XDG_RUNTIME_DIR"]) / "dflash/runs" / toy.run_id / "context.json"
    assert path.stat().st_mode & 0o777 == 0o600
    context = json.loads(path.read_text())
    assert context["cwd"] == str(toy.workspace)
    assert context["env"]["PYTHONUNBUFFERED"] == "1" and "PATH" in context["env"]
    assert not [name for name in context["env"] if name.startswith("DFLASH_")]
    toy.final()


def test_the_trainer_arrives_in_pieces_and_only_whole(start_peer: Callable[..., Peer], workspace: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("dflash_trainer/__init__.py", "x = 1\n" * 1000)
    data = buffer.getvalue()
    digest, peer = hashlib.sha256(data).hexdigest(), start_peer()

    def put(offset: int, piece: bytes, last: bool) -> dict[str, object]:
        text = base64.b64encode(piece).decode()
        return peer.ask(
            "put", kind="trainer", hash=digest, workspace=str(workspace), offset=offset, data=text, last=last
        )

    have = {"kind": "trainer", "hash": digest, "workspace": str(workspace)}
    assert peer.ask("have", **have)["have"] is False
    assert put(0, b"damaged", True)["ok"] is False
    half = len(data) // 2
    assert put(0, data[:half], False)["ok"]
    assert put(half, data[half:], True)["ok"]
    assert peer.ask("have", **have)["have"] is True
    assert (workspace / ".dflash/trainer" / digest / "dflash_trainer/__init__.py").read_text().startswith("x = 1")


def test_tmux_is_asked_with_the_words_as_they_are(start_peer: Callable[..., Peer]) -> None:
    peer = start_peer()
    conf = wait_for("hello", lambda: peer.told("hello"))[0]["runtime_dir"] + "/tmux.conf"
    words = ["-L", "eyes", "-f", conf, "new-session", "-d", "-s", "a", "sleep", "600"]
    assert peer.ask("tmux", argv=words)["rc"] == 0
    told = peer.ask("tmux", argv=["-L", "eyes", "list-sessions", "-F", "#{session_name} ' $x"])
    assert told["out"] == "a ' $x\n"
    assert peer.ask("tmux", argv=["-L", "eyes", "has-session", "-t", "=b"])["rc"] == 1
    assert peer.ask("tmux", argv=["-L", "eyes", "show", "-s", "set-clipboard"])["out"] == "set-clipboard off\n"
    peer.ask("tmux", argv=["-L", "eyes", "kill-server"])


def test_preflight_shows_the_gpus_and_asks_no_python_of_a_foreign_command(
    fake_gpus: FakeGpus, start_peer: Callable[..., Peer], workspace: Path
) -> None:
    peer = start_peer(**fake_gpus.env())
    found = peer.ask("preflight", workspace=str(workspace), gpus="all", bundled=False)
    assert found["ok"], found["blockers"]
    assert found["wanted_gpus"] == fake_gpus.uuids
    assert found["python"] is None and found["live_run"] is None
    named = peer.ask("preflight", workspace=str(workspace), gpus=["GPU-nowhere"], bundled=False)
    assert [blocker["code"] for blocker in named["blockers"]] == ["gpu_missing"]


def test_preflight_says_what_each_python_lacks(
    start_peer: Callable[..., Peer], workspace: Path, no_devices: str
) -> None:
    peer = start_peer(DFLASH_AGENT_OPTIONS=json.dumps({"dev_nvidia_glob": no_devices}))
    old = workspace / "python"
    old.write_text('#!/bin/sh\nprintf \'\\036{"version": "3.9.2", "torch": null, "cuda": null, "error": null}\'\n')
    old.chmod(0o755)
    found = peer.ask("preflight", workspace=str(workspace), gpus="none", bundled=True, python=str(old))
    assert [blocker["code"] for blocker in found["blockers"]] == ["python_missing"]
    assert found["blockers"][0]["fix"] == "name one with --python, or make <workspace>/.venv with torch 2.11 or newer"
    assert found["tried"] == [{"path": str(old), "why": "is Python 3.9.2, and the trainer needs 3.11"}]
    gone = peer.ask("preflight", workspace=str(workspace), gpus="none", bundled=True, python="/no/python")
    assert "cannot be started" in gone["tried"][0]["why"]


def test_preflight_takes_the_python_of_the_workspace_and_remembers_it(
    start_peer: Callable[..., Peer], workspace: Path
) -> None:
    asked = workspace / "asked"
    good = workspace / ".venv/bin/python"
    good.parent.mkdir(parents=True)
    answer = '\\036{"version": "3.12.1", "torch": "2.13.0+cpu", "cuda": null, "error": null}'
    good.write_text(f"#!/bin/sh\necho x >> {asked}\nprintf '{answer}'\n")
    good.chmod(0o755)
    peer = start_peer()
    for _ in range(2):
        found = peer.ask("preflight", workspace=str(workspace), gpus="none", bundled=True)
        assert found["python"] == {"path": str(good), "version": "3.12.1", "torch": "2.13.0+cpu", "cuda": None}
    assert asked.read_text() == "x\n"


def test_preflight_names_the_run_that_lives_in_the_workspace(toy: Toy) -> None:
    toy.start(FOREVER)
    wait_for("attempt 1", (toy.run_dir / "attempts/1/child.json").exists)
    found = toy.peer.ask("preflight", workspace=str(toy.workspace), gpus="none", bundled=False)
    assert found["live_run"] == toy.run_id
    assert [blocker["code"] for blocker in found["blockers"]] == ["live_run"]
    listed = toy.peer.ask("list", workspace=str(toy.workspace))["runs"]
    assert [(run["run_id"], run["attempt_alive"], run["newest_attempt"]) for run in listed] == [(toy.run_id, True, 1)]


def test_preflight_of_a_workspace_that_is_not_there(start_peer: Callable[..., Peer], workspace: Path) -> None:
    found = start_peer().ask("preflight", workspace=str(workspace / "no"), gpus="none", bundled=False)
    assert "workspace_missing" in [blocker["code"] for blocker in found["blockers"]]


def test_a_look_names_the_holders_of_the_gpus(
    fake_gpus: FakeGpus, start_peer: Callable[..., Peer], workspace: Path
) -> None:
    fake_gpus.set(3, util=100.0)
    fake_gpus.ghost(1, 4_000_000, 2**30)
    found = start_peer(**fake_gpus.env()).ask("look", workspace=str(workspace))
    gpus = found["gpus"]["gpus"]
    assert (gpus[3]["util_pct"], gpus[3]["mem_used_bytes"], gpus[3]["holders"]) == (100.0, 0, [])
    assert gpus[1]["holders"][0]["pid"] == 4_000_000 and gpus[1]["holders"][0]["ours"] is None
    assert found["gpu_class"][fake_gpus.uuid(3)] == "spinning"


def test_the_doctor_sees_a_full_driver_failure_and_a_good_workspace(
    fake_gpus: FakeGpus, start_peer: Callable[..., Peer], workspace: Path
) -> None:
    fake_gpus.driver(init_error=18)
    good = workspace / ".venv/bin/python"
    good.parent.mkdir(parents=True)
    good.write_text("#!/bin/sh\nexit 3\n")
    good.chmod(0o755)
    checks = {
        check["name"]: check
        for check in start_peer(**fake_gpus.env()).ask("doctor", workspace=str(workspace))["checks"]
    }
    assert checks["workspace"]["ok"] is True
    assert checks["GPUs"]["ok"] is False and "mismatch" in checks["GPUs"]["detail"]
    assert checks["GPUs"]["fix"]
    assert checks["durable write"]["ok"] is True
    assert "torch" in checks["trainer's Python"]["detail"]
