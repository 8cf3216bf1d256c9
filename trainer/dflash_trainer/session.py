"""Everything one attempt trains with, made once: target, rows, masters, optimizer, and where to go on from."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from dflash_trainer import checkpoint, config_load, faults, log, owner, progress, target_train
from dflash_trainer.attempt import Attempt
from dflash_trainer.batch import Rows
from dflash_trainer.config import Config
from dflash_trainer.devices import Layout, describe, resolve
from dflash_trainer.drafter import Drafter
from dflash_trainer.exits import ConfigError
from dflash_trainer.optimise import make_optimizer
from dflash_trainer.signals import StopFlag
from dflash_trainer.speculate import Acceptance, measure, plain_greedy
from dflash_trainer.target import Target, default_taps, parameter_count
from dflash_trainer.target_train import Corpus

# a checkpoint of another shape or target cannot be continued; everything else may change between attempts
_FIXED = ("draft.", "target.", "data.")
_FREE = ("target.cache_dir",)


@dataclass(slots=True)
class Session:
    """One attempt's life. step, tokens, tau...: what the last finished step reached."""

    config: Config
    attempt: Attempt
    reporter: progress.Reporter
    stop: StopFlag
    injected: tuple[faults.Fault, ...]
    layout: Layout
    me: owner.Owner
    target: Target
    corpus: Corpus
    rows: Rows
    taps: tuple[int, ...]
    masters: Drafter
    optimizer: torch.optim.Optimizer
    plain: Tensor
    step: int = 0
    tokens: int = 0
    loss: float = math.nan
    tau: float | None = None
    tau_start: float | None = None
    bad_steps: int = 0
    saved_step: int = -1
    began_at: float = field(default_factory=time.monotonic)
    moved_at: float = field(default_factory=time.monotonic)

    def tick(self) -> None:
        """Called often inside long phases: report at most once a second, and leave when asked to."""
        self.moved_at = time.monotonic()
        self.reporter.tick()
        self.stop.check()


def open_session(
    config: Config,
    attempt: Attempt,
    reporter: progress.Reporter,
    stop: StopFlag,
    injected: tuple[faults.Fault, ...],
) -> Session:
    """Claim the folder, make or load target and rows, build the drafter, go back to the last checkpoint.

    Raises:
        ConfigError, DataError, FencedError, StoppedError: as named.
    """
    torch.set_num_threads(config.layout.torch_threads)
    layout = resolve(config)
    log.info("layout", describe(layout))
    me = owner.claim(attempt.checkpoints, attempt)
    cache = Path(config.target.cache_dir).expanduser() if config.target.cache_dir else attempt.output / "cache"

    def tick() -> None:
        reporter.tick()
        stop.check()

    began = time.monotonic()
    target, corpus = target_train.prepare(config, cache, torch.device(layout.targets[0]), tick)
    log.info("target", f"ready_s={time.monotonic() - began:.1f} rows={len(corpus.tokens)}")
    taps = config.draft.taps or default_taps(config.target.layers, config.draft.tap_count)
    masters = Drafter(config.draft, config.target.hidden, len(taps)).to(layout.lead)
    plain = plain_greedy(target, corpus.held_out, config.eval.tokens)
    session = Session(
        config=config,
        attempt=attempt,
        reporter=reporter,
        stop=stop,
        injected=injected,
        layout=layout,
        me=me,
        target=target,
        corpus=corpus,
        rows=Rows(corpus, config),
        taps=taps,
        masters=masters,
        optimizer=make_optimizer(masters, config.optim),
        plain=plain,
    )
    log.info("drafter", f"params={parameter_count(masters)} taps={','.join(map(str, taps))}")
    _resume(session)
    return session


def save(session: Session) -> None:
    """Write a checkpoint of the last finished step and report begin and end."""
    if session.saved_step == session.step:
        return
    reporter, phase, begun = session.reporter, session.reporter.now.phase, time.time()
    reporter.update(checkpoint=progress.Saved(session.step, begun, None))
    reporter.phase("saving")
    path = checkpoint.save(
        session.attempt.checkpoints,
        session.step,
        session.masters,
        session.optimizer,
        _state(session),
        config=session.config,
        taps=session.taps,
        me=session.me,
    )
    session.saved_step = session.step
    session.moved_at = time.monotonic()
    reporter.update(checkpoint=progress.Saved(session.step, begun, time.time()))
    run = session.attempt.run
    checkpoint.prune(session.attempt.checkpoints, session.config.checkpoint.keep, lambda s: s.get("run") == run)
    log.info("checkpoint", f"step={session.step} saved={path.name} took_s={time.time() - begun:.2f}")
    reporter.phase(phase)


