"""What is proven, what blocks, and what cannot be said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dflash_supervise.agent.proof import MIB, Baselines, look
from dflash_supervise.agent.runtime import Runtime, take_lock
from dflash_supervise.agent.strangers import TokenHolder
from dflash_supervise.core.facts import (
    GpuHolder,
    GpuReading,
    GpusReading,
    Missing,
    ProcessesReading,
    ProcessFact,
    ProofReading,
)

EMPTY = ProcessesReading((), False, True)
FREE = GpuReading("GPU-a", 0, util_pct=0.0, mem_used_bytes=4 * MIB, holders=())


def process(pid: int = 70, state: str = "S") -> ProcessFact:
    return ProcessFact(pid, 1, 1, pid, pid, state, "python", 0.0, 1, 0, "token")


def leftover(run: str = "run-b", attempt: int = 1, **more: object) -> TokenHolder:
    base = TokenHolder(process(), run, attempt, "/ws", keeper_above=False, serves_others=False)
    return replace(base, **more)  # type: ignore[arg-type]


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime.open(root=str(tmp_path / "r"))


@pytest.fixture
def baselines(runtime: Runtime) -> Baselines:
    return Baselines(runtime.baselines_path)


def weigh(
    runtime: Runtime,
    *gpus: GpuReading,
    processes: ProcessesReading | Missing = EMPTY,
    others: tuple[TokenHolder, ...] = (),
    wanted: tuple[str, ...] | None = None,
    reading: GpusReading | Missing | None = None,
    locks: tuple[str, ...] = (),
    attempt: int = 3,
) -> ProofReading:
    return look(
        run_id="run-a",
        attempt=attempt,
        processes=processes,
        others=others,
        gpus=GpusReading(gpus) if reading is None else reading,
        wanted=wanted,
        baselines=Baselines(runtime.baselines_path),
        runtime=runtime,
        workspace="/ws",
        locks=locks,
    )


def test_an_empty_set_and_an_idle_gpu_are_free(runtime: Runtime) -> None:
    assert weigh(runtime, FREE) == ProofReading(set_empty=True, free=True)


def test_a_zombie_keeps_no_set_alive_and_a_living_member_does(runtime: Runtime) -> None:
    assert weigh(runtime, processes=ProcessesReading((process(state="Z"),), False, None)).free is True
    proof = weigh(runtime, processes=ProcessesReading((process(),), False, None))
    assert (proof.set_empty, proof.free) == (False, False) and "pid 70 (python, state S)" in proof.blockers[0]


def test_what_was_not_read_is_neither_free_nor_blocked(runtime: Runtime) -> None:
    assert weigh(runtime, FREE, processes=Missing("no /proc")).free is None
    assert weigh(runtime, FREE, processes=Missing("no /proc")).set_empty is None
    assert weigh(runtime, reading=Missing("no driver")).free is None
    assert weigh(runtime, reading=GpusReading((FREE,), stuck_s=7.0)).free is None
    assert weigh(runtime, replace(FREE, age_s=11.0)).free is None
    assert weigh(runtime, replace(FREE, mem_used_bytes=None)).free is None
    assert weigh(runtime, replace(FREE, holders=None)).free is None


def test_a_run_without_gpus_does_not_ask_about_them(runtime: Runtime) -> None:
    assert weigh(runtime, reading=Missing("no driver"), wanted=()).free is True


def test_only_wanted_gpus_count_and_a_wanted_one_must_be_there(runtime: Runtime) -> None:
    busy = replace(FREE, uuid="GPU-b", index=1, util_pct=100.0)
    assert weigh(runtime, FREE, busy, wanted=("GPU-a",)).free is True
    assert weigh(runtime, FREE, busy).free is False
    assert "GPU-c is not there" in weigh(runtime, FREE, wanted=("GPU-c",)).blockers[0]


def test_full_utilisation_without_memory_or_holder_is_unseen_work(runtime: Runtime) -> None:
    proof = weigh(runtime, replace(FREE, index=3, util_pct=100.0, mem_used_bytes=0))
    assert proof.free is False and proof.unseen and not proof.foreign
    assert proof.blockers == ("GPU 3 is at 100 % with 0 MiB, no process that we can see",)


@pytest.mark.parametrize(
    ("known_mib", "used_mib", "free"),
    [(4, 60, True), (4, 100, False), (None, 500, True), (None, 700, False), (600, 620, True), (600, 700, False)],
)
def test_memory_must_be_back_at_the_holder_free_baseline(
    runtime: Runtime, known_mib: int | None, used_mib: int, free: bool
) -> None:
    if known_mib is not None:
        Path(runtime.baselines_path).write_text(f'{{"GPU-a": {known_mib * MIB}}}')
    proof = weigh(runtime, replace(FREE, mem_used_bytes=used_mib * MIB))
    assert proof.free is free and proof.unseen is not free


def test_a_driver_that_hides_holders_is_believed_at_a_known_baseline(runtime: Runtime) -> None:
    Path(runtime.baselines_path).write_text(f'{{"GPU-a": {4 * MIB}}}')
    assert weigh(runtime, replace(FREE, holders=None)).free is True
    assert weigh(runtime, replace(FREE, holders=None, mem_used_bytes=1 << 30)).unseen


def test_a_foreign_holder_is_named_and_one_that_is_not_visible_is_unseen(runtime: Runtime) -> None:
    foreign = GpuHolder(123, 4096 * MIB, ours=False, comm="jupyter", uid=1001)
    proof = weigh(runtime, replace(FREE, mem_used_bytes=4100 * MIB, holders=(foreign,)))
    assert proof.free is False and proof.foreign and not proof.unseen
    assert proof.blockers == ("GPU 0 is used by pid 123 (jupyter, uid 1001), 4096 MiB",)
    hidden = weigh(runtime, replace(FREE, holders=(GpuHolder(123, None, ours=None),)))
    assert hidden.free is False and hidden.unseen and not hidden.foreign


def test_a_lost_gpu_blocks(runtime: Runtime) -> None:
    proof = weigh(runtime, replace(FREE, error="GPU is lost"))
    assert proof.free is False and not proof.foreign and not proof.unseen


def test_a_leftover_may_be_ended_and_its_gpu_is_not_called_foreign(runtime: Runtime) -> None:
    held = replace(FREE, holders=(GpuHolder(70, MIB, ours=False, comm="python", run_token="run-b:1"),))
    proof = weigh(runtime, held, others=(leftover(),))
    assert [p.pid for p in proof.stale_ours] == [70] and proof.free is False and not proof.foreign


@pytest.mark.parametrize(
    "other",
    [
        leftover(keeper_above=True),
        leftover(workspace="/other"),
        leftover(workspace=None),
        leftover(serves_others=True),
        leftover("run-a", 9),  # an attempt this run directory knows nothing of: history was lost
    ],
)
def test_what_somebody_answers_for_or_another_workspace_owns_is_never_ended(
    runtime: Runtime, other: TokenHolder
) -> None:
    assert weigh(runtime, FREE, others=(other,)).stale_ours == ()


@pytest.mark.parametrize("which", ["keeper", "agent"])
def test_a_run_whose_keeper_or_agent_lives_is_not_stale(runtime: Runtime, which: str) -> None:
    runtime.run("run-b")
    path = runtime.keeper_lock("run-b", 1) if which == "keeper" else runtime.agent_lock("run-b")
    lock = take_lock(path, {})
    assert lock is not None
    proof = weigh(runtime, FREE, others=(leftover(),))
    assert proof.stale_ours == () and proof.free is False
    lock.release()
    assert len(weigh(runtime, FREE, others=(leftover(),)).stale_ours) == 1


def test_an_earlier_attempt_of_this_run_is_stale_although_its_agent_lives(runtime: Runtime) -> None:
    runtime.run("run-a")
    lock = take_lock(runtime.agent_lock("run-a"), {})
    assert lock is not None
    assert len(weigh(runtime, FREE, others=(leftover("run-a", 2),)).stale_ours) == 1
    lock.release()


def test_a_lock_of_another_blocks(runtime: Runtime) -> None:
    assert weigh(runtime, FREE, locks=("GPU GPU-a is held by run x attempt 1",)).free is False


def test_a_baseline_is_learned_only_from_an_idle_gpu_and_only_falls(baselines: Baselines, runtime: Runtime) -> None:
    def learn(gpu: GpuReading, set_empty: bool | None = True) -> int | None:
        baselines.learn(GpusReading((gpu,)), set_empty=set_empty)
        return baselines.get("GPU-a")

    assert learn(replace(FREE, mem_used_bytes=60 << 30)) is None  # somebody's
    assert learn(FREE, set_empty=False) is None
    assert learn(FREE, set_empty=None) is None
    assert learn(replace(FREE, holders=None)) is None
    assert learn(replace(FREE, util_pct=100.0)) is None
    assert learn(FREE) == 4 * MIB
    assert learn(replace(FREE, mem_used_bytes=300 * MIB)) == 4 * MIB
    assert learn(replace(FREE, mem_used_bytes=2 * MIB)) == 2 * MIB
    assert Baselines(runtime.baselines_path).get("GPU-a") == 2 * MIB


def test_a_baseline_that_cannot_be_kept_is_known_all_the_same(runtime: Runtime, baselines: Baselines) -> None:
    Path(runtime.baselines_path).mkdir()  # nothing can be put there
    assert baselines.learn(GpusReading((FREE,)), set_empty=True)
    assert baselines.get("GPU-a") == 4 * MIB
