"""The old behaviour, kept to be watched and measured: independent replicas without a barrier.

Each drafter thread trains its own copy with its own optimizer and meets nobody. When one dies its traceback is
printed, the others train on, and the process never ends. `--race-mitigation none | exec-lock | tls-flag`
choose what is done about torch.compile's races: nothing, a lock round each thread's first call, or the
thread-local flag alone. None of the three is enough; that is the point.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable

import torch

from dflash_trainer import faults, fx_guard, log, optimise, workers
from dflash_trainer.drafting import gradients
from dflash_trainer.features import LocalTarget
from dflash_trainer.pool import SLICE_S, Board
from dflash_trainer.session import Session, append_metrics, evaluate, save
from dflash_trainer.target import Target, frozen
from dflash_trainer.train import watch


def train_apart(session: Session) -> None:
    """Return when every replica has reached the last step; with a dead one, never.

    Raises:
        StoppedError: asked to stop.
    """
    config, layout, reporter = session.config, session.layout, session.reporter
    if layout.compiled and config.layout.race_mitigation == "tls-flag":
        log.info("guard", f"thread_local={fx_guard.install()}")
    devices = {f"drafter-{i}": device for i, device in enumerate(layout.drafters)}
    board = Board(devices, version=session.step, limit_s=0.0, fatal=False)
    watch(session, board)
    if session.tau_start is None:
        session.tau_start = evaluate(session, session.masters).pooled
    reporter.update(steps_total=config.steps, step=session.step, tokens=session.tokens)
    reporter.phase("training")
    lock = threading.Lock()
    for index in range(len(devices)):
        board.start(
            f"drafter-{index}", _replica(index, session, board, lock), torch_threads=config.layout.torch_threads
        )
    reached = session.step
    while not board.all_finished():
        board.wait_moved(SLICE_S)
        if session.stop.asked and session.step > 0:
            with lock:
                save(session)
        session.stop.check()
        states = board.workers()
        for step in range(reached + 1, max(worker.step for worker in states) + 1):
            faults.in_loop(session.injected, step)
            reached = step
        with lock:
            changes = {"step": reached, "tokens": session.tokens, "loss": session.loss, "workers": states}
        if (reporter.now.step, reporter.now.workers) != (reached, states):
            reporter.update(**changes)
    board.close(join_s=5.0)


def _replica(index: int, session: Session, board: Board, lock: threading.Lock) -> Callable[[], None]:
    """One thread's whole training; the first living replica also saves."""
    config, layout = session.config, session.layout
    name, device = f"drafter-{index}", torch.device(layout.drafters[index])

    def work() -> None:
        source = LocalTarget(_target_on(session, device), session.taps)
        masters = copy.deepcopy(session.masters).to(device)
        optimizer = optimise.make_optimizer(masters, config.optim)
        optimizer.load_state_dict(copy.deepcopy(session.optimizer.state_dict()))
        replica = workers.make_replica(masters, config, device, layout.dtype)
        run = torch.compile(replica, dynamic=False) if layout.compiled else None
        first = lock if layout.compiled and config.layout.race_mitigation == "exec-lock" else None
        micros = [m for m in range(layout.micros) if layout.drafter_of(m) == index]
        embedding, head = source.embedding_VH.to(layout.dtype), source.head_VH.to(layout.dtype)
        for step in range(session.step + 1 if index else board.version + 1, config.steps + 1):
            sums = optimise.StepSums(device, next_micro=0)
            for place, number in enumerate(micros):
                poison = faults.in_worker(session.injected, step, chosen=index == len(layout.drafters) - 1)
                micro = session.rows.micro(step, number).to(device)
                taps = source.taps(micro.tokens, micro.positions, micro.doc).to(layout.dtype)
                with first or contextlib.nullcontext():
                    got = gradients(replica, micro, taps, embedding, head, config.loss, flex=layout.flex, forward=run)
                first = None
                sums.add({place: workers.poisoned(got) if poison else got})
            lr = optimise.learning_rate(config.optim, step, config.steps)
            optimise.apply(masters, optimizer, sums, config.optim, lr)
            workers.pull(masters, replica)
            log.info("train", f"dev={index} step={step} loss={sums.loss:.4f}")
            board.moved(name, step)
            if board.living()[0] == name:
                with lock:
                    _lead(session, masters, optimizer, sums, step)

    return work


def _lead(
    session: Session, masters: torch.nn.Module, optimizer: torch.optim.Optimizer, sums: optimise.StepSums, step: int
) -> None:
    """Put the first living replica's state into the session, for metrics, checkpoint and export."""
    session.masters.load_state_dict(masters.state_dict())
    session.optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    session.step, session.loss = step, sums.loss
    session.tokens += sums.tokens
    append_metrics(session, {"step": step, "loss": sums.loss, "tau": session.tau, "tokens": session.tokens})
    if step % session.config.checkpoint.every_steps == 0 or step == session.config.steps:
        save(session)


def _target_on(session: Session, device: torch.device) -> Target:
    if session.target.lm_head.weight.device == device:
        return session.target
    other = Target(session.config.target)
    other.load_state_dict(session.target.state_dict())
    return frozen(other.to(device))
