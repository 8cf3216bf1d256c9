"""The numbers of a run's present attempt: not those of an earlier one, and no speed of one that is over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dflash_supervise.store import Store, view
from tests.unit.store.writing import RUN, Writer, open_store

Doc = dict[str, Any]


def run_of(store: Store) -> Doc:
    run = store.run(RUN)
    assert run is not None
    return run


def trained(tmp_path: Path) -> tuple[Store, Writer]:
    """Attempt 1 at step 49 of 100, with a checkpoint at 40 and a rate."""
    store, write = open_store(tmp_path), Writer()
    store.apply(RUN, [write.spec(1), write.attempt_start(1), write.verdict("running")])
    saved = {"checkpoint_step": 40, "checkpoint_done": True, "tokens_per_s": 70.0, "loss": 2.5, "tau": 1.5}
    store.apply(RUN, [write.observation(step=step, after_s=2.0, **saved) for step in range(50)])
    run = run_of(store)
    assert run["eta_s"] is not None and run["tokens_per_s"] == 70.0 and run["attempt_ended"] is False
    return store, write


def ended(write: Writer, step: int, **progress: Any) -> Doc:
    record = write.observation(step=step, tokens_per_s=70.0, **progress)
    record["obs"]["processes"]["main_alive"] = False
    record["obs"]["exit"] = {"code": 1, "signal": None}
    return record


def test_an_attempt_that_has_ended_keeps_its_step_and_has_no_speed_and_no_rest(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    store.apply(RUN, [ended(write, 49, loss=2.5)])
    run = run_of(store)
    assert (run["step"], run["loss"], run["checkpoint_step"]) == (49, 2.5, 40)
    assert (run["tokens_per_s"], run["eta_s"], run["attempt_ended"]) == (None, None, True)
    assert store.series(RUN)["tokens_per_s"][-1] is None, "nor does the chart go on"


def test_a_final_verdict_ends_the_speed_even_where_nobody_saw_the_end(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    store.apply(RUN, [write.verdict("ended_unclear", final=True)])
    run = run_of(store)
    assert (run["step"], run["tokens_per_s"], run["eta_s"], run["attempt_ended"]) == (49, None, None, True)


def test_what_an_earlier_attempt_did_is_unknown_of_the_next_one_but_its_checkpoint_stays(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    store.apply(RUN, [write.attempt_end(1, "crash"), write.attempt_start(2)])
    run = run_of(store)
    assert run["attempt"] == 2 and run["checkpoint_step"] == 40
    unknown = ("step", "steps_total", "loss", "tau", "tokens_per_s", "eta_s", "attempt_ended")
    assert [run[key] for key in unknown] == [None] * len(unknown)
    assert run["workers"] == [] and run["last_line"] == ""


def test_a_checkpoint_that_is_being_written_does_not_undo_the_last_one(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    store.apply(RUN, [write.observation(step=50, checkpoint_step=50, checkpoint_done=False)])
    assert run_of(store)["checkpoint_step"] == 40
    store.apply(RUN, [write.observation(step=50, checkpoint_step=50, checkpoint_done=True)])
    assert run_of(store)["checkpoint_step"] == 50
    blind = write.observation(step=51)
    blind["obs"]["progress"] = {"type": "Missing", "reason": "no progress file yet"}
    store.apply(RUN, [blind])
    assert run_of(store)["checkpoint_step"] == 50


def test_a_new_attempt_has_no_rest_before_it_has_a_rate_of_its_own(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    store.apply(RUN, [write.attempt_end(1, "crash"), write.attempt_start(2)])
    store.apply(RUN, [write.observation(step=41, attempt=2)])
    run = run_of(store)
    assert (run["step"], run["eta_s"], run["attempt_ended"]) == (41, None, False)


def test_nobody_knows_whether_an_attempt_has_ended_that_nobody_could_look_at(tmp_path: Path) -> None:
    store, write = trained(tmp_path)
    blind = write.observation(step=50)
    blind["obs"]["processes"] = {"type": "Missing", "reason": "/proc does not answer"}
    store.apply(RUN, [blind])
    assert run_of(store)["attempt_ended"] is None


def test_a_view_of_an_older_version_is_still_shown(tmp_path: Path) -> None:
    old = {"attempt": 1, "step": 7, "t_s": 9.0, "tokens_per_s": 3.0, "steps_total": 9, "marks": [[1.0, 1]]}
    shown = view.of_attempt(old, 1, final=False)
    assert (shown["step"], shown["tokens_per_s"], shown["attempt_ended"]) == (7, 3.0, None)
    assert view.of_attempt({}, None, final=False)["step"] is None


def test_a_moment_that_no_calendar_has_is_none() -> None:
    assert [view.rfc3339(at) for at in (None, -1.0, 1e15, float("inf"), float("nan"))] == [None] * 5
    assert view.rfc3339(0.0) == "1970-01-01T00:00:00.000Z"
