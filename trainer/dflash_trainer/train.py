"""The training loop, from top to bottom: feed, collect, step, publish, report, save, evaluate."""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dflash_trainer import exits, faults, log, optimise, owner, watchdog
from dflash_trainer.drafting import MicroGrads
from dflash_trainer.pool import SLICE_S, Board, Pool
from dflash_trainer.process_pool import ProcessPool
from dflash_trainer.session import Session, append_metrics, evaluate, save
from dflash_trainer.thread_pool import ThreadPool

FENCE_CHECK_S = 1.0


@dataclass(slots=True)
class _Rate:
    """Tokens a second over the last ten steps."""

    seen: deque[tuple[float, int]]

    def add(self, tokens: int) -> float | None:
        self.seen.append((time.monotonic(), tokens))
        (first, before), (last, after) = self.seen[0], self.seen[-1]
        return (after - before) / (last - first) if last > first else None


def train(session: Session) -> None:
    """Train to the last step.

    Raises:
        StoppedError: asked to stop; a checkpoint of the last finished step is saved.
        TrainerError and whatever a worker raised: the process must end.
    """
    pool: Pool = ProcessPool(session) if session.layout.workers == "processes" else ThreadPool(session)
    watch(session, pool.board, pool.show_stacks)
    try:
        pool.launch()
        if session.tau_start is None:
            session.tau_start = evaluate(session, session.masters).pooled
        pool.start()
        _steps(session, pool)
        pool.close(join_s=5.0)
    except exits.StoppedError:
        pool.board.close(join_s=0.0)  # from here on no worker's end is a failure that could cut the save short
        if session.step > 0:
            save(session)
        raise
    finally:
        pool.close(join_s=0.0)
        with contextlib.suppress(OSError):  # a full disk must not hide why the run ends
            session.reporter.update(workers=pool.board.workers())


def watch(session: Session, board: Board, show_stacks: Callable[[], None] = lambda: None) -> None:
    """Start the stall watchdog with the limit of whatever phase the loop is in."""
    limits = session.config.limits

    def limit_s() -> float:
        if limits.stall_s == 0:
            return 0.0
        return max(limits.stall_s, session.reporter.limits_s.get(session.reporter.now.phase, 0.0))

    def training_limit_s() -> float:
        return limits.stall_s if session.reporter.now.phase == "training" else limit_s()

    watchdog.start(
        lambda: max(board.moved_at, session.moved_at),
        training_limit_s,
        session.attempt.folder / "stacks.txt",
        show_stacks,
    )


def _steps(session: Session, pool: Pool) -> None:
    config, reporter, board = session.config, session.reporter, pool.board
    rate = _Rate(deque([(time.monotonic(), session.tokens)], maxlen=10))
    fed, fenced_at = session.step, 0.0
    reporter.update(steps_total=config.steps, step=session.step, tokens=session.tokens)
    reporter.phase("training")
    for step in range(session.step + 1, config.steps + 1):
        session.stop.check()
        faults.in_loop(session.injected, step)
        while fed < min(step + config.layout.prefetch_steps, config.steps):
            fed += 1
            pool.feed(fed)
        sums = _collect(session, pool, step)
        lr = optimise.learning_rate(config.optim, step, config.steps)
        norm, bad = optimise.apply(session.masters, session.optimizer, sums, config.optim, lr)
        session.step, session.loss = step, sums.loss
        session.tokens += sums.tokens
        # told before the workers may go on: what kills them in the next step then finds this step on record
        _report(session, board, sums, norm, lr, rate.add(session.tokens))
        pool.publish(step)
        _guard(session, bad)
        if time.monotonic() - fenced_at > FENCE_CHECK_S:
            owner.check(session.attempt.checkpoints, session.me)
            fenced_at = time.monotonic()
        if step % config.checkpoint.every_steps == 0 or step == config.steps:
            save(session)
        if config.eval.every_steps and step % config.eval.every_steps == 0 and step < config.steps:
            evaluate(session, session.masters)


def _collect(session: Session, pool: Pool, step: int) -> optimise.StepSums:
    """Wait for every micro-batch of the step; nothing is written while nothing arrives."""
    sums = optimise.StepSums(session.layout.lead)
    early: dict[int, MicroGrads] = {}
    board, began, limit_s = pool.board, time.monotonic(), session.config.limits.barrier_s
    while sums.next_micro < session.layout.micros:
        try:
            got = pool.result(SLICE_S)
        except queue.Empty:
            session.stop.check()
            board.check()
            if limit_s and time.monotonic() - began > limit_s:
                raise exits.StalledError(
                    f"step {step} waits for results for {limit_s:.0f} s; {board.behind()}"
                ) from None
            continue
        assert got.step == step
        early[got.micro] = got.sums
        sums.add(early)
        session.moved_at = time.monotonic()
        session.reporter.tick(workers=board.workers())
    return sums


def _report(
    session: Session, board: Board, sums: optimise.StepSums, norm: float, lr: float, rate: float | None
) -> None:
    session.reporter.update(
        step=session.step,
        tokens=session.tokens,
        tokens_per_s=rate,
        loss=sums.loss,
        tau=session.tau,
        workers=board.workers(),
    )
    append_metrics(
        session,
        {
            "step": session.step,
            "loss": sums.loss,
            "accuracy": sums.accuracy,
            "tau": session.tau,
            "lr": lr,
            "grad_norm": norm,
            "tokens": session.tokens,
            "tokens_per_s": rate,
        },
    )
    if session.step % session.config.log_every_steps == 0 or session.step == session.config.steps:
        tau = "-" if session.tau is None else f"{session.tau:.3f}"
        speed = "-" if rate is None else f"{rate:.0f}"
        log.info(
            "train", f"step={session.step} loss={sums.loss:.4f} tok/s={speed} tau={tau} lr={lr:.2e} grad={norm:.3f}"
        )


def _guard(session: Session, bad: str | None) -> None:
    """Count steps that were not taken because a gradient was not finite."""
    if bad is None and math.isfinite(session.loss):
        session.bad_steps = 0
        return
    if bad is None:
        return  # a step without a single label: nothing was wrong and nothing was learnt
    session.bad_steps += 1
    limit = session.config.limits.nonfinite_steps
    log.warning("guard", f"step={session.step} nonfinite={bad} skipped={session.bad_steps}/{limit}")
    if session.bad_steps >= limit:
        raise exits.NonFiniteError(f"gradient of {bad} is not finite in {limit} steps in a row, last {session.step}")
