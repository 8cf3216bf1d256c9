"""The trainer's settings: typed, frozen, with the self-contained demo as defaults.

The defaults train a small byte-level target on text that Python itself ships and then its drafter,
on one CPU thread in well under two minutes. A real run overrides them in a TOML file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MITIGATIONS = ("full", "none", "exec-lock", "tls-flag")
WORKERS = ("threads", "processes")
SEED_MITIGATIONS = ("none", "exec-lock", "tls-flag")  # these keep the old behaviour: a worker dies, the rest live


@dataclass(frozen=True, slots=True)
class TargetConfig:
    """The small byte-level target and how it is trained when the cache has none."""

    layers: int = 4
    hidden: int = 96
    heads: int = 4
    mlp: int = 288
    steps: int = 150
    batch: int = 12
    window: int = 96
    lr: float = 4e-3
    seed: int = 1
    cache_dir: str = ""  # empty: <output>/cache


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Text, and the rows whose responses the target writes itself."""

    text: str = "pydoc"  # or the path of a UTF-8 file
    rows: int = 256
    prompt_tokens: int = 32
    response_tokens: int = 64
    docs_per_row: int = 1
    held_out_frac: float = 0.05


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """The drafter; hidden size, embedding and head are the target's."""

    layers: int = 2
    heads: int = 4
    kv_heads: int = 4
    head_dim: int = 24
    mlp: int = 288
    taps: tuple[int, ...] = (0, 1, 2)  # empty: `tap_count` layers by the default rule
    tap_count: int = 5
    block: int = 8
    anchors: int = 8  # per document
    causal: bool = False
    window: int = 0  # 0: full attention
    seed: int = 2


@dataclass(frozen=True, slots=True)
class LossConfig:
    gamma: float = 4.0
    chunk_rows: int = 2048


@dataclass(frozen=True, slots=True)
class OptimConfig:
    lr: float = 3e-3
    warmup_steps: int = 12
    min_lr_frac: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    batch_rows: int = 16  # rows a step over all workers
    micro_rows: int = 2  # rows a forward and backward; the unit of work and of reduction


@dataclass(frozen=True, slots=True)
class LayoutConfig:
    workers: str = "threads"  # or processes: nothing shared that could race, for a slower start
    layout: str = "split"
    devices: tuple[str, ...] = ()  # empty: every visible GPU, else the CPU
    target_workers: int = 1
    drafter_workers: int = 0  # 0: two on the CPU, else one on each GPU that no target has
    queue_depth: int = 4
    prefetch_steps: int = 1
    torch_threads: int = 1
    attention: str = "auto"  # auto, dense, flex
    compile: bool = True  # only on CUDA
    dtype: str = "auto"  # auto: bfloat16 on CUDA, else float32
    race_mitigation: str = "full"


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    every_steps: int = 50
    keep: int = 3
    resume: str = "auto"  # auto, none, or the path of a checkpoint folder


@dataclass(frozen=True, slots=True)
class EvalConfig:
    every_steps: int = 100  # 0: only at the start and at the end
    prompts: int = 6
    tokens: int = 48
    tie_margin: float = 1e-3  # logits closer than this are a tie, not a loss of exactness


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Seconds; 0 switches a limit off."""

    stall_s: float = 600.0
    barrier_s: float = 900.0
    loading_s: float = 600.0
    compiling_s: float = 1800.0
    warmup_s: float = 600.0
    evaluating_s: float = 600.0
    saving_s: float = 1800.0
    finishing_s: float = 600.0
    nonfinite_steps: int = 3


@dataclass(frozen=True, slots=True)
class Config:
    preset: str = "demo"
    steps: int = 200
    seed: int = 0
    log_every_steps: int = 1
    target: TargetConfig = field(default_factory=TargetConfig)
    data: DataConfig = field(default_factory=DataConfig)
    draft: DraftConfig = field(default_factory=DraftConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    layout: LayoutConfig = field(default_factory=LayoutConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)


# What a preset changes; a file or --set changes it again.
PRESETS: Mapping[str, Mapping[str, object]] = {
    "demo": {},
    "tiny": {
        "steps": 40,
        "target": {"hidden": 64, "layers": 4, "heads": 4, "mlp": 128, "steps": 40, "batch": 8, "window": 64},
        "data": {"rows": 96, "prompt_tokens": 24, "response_tokens": 40},
        "draft": {"layers": 1, "head_dim": 16, "mlp": 128, "anchors": 6},
        "optim": {"warmup_steps": 4, "batch_rows": 32, "micro_rows": 4},
        "checkpoint": {"every_steps": 10},
        "eval": {"every_steps": 0, "prompts": 2, "tokens": 24},
    },
}


def phase_limits_s(limits: LimitsConfig) -> dict[str, float]:
    """Seconds that a phase may take; `training` has none here, its limit is the learned step time."""
    named = {
        "loading": limits.loading_s,
        "compiling": limits.compiling_s,
        "warmup": limits.warmup_s,
        "evaluating": limits.evaluating_s,
        "saving": limits.saving_s,
        "finishing": limits.finishing_s,
    }
    return {phase: limit_s for phase, limit_s in named.items() if limit_s > 0}
