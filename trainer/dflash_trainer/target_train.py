"""Train the small target once and let it write the drafter's training rows; both are kept in a cache.

The cache key covers everything that shapes the result, so a restart finds it and a changed setting does not.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_trainer import anchors, log
from dflash_trainer.config import Config, DataConfig, TargetConfig
from dflash_trainer.files import sync_file, sync_folder
from dflash_trainer.target import VOCAB, Target, frozen, generate, parameter_count
from dflash_trainer.text import load_bytes

RECIPE = 1  # raise when the training code changes what it produces
Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Corpus:
    """tokens int64 [docs, P+R] with the target's greedy responses behind each prompt; held-out prompts [n, P]."""

    tokens: Tensor
    held_out: Tensor
    prompt_tokens: int
    digest: str


def prepare(config: Config, cache: Path, device: torch.device, tick: Tick) -> tuple[Target, Corpus]:
    """The trained target and its corpus, from the cache or made now.

    Args:
        tick: called often, so that the loop can report and be stopped.

    Raises:
        DataError: the text is missing or too short.
    """
    train, held_out = load_bytes(config.data, least=config.target.window + config.data.prompt_tokens + 1)
    key = _key(config, train, held_out)
    folder = cache / f"target-{key}"
    target = Target(config.target)
    if (folder / "complete").exists():
        target.load_state_dict(load_file(folder / "target.safetensors"))
        rows = load_file(folder / "corpus.safetensors")
        log.info("target", f"cache=hit key={key} params={parameter_count(target)}")
    else:
        log.info("target", f"cache=miss key={key} params={parameter_count(target)} steps={config.target.steps}")
        target = target.to(device)
        train_target(target, train, config.target, tick)
        rows = regenerate(frozen(target), train, held_out, config, tick)
        target = target.cpu()
        _store(folder, target, rows)
    corpus = Corpus(rows["tokens"], rows["held_out"], config.data.prompt_tokens, key)
    return frozen(target).to(device), corpus


def train_target(target: Target, text: Tensor, config: TargetConfig, tick: Tick) -> float:
    """Next-byte prediction on random windows; returns the mean loss of the last ten steps."""
    device = target.lm_head.weight.device
    optimizer = torch.optim.AdamW(target.parameters(), lr=config.lr, betas=(0.9, 0.95), fused=True)
    generator = torch.Generator().manual_seed(config.seed)
    losses: list[float] = []
    target.train()
    for step in range(config.steps):
        warm = min(1.0, (step + 1) / 10)
        for group in optimizer.param_groups:
            group["lr"] = config.lr * warm * (0.55 + 0.45 * math.cos(math.pi * step / config.steps))
        starts = torch.randint(len(text) - config.window - 1, (config.batch,), generator=generator)
        rows = torch.stack([text[s : s + config.window + 1] for s in starts.tolist()]).to(device)
        loss = F.cross_entropy(target(rows[:, :-1]).logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(target.parameters(), 1.0)
        optimizer.step()
        losses = [*losses[-9:], loss.item()]
        if step % 25 == 0 or step == config.steps - 1:
            log.info("target", f"pretrain={step + 1}/{config.steps} loss={sum(losses) / len(losses):.4f}")
        tick()
    return sum(losses) / len(losses)


def regenerate(target: Target, train: Tensor, held_out: Tensor, config: Config, tick: Tick) -> dict[str, Tensor]:
    """Prompts from the text, responses by the target itself: then its own choices are the labels."""
    data, device = config.data, target.lm_head.weight.device
    prompts = _windows(train, data.rows, data, seed=config.seed, epoch=0)
    rows = []
    for part in prompts.split(32):
        answer = generate(target, part.to(device), data.response_tokens).cpu()
        rows.append(torch.cat((part, answer), dim=1))
        tick()
    held = _windows(held_out, config.eval.prompts, data, seed=config.seed, epoch=1)
    return {"tokens": torch.cat(rows), "held_out": held}


def checksum(target: Target) -> str:
    """Of embedding and head: a drafter fits the target it was trained against and no other."""
    digest = hashlib.sha256()
    for tensor in (target.embed_tokens.weight, target.lm_head.weight):
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def _windows(text: Tensor, count: int, data: DataConfig, *, seed: int, epoch: int) -> Tensor:
    draws = anchors.raw(seed, anchors.PROMPTS, epoch, 0, count)
    starts = (draws % (len(text) - data.prompt_tokens)).tolist()
    return torch.stack([text[s : s + data.prompt_tokens] for s in starts])


def _key(config: Config, *texts: Tensor) -> str:
    digest = hashlib.sha256()
    target = dataclasses.asdict(config.target)
    del target["cache_dir"]
    parts = [RECIPE, VOCAB, torch.__version__.split("+")[0], config.seed, config.eval.prompts, target]
    data = dataclasses.asdict(config.data)
    del data["docs_per_row"]
    digest.update(json.dumps([*parts, data], sort_keys=True).encode())
    for text in texts:
        digest.update(text.numpy().tobytes())
    return digest.hexdigest()[:16]


def _store(folder: Path, target: Target, rows: dict[str, Tensor]) -> None:
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    save_file({name: t.contiguous() for name, t in target.state_dict().items()}, beside / "target.safetensors")
    save_file({name: t.contiguous() for name, t in rows.items()}, beside / "corpus.safetensors")
    for path in _files(beside):
        sync_file(path)
    (beside / "complete").touch()
    sync_folder(beside)
    try:
        os.rename(beside, folder)
    except OSError:
        # another run made the same one first (same key, same content) or a torn one lies there
        if (folder / "complete").exists():
            shutil.rmtree(beside)
        else:
            shutil.rmtree(folder)
            os.rename(beside, folder)
    sync_folder(folder.parent)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.iterdir()) if path.is_file())
