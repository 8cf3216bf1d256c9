"""The training loop, from top to bottom: feed, collect, step, publish, report, save, evaluate."""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections import deque
from dataclasses import dataclass

import torch

from dflash_trainer import exits, faults, fx_guard, log, optimise, owner, watchdog, workers
from dflash_trainer.drafter import Drafter
from dflash_trainer.drafting import Forward, MicroGrads, gradients
from dflash_trainer.features import LocalTarget
from dflash_trainer.pool import SLICE_S, Board
from dflash_trainer.session import Session, append_metrics, evaluate, save
from dflash_trainer.target import Target, frozen

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
    layout = session.layout
    if layout.compiled:
        log.info("guard", f"thread_local={fx_guard.install()}")
    board = Board(_devices(session), version=session.step, limit_s=session.config.limits.barrier_s)
    ways = workers.channels(layout, session.config.layout.queue_depth)
    watch(session, board)
    try:
        if session.tau_start is None:
            session.tau_start = evaluate(session, session.masters).pooled
        start_workers(session, board, ways)
        _steps(session, board, ways)
        board.close(join_s=5.0)
    except exits.StoppedError:
        if session.step > 0:
            save(session)
        raise
    finally:
        board.close(join_s=0.0)
        with contextlib.suppress(OSError):  # a full disk must not hide why the run ends
            session.reporter.update(workers=board.workers())


def watch(session: Session, board: Board) -> None:
    """Start the stall watchdog with the limit of whatever phase the loop is in."""
    limits = session.config.limits

    def limit_s() -> float:
        if limits.stall_s == 0:
            return 0.0
        return max(limits.stall_s, session.reporter.limits_s.get(session.reporter.now.phase, 0.0))

    def training_limit_s() -> float:
        return limits.stall_s if session.reporter.now.phase == "training" else limit_s()

    watchdog.start(
        lambda: max(board.moved_at, session.moved_at), training_limit_s, session.attempt.folder / "stacks.txt"
    )


def start_workers(session: Session, board: Board, ways: workers.Channels) -> None:
    """Start all workers and wait until each is warm."""
    layout, config = session.layout, session.config
    warm = workers.Warm(_compile_once(session) if layout.compiled else None, len(layout.drafters))
    targets = _target_on_each_device(session)
    threads = config.layout.torch_threads
    for index, device in enumerate(layout.targets):
        source = LocalTarget(targets[device], session.taps)
        work = workers.target_worker(index, source, session.rows, layout, ways, board)
        board.start(f"target-{index}", work, torch_threads=threads)
    # one after the other, in this thread: on two GPUs, replicas made in their threads at once met an illegal access
    replicas = [workers.make_replica(session.masters, config, torch.device(d), layout.dtype) for d in layout.drafters]
    if layout.lead.type == "cuda":
        for device in set(layout.drafters):
            torch.cuda.synchronize(device)
    for index, (device, replica) in enumerate(zip(layout.drafters, replicas, strict=True)):
        source = LocalTarget(targets[device], session.taps)
        work = workers.drafter_worker(
            index, session.masters, replica, source, config, layout, ways, board, session.injected, warm
        )
        board.start(f"drafter-{index}", work, torch_threads=threads)
    if layout.compiled:
        session.reporter.phase("compiling")
        while not warm.done.wait(SLICE_S):
            board.check()
            session.reporter.tick()
            session.stop.check()
        torch.compiler.set_stance("fail_on_recompile")  # a later recompile is an error, not a slow-down


def _steps(session: Session, board: Board, ways: workers.Channels) -> None:
    config, reporter = session.config, session.reporter
    rate = _Rate(deque([(time.monotonic(), session.tokens)], maxlen=10))
    fed, fenced_at = session.step, 0.0
    reporter.update(steps_total=config.steps, step=session.step, tokens=session.tokens)
    reporter.phase("training")
    for step in range(session.step + 1, config.steps + 1):
        session.stop.check()
        faults.in_loop(session.injected, step)
        while fed < min(step + config.layout.prefetch_steps, config.steps):
            fed += 1
            _feed(session, ways, fed)
        sums = _collect(session, board, ways, step)
        lr = optimise.learning_rate(config.optim, step, config.steps)
        norm, bad = optimise.apply(session.masters, session.optimizer, sums, config.optim, lr)
        session.step, session.loss = step, sums.loss
        session.tokens += sums.tokens
        # told before the workers may go on: what kills them in the next step then finds this step on record
        _report(session, board, sums, norm, lr, rate.add(session.tokens))
        board.publish(step)
        _guard(session, bad)
        if time.monotonic() - fenced_at > FENCE_CHECK_S:
            owner.check(session.attempt.checkpoints, session.me)
            fenced_at = time.monotonic()
        if step % config.checkpoint.every_steps == 0 or step == config.steps:
            save(session)
        if config.eval.every_steps and step % config.eval.every_steps == 0 and step < config.steps:
            evaluate(session, session.masters)


def _feed(session: Session, ways: workers.Channels, step: int) -> None:
    for micro in range(session.layout.micros):
        ways.tasks[session.layout.target_of(micro)].put((step, micro))


def _collect(session: Session, board: Board, ways: workers.Channels, step: int) -> optimise.StepSums:
    """Wait for every micro-batch of the step; nothing is written while nothing arrives."""
    sums = optimise.StepSums(session.layout.lead)
    early: dict[int, MicroGrads] = {}
    began, limit_s = time.monotonic(), session.config.limits.barrier_s
    while sums.next_micro < session.layout.micros:
        try:
            got = ways.results.get(timeout=SLICE_S)
        except queue.Empty:
            board.check()
            session.stop.check()
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


def _devices(session: Session) -> dict[str, str]:
    named = {f"target-{i}": device for i, device in enumerate(session.layout.targets)}
    return named | {f"drafter-{i}": device for i, device in enumerate(session.layout.drafters)}


def _target_on_each_device(session: Session) -> dict[str, Target]:
    """The same module where it already is, copies elsewhere (embedding and head are needed on every device)."""
    home = str(session.target.lm_head.weight.device)
    found = {home: session.target}
    for device in (*session.layout.targets, *session.layout.drafters):
        if device not in found:
            copy = Target(session.config.target)
            copy.load_state_dict(session.target.state_dict())
            found[device] = frozen(copy.to(device))
    return found


def _compile_once(session: Session) -> workers.Prepare:
    """Forward and backward of the run's one shape, on made-up features."""

    def prepare(replica: Drafter, run: Forward) -> None:
        parameter = replica.fc.weight
        micro = session.rows.micro(1, 0).to(parameter.device)
        shape = (*micro.tokens.shape, replica.fc.in_features)
        taps = torch.ones(shape, device=parameter.device, dtype=parameter.dtype)
        head = session.target.lm_head.weight.to(parameter.device, parameter.dtype)
        gradients(replica, micro, taps, head, head, session.config.loss, flex=session.layout.flex, forward=run)

    return prepare