def evaluate(session: Session, drafter: Drafter) -> Acceptance:
    """Real draft-and-verify decoding of the held-out prompts; output must be plain greedy's.

    Raises:
        AssertionError: speculation changed the output, which is a bug of ours.
    """
    config, reporter = session.config.eval, session.reporter
    phase = reporter.now.phase
    reporter.phase("evaluating")
    device = session.target.lm_head.weight.device
    got = measure(
        session.target,
        drafter.to(device),
        session.taps,
        session.corpus.held_out,
        config.tokens,
        plain_nC=session.plain,
        tie_margin=config.tie_margin,
        tick=session.tick,
    )
    drafter.to(session.layout.lead)
    session.tau = got.pooled
    log.info(
        "eval",
        f"step={session.step} tau={got.pooled:.3f} tau_per_prompt={got.per_prompt:.3f} "
        f"identical={got.identical}/{got.prompts} ties={got.ties}",
    )
    assert got.wrong == 0, f"{got.wrong} of {got.prompts} speculative outputs differ from plain greedy decoding"
    reporter.update(tau=got.pooled)
    reporter.phase(phase)
    return got


def append_metrics(session: Session, values: dict[str, object]) -> None:
    """One line of metrics.jsonl; a number that is not finite becomes null."""
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}
    line = json.dumps({"attempt": session.attempt.number, **clean})
    with (session.attempt.output / "metrics.jsonl").open("a", encoding="utf-8") as out:
        out.write(line + "\n")


def _state(session: Session) -> checkpoint.State:
    return {
        "schema": 1,
        "run": session.attempt.run,
        "attempt": session.attempt.number,
        "step": session.step,
        "tokens": session.tokens,
        "loss": session.loss if math.isfinite(session.loss) else None,
        "tau": session.tau,
        "tau_start": session.tau_start,
        "bad_steps": session.bad_steps,
        "wall_s": time.monotonic() - session.began_at,
        "corpus": session.corpus.digest,
        "target": target_train.checksum(session.target),
        "config": config_load.flat(session.config),
        "layout": describe(session.layout),
        "torch": torch.__version__,
    }


def _resume(session: Session) -> None:
    want = session.config.checkpoint.resume
    if want == "none":
        return
    if want == "auto":
        loaded = checkpoint.newest_whole(session.attempt.checkpoints)
    else:
        why = checkpoint.problem(Path(want))
        if why is not None:
            raise ConfigError(f"checkpoint.resume: {want}: {why}")
        loaded = checkpoint.load(Path(want))
    if loaded is None:
        return
    _require_same(session, loaded)
    checkpoint.restore(loaded, session.masters, session.optimizer)
    number = _reader(loaded.state)
    session.step = session.saved_step = int(number("step", 0))
    session.tokens = int(number("tokens", 0))
    session.bad_steps = int(number("bad_steps", 0))
    session.loss = number("loss", math.nan)
    session.tau = number("tau", 0.0) or None
    session.tau_start = number("tau_start", 0.0) or None
    log.info("checkpoint", f"resumed={loaded.path.name} step={session.step}")


def _reader(state: checkpoint.State) -> Callable[[str, float], float]:
    def number(key: str, default: float) -> float:
        value = state.get(key)
        return float(value) if isinstance(value, int | float) else default

    return number


def _require_same(session: Session, loaded: checkpoint.Loaded) -> None:
    then = loaded.state.get("config")
    assert isinstance(then, dict)
    now = config_load.flat(session.config)
    for key, value in now.items():
        if key.startswith(_FIXED) and key not in _FREE and key in then and then[key] != value:
            raise ConfigError(
                f"{key}={value}: the checkpoint {loaded.path} was trained with {then[key]}; "
                "set it back, or use a new run"
            )
    if loaded.state.get("target") != target_train.checksum(session.target):
        raise ConfigError(
            f"checkpoint {loaded.path}: it belongs to another target than the one here; restore the target's cache"
        )
