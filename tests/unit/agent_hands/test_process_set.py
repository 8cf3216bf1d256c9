"""Who belongs to an attempt, on a /proc of plain files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dflash_supervise.agent import proc
from dflash_supervise.agent.procs import ProcessSet
from dflash_supervise.core.facts import ProcessesReading
from tests.unit.agent_hands.fakeproc import FakeProc, token

NOW_S = 1000.0


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


def found(reading: ProcessesReading) -> dict[int, str]:
    return {p.pid: p.via for p in reading.members}


def a_set(fake: FakeProc, memory: Path | None = None, *, own_session: bool = True) -> ProcessSet:
    path = None if memory is None else str(memory)
    return ProcessSet("run-a", 1, proc_root=str(fake.root), memory_path=path, own_session=own_session)


def test_members_are_main_tree_session_and_token_holders_and_nobody_else(fake: FakeProc) -> None:
    keeper = fake.add(50)
    main = fake.add(60, ppid=50, env=token())
    fake.add(61, ppid=60, sid=60, env=token())
    fake.add(62, ppid=50, sid=62)  # double-forked, empty environment: adopted by the keeper
    fake.add(63, ppid=62, sid=62)
    fake.add(64, ppid=1, sid=60)  # same session, parent gone
    fake.add(65, ppid=1, env=token())
    fake.add(70)
    fake.add(71, env=token("run-a", 11))
    fake.add(72, env={"NOT_DFLASH_RUN": "run-a:1", "X": "DFLASH_RUN=run-a:1"})
    reading = a_set(fake).scan(main, keeper, now_s=NOW_S)
    assert found(reading) == {60: "main", 61: "tree", 62: "tree", 63: "tree", 64: "session", 65: "token"}
    assert reading.main_alive is True and reading.keeper_alive is True


def test_a_session_that_our_keeper_did_not_make_does_not_count(fake: FakeProc) -> None:
    shell = fake.add(40, tty=34816, comm="bash")
    main = fake.add(60, ppid=40, sid=40)
    fake.add(61, ppid=40, sid=40, comm="other-job")
    assert shell and found(a_set(fake, own_session=False).scan(main, None, now_s=NOW_S)) == {60: "main"}


def test_a_new_owner_of_the_main_pid_is_not_the_trainer_nor_is_his_session(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    processes = a_set(fake)
    assert found(processes.scan(main, None, now_s=NOW_S)) == {60: "main"}
    fake.add(60, start_s=900.0, comm="stranger")
    fake.add(66, ppid=60, sid=60, start_s=901.0, comm="strangers-child")
    reading = processes.scan(main, None, now_s=NOW_S + 1)
    assert found(reading) == {} and reading.main_alive is False


def test_a_number_judged_foreign_is_looked_at_again_when_it_has_a_new_owner(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(70)
    processes = a_set(fake)
    processes.scan(main, None, now_s=NOW_S)
    fake.add(70, start_s=1000.5, env=token())
    assert found(processes.scan(main, None, now_s=NOW_S + 1)) == {60: "main", 70: "token"}


def test_a_process_younger_than_three_seconds_is_not_yet_judged_foreign(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(70, start_s=NOW_S - 1.0)  # forked, and about to exec with our token
    processes = a_set(fake)
    assert found(processes.scan(main, None, now_s=NOW_S)) == {60: "main"}
    (fake.root / "70" / "environ").write_bytes(b"DFLASH_RUN=run-a:1\0")
    assert found(processes.scan(main, None, now_s=NOW_S + 1)) == {60: "main", 70: "token"}


def test_two_thousand_foreign_processes_are_read_once(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    main = fake.add(60, env=token())
    for pid in range(1000, 3000):
        fake.add(pid)
    processes = a_set(fake)
    processes.scan(main, None, now_s=NOW_S)
    read: list[int] = []
    original = proc.read_stat

    def counted(pid: int, proc_root: str = "/proc") -> proc.Stat | None:
        if proc_root == str(fake.root):
            read.append(pid)
        return original(pid, proc_root)

    monkeypatch.setattr(proc, "read_stat", counted)
    processes.scan(main, None, now_s=NOW_S + 1)
    assert [pid for pid in read if 1000 <= pid < 3000] == []
    processes.scan(main, None, now_s=NOW_S + 2, full=True)
    assert len([pid for pid in read if 1000 <= pid < 3000]) == 2000


def test_a_member_that_loses_its_environment_and_its_parent_stays_a_member(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(61, ppid=60, sid=61, env=token())
    processes = a_set(fake)
    processes.scan(main, None, now_s=NOW_S)
    fake.end(60)
    (fake.root / "61" / "environ").write_bytes(b"")  # setproctitle wrote over it
    stat = (fake.root / "61" / "stat").read_text().replace("S 60 61", "S 1 61")
    (fake.root / "61" / "stat").write_text(stat)
    assert set(found(processes.scan(main, None, now_s=NOW_S + 1))) == {61}


def test_the_next_agent_remembers_members_but_not_across_a_reboot(fake: FakeProc, tmp_path: Path) -> None:
    memory = tmp_path / "set-1.json"
    keeper = fake.add(50)
    main = fake.add(60, ppid=50, env=token())
    fake.add(62, ppid=50)
    a_set(fake, memory).scan(main, keeper, now_s=NOW_S)
    fake.end(50)
    fake.end(60)
    fake.add(62, ppid=1)
    assert found(a_set(fake, memory).scan(main, keeper, now_s=NOW_S + 1)) == {62: "remembered"}
    (fake.root / "sys/kernel/random/boot_id").write_text("boot-2\n")
    assert found(a_set(fake, memory).scan(main, keeper, now_s=NOW_S + 2)) == {}


def test_a_zombie_is_a_dead_member(fake: FakeProc) -> None:
    main = fake.add(60, state="Z")
    reading = a_set(fake).scan(main, None, now_s=NOW_S)
    assert reading.alive == () and reading.main_alive is False


@pytest.mark.parametrize("serving", [{"tty": 34816}, {"comm": "tmux: server"}, {"comm": "sshd"}])
def test_a_token_holder_outside_the_tree_that_serves_others_is_a_bystander(
    fake: FakeProc, serving: dict[str, int | str]
) -> None:
    main = fake.add(60, env=token())
    fake.add(80, env=token(), **serving)  # type: ignore[arg-type]
    fake.add(81, ppid=80, env=token())
    processes = a_set(fake)
    assert found(processes.scan(main, None, now_s=NOW_S)) == {60: "main"}
    assert {p.pid for p in processes.bystanders} == {80, 81}


def test_a_service_that_inherited_the_token_and_has_other_children_is_a_bystander(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(80, env=token(), comm="ray")
    fake.add(81, ppid=80, env={"PATH": "/bin"})
    processes = a_set(fake)
    assert found(processes.scan(main, None, now_s=NOW_S)) == {60: "main"}
    assert {p.pid for p in processes.bystanders} == {80}


def test_inside_the_tree_even_a_terminal_is_the_trainers(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(61, ppid=60, tty=34816, comm="script", env=token())
    assert found(a_set(fake).scan(main, None, now_s=NOW_S)) == {60: "main", 61: "tree"}


def test_holders_of_other_tokens_are_named_with_their_workspace(fake: FakeProc) -> None:
    fake.add(90, env=token("run-b", 4, "/data/ws"))
    fake.add(91, env=token("run-a", 2))
    fake.add(92, env={"DFLASH_RUN": "run-c"})  # no attempt: no token of ours
    processes = a_set(fake)
    assert found(processes.scan(None, None, now_s=NOW_S)) == {}
    told = {o.process.pid: (o.run_id, o.attempt, o.workspace, o.keeper_above) for o in processes.others}
    assert told == {90: ("run-b", 4, "/data/ws", False), 91: ("run-a", 2, "/ws", False)}


def test_kernel_threads_are_passed_over_but_pid_2_of_a_container_is_not(fake: FakeProc) -> None:
    fake.add(2, comm="kthreadd", ppid=0, flags=0x00208040)
    main = fake.add(60, ppid=3, env=token())
    fake.add(3, ppid=0, comm="sh")
    assert found(a_set(fake).scan(main, None, now_s=NOW_S)) == {60: "main"}
    fake.add(2, comm="helper", ppid=60, start_s=999.0)
    assert found(a_set(fake).scan(main, None, now_s=NOW_S + 1)) == {60: "main", 2: "tree"}


def test_a_name_with_brackets_and_spaces_is_read_right(fake: FakeProc) -> None:
    fake.add(60, comm="a) S 1 (b", ppid=7, state="D")
    stat = proc.read_stat(60, str(fake.root))
    assert stat is not None and (stat.comm, stat.ppid, stat.state, stat.cpu_s) == ("a) S 1 (b", 7, "D", 15.0)


def test_compilers_are_counted(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(61, ppid=60, comm="cc1plus")
    fake.add(62, ppid=60, comm="ptxas")
    fake.add(63, ppid=60, comm="ld", state="Z")
    fake.add(64, comm="cc1plus")
    assert a_set(fake).scan(main, None, now_s=NOW_S).compilers == 2


def test_a_gpu_holder_is_ours_by_the_set_and_unknown_when_not_visible(fake: FakeProc, tmp_path: Path) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    main = fake.add(60, env=token())
    fake.add(70, comm="jupyter", env=token("run-b", 2))
    fake.add(71, comm="bash")
    for pid, target in ((60, device), (70, device), (71, tmp_path)):
        (fake.root / str(pid) / "fd").mkdir()
        (fake.root / str(pid) / "fd" / "3").symlink_to(target)
    processes = ProcessSet("run-a", 1, proc_root=str(fake.root), dev_glob=str(tmp_path / "nvidia*"))
    processes.scan(main, None, now_s=NOW_S)
    ours, other = processes.holder(60, 1 << 30), processes.holder(70, None)
    assert (ours.ours, ours.mem_bytes, ours.comm) == (True, 1 << 30, "python")
    assert (other.ours, other.run_token, other.comm) == (False, "run-b:2", "jupyter")
    assert processes.holder(4242, 1).ours is None
    # A container's number 71 is not the host's 71: it has no GPU open, so the driver means somebody else.
    assert processes.holder(71, 1).ours is None


def test_a_holder_of_another_token_below_ours_is_named_and_not_a_member(fake: FakeProc) -> None:
    main = fake.add(60, env=token())
    fake.add(61, ppid=60, env=token("run-b", 1, "/other"))
    processes = a_set(fake)
    assert found(processes.scan(main, None, now_s=NOW_S)) == {60: "main"}
    assert [o.process.pid for o in processes.others] == [61]
