"""Checkpoints that a crash at any instant leaves whole.

    checkpoints/step-00000050/  draft/{config.json, model.safetensors}  bf16, export-ready
                                masters.safetensors, optimizer.safetensors  float32
                                state.json                              step, tokens, tau, what it was trained with
                                COMPLETE                                sha256 of every file; written last
    checkpoints/latest          the name of the newest complete one

Written beside, fsynced, renamed. Independent of the number of workers: the drafter is stored once, and data
order and anchors are functions of (seed, step), so there is no queue and no generator to store.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_trainer import export, log, owner
from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter
from dflash_trainer.files import sync_file, sync_folder, write_text

MARKER = "COMPLETE"
State = dict[str, object]


@dataclass(frozen=True, slots=True)
class Loaded:
    path: Path
    masters: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: State


def save(
    folder: Path,
    step: int,
    drafter: Drafter,
    optimizer: torch.optim.Optimizer,
    state: State,
    *,
    config: Config,
    taps: tuple[int, ...],
    me: owner.Owner,
) -> Path:
    """Write the checkpoint of `step` and point `latest` at it; a whole one already there is kept.

    Raises:
        FencedError: the folder is no longer ours. OSError: the disk.
    """
    final = folder / f"step-{step:08d}"
    if final.exists() and problem(final) is None:
        return final
    beside = folder / f".writing-{final.name}-{os.getpid()}"
    shutil.rmtree(beside, ignore_errors=True)
    (beside / "draft").mkdir(parents=True)
    export.write(beside / "draft", drafter, config, taps)
    masters = {name: p.detach().cpu().contiguous() for name, p in drafter.named_parameters()}
    save_file(masters, beside / "masters.safetensors")
    save_file(_optimizer_tensors(drafter, optimizer), beside / "optimizer.safetensors")
    (beside / "state.json").write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    sums = {}
    for path in _files(beside):
        sync_file(path)
        sums[str(path.relative_to(beside))] = _sha256(path)
    sync_folder(beside / "draft")
    sync_folder(beside)
    write_text(beside / MARKER, json.dumps(sums, indent=1) + "\n")
    owner.check(folder, me)
    if final.exists():
        _set_aside(final)
    os.rename(beside, final)
    sync_folder(folder)
    write_text(folder / "latest", final.name + "\n")
    return final


def newest_whole(folder: Path) -> Loaded | None:
    """The checkpoint that `latest` names, or the newest one before it that is whole."""
    for path in _candidates(folder):
        why = problem(path)
        if why is None:
            return load(path)
        log.warning("checkpoint", f"skipped={path.name} reason={why}")
    return None


def load(path: Path) -> Loaded:
    """Read a checkpoint that `problem` finds none with."""
    state: State = json.loads((path / "state.json").read_text(encoding="utf-8"))
    return Loaded(path, load_file(path / "masters.safetensors"), load_file(path / "optimizer.safetensors"), state)


def problem(path: Path) -> str | None:
    """Why a checkpoint is not whole, None when it is."""
    try:
        sums: dict[str, str] = json.loads((path / MARKER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "no completeness marker"
    except ValueError:
        return "unreadable completeness marker"
    for name, want in sums.items():
        file = path / name
        if not file.is_file():
            return f"{name} is missing"
        if _sha256(file) != want:
            return f"{name} differs from its checksum"
    return None


def restore(loaded: Loaded, drafter: Drafter, optimizer: torch.optim.Optimizer) -> None:
    """Put masters and moments back, bit for bit."""
    drafter.load_state_dict(loaded.masters)
    for name, parameter in drafter.named_parameters():
        slots = {
            key.rpartition("|")[2]: tensor for key, tensor in loaded.optimizer.items() if key.rpartition("|")[0] == name
        }
        if slots:
            optimizer.state[parameter] = {
                key: tensor.to(parameter.device, torch.float32) for key, tensor in slots.items()
            }


def prune(folder: Path, keep: int, mine: Callable[[State], bool]) -> None:
    """Delete what this run wrote beyond the newest `keep` whole ones; never the last two."""
    whole = [path for path in _steps(folder) if (path / MARKER).exists()]
    for path in whole[max(keep, 2) :]:
        if mine(json.loads((path / "state.json").read_text(encoding="utf-8"))):
            (path / MARKER).unlink()  # from here on it is not a checkpoint, however far the deletion gets
            shutil.rmtree(path)
    for torn in folder.glob(f".writing-*-{os.getpid()}"):
        shutil.rmtree(torn, ignore_errors=True)


def _candidates(folder: Path) -> Iterator[Path]:
    try:
        first = folder / (folder / "latest").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        first = None
    if first is not None:
        yield first
    yield from (path for path in _steps(folder) if path != first)


def _steps(folder: Path) -> list[Path]:
    """Newest first."""
    found = (path for path in folder.glob("step-*") if path.is_dir() and path.name[5:].isdigit())
    return sorted(found, key=lambda path: int(path.name[5:]), reverse=True)


def _set_aside(path: Path) -> None:
    number = 1
    while (aside := path.with_name(f"broken-{path.name}.{number}")).exists():
        number += 1
    os.rename(path, aside)


def _optimizer_tensors(drafter: Drafter, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """`parameter|slot` -> float32; a parameter name never holds a bar."""
    return {
        f"{name}|{slot}": value.detach().cpu().contiguous().clone()
        for name, parameter in drafter.named_parameters()
        for slot, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
