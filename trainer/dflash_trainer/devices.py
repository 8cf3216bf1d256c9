"""Which worker runs on which device, in which precision: decided once, printed by --plan."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dflash_trainer.config import Config
from dflash_trainer.exits import ConfigError

CPU_DRAFTERS = 2


@dataclass(frozen=True, slots=True)
class Layout:
    """workers: threads or processes; targets, drafters: one device each; micros: micro-batches a step;
    flex, compiled: only on CUDA."""

    workers: str
    targets: tuple[str, ...]
    drafters: tuple[str, ...]
    micros: int
    dtype: torch.dtype
    flex: bool
    compiled: bool

    @property
    def devices(self) -> dict[str, str]:
        """Worker -> device."""
        named = {f"target-{i}": device for i, device in enumerate(self.targets)}
        return named | {f"drafter-{i}": device for i, device in enumerate(self.drafters)}

    @property
    def lead(self) -> torch.device:
        """Holds the float32 masters and the optimizer."""
        return torch.device(self.drafters[0])

    def drafter_of(self, micro: int) -> int:
        """By index, never by who is free: the same rows meet the same worker in every attempt."""
        return micro % len(self.drafters)

    def target_of(self, micro: int) -> int:
        return micro % len(self.targets)


def resolve(config: Config) -> Layout:
    """Turn counts and "all visible GPUs" into devices.

    Raises:
        ConfigError: a device that is not there, or more drafters than micro-batches.
    """
    chosen = config.layout
    devices = chosen.devices or _visible()
    for device in devices:
        _require(device)
    micros = config.optim.batch_rows // config.optim.micro_rows
    cuda = devices[0].startswith("cuda")
    targets = tuple(devices[i % len(devices)] for i in range(chosen.target_workers))
    rest = devices[chosen.target_workers :] or devices
    count = chosen.drafter_workers or (min(len(rest), micros) if cuda else CPU_DRAFTERS)
    if count > micros:
        raise ConfigError(
            f"layout.drafter_workers: {count} workers share {micros} micro-batches a step; "
            f"lower it, or raise optim.batch_rows (now {config.optim.batch_rows})"
        )
    drafters = tuple(rest[i % len(rest)] for i in range(count))
    dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}.get(
        chosen.dtype, torch.bfloat16 if cuda else torch.float32
    )
    flex = chosen.attention == "flex" or (chosen.attention == "auto" and cuda)
    if flex and not cuda:
        raise ConfigError("layout.attention: flex has no backward on the CPU; want auto or dense")
    return Layout(chosen.workers, targets, drafters, micros, dtype, flex, compiled=cuda and chosen.compile)


def describe(layout: Layout) -> str:
    return (
        f"targets={','.join(layout.targets)} drafters={','.join(layout.drafters)} micros={layout.micros} "
        f"dtype={str(layout.dtype).removeprefix('torch.')} attention={'flex' if layout.flex else 'dense'} "
        f"compile={'yes' if layout.compiled else 'no'} workers={layout.workers}"
    )


def _visible() -> tuple[str, ...]:
    if torch.cuda.is_available():
        return tuple(f"cuda:{i}" for i in range(torch.cuda.device_count()))
    return ("cpu",)


def _require(name: str) -> None:
    kind, _, index = name.partition(":")
    if kind == "cpu" and not index:
        return
    if kind != "cuda" or not index.isdigit():
        raise ConfigError(f'layout.devices: {name!r} is no device; want "cpu" or "cuda:0"')
    if not torch.cuda.is_available() or int(index) >= torch.cuda.device_count():
        raise ConfigError(f"layout.devices: {name} is not visible here; see CUDA_VISIBLE_DEVICES")
