"""What a Config must satisfy beyond its types, each with the sentence that helps."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from operator import attrgetter

from dflash_trainer.config import MITIGATIONS, SEED_MITIGATIONS, WORKERS, Config
from dflash_trainer.exits import ConfigError

# Dotted keys of a Config whose values must be more than 0.
_ABOVE_ZERO = (
    "steps",
    "log_every_steps",
    "target.layers",
    "target.hidden",
    "target.heads",
    "target.mlp",
    "target.steps",
    "target.batch",
    "target.window",
    "data.rows",
    "data.prompt_tokens",
    "data.docs_per_row",
    "draft.layers",
    "draft.heads",
    "draft.kv_heads",
    "draft.head_dim",
    "draft.mlp",
    "draft.anchors",
    "loss.chunk_rows",
    "loss.gamma",
    "optim.lr",
    "optim.clip",
    "optim.batch_rows",
    "optim.micro_rows",
    "layout.target_workers",
    "layout.queue_depth",
    "layout.torch_threads",
    "checkpoint.every_steps",
    "eval.prompts",
    "eval.tokens",
    "limits.nonfinite_steps",
)
# Those for which 0 means off, or that we choose.
_NOT_NEGATIVE = (
    "layout.drafter_workers",
    "layout.prefetch_steps",
    "optim.warmup_steps",
    "eval.every_steps",
    "draft.window",
    "limits.stall_s",
    "limits.barrier_s",
)


def check(config: Config, sources: Mapping[str, str]) -> None:
    """Raise for the first broken rule.

    Args:
        sources: key -> file or option that set it, for the message.

    Raises:
        ConfigError: file, key and what to do.
    """
    for key, problem in _problems(config):
        raise ConfigError(f"{sources.get(key, 'defaults')}: {key}: {problem}")


def _problems(c: Config) -> Iterator[tuple[str, str]]:
    yield from _positive(c)
    yield from _layout(c)
    yield from _shapes(c)
    if c.optim.batch_rows % c.optim.micro_rows:
        yield (
            "optim.micro_rows",
            f"{c.optim.batch_rows} rows a step do not divide by {c.optim.micro_rows}",
        )
    rows = c.data.rows // c.data.docs_per_row
    if c.optim.batch_rows > rows:
        yield "optim.batch_rows", f"only {rows} rows exist; raise data.rows or lower this"
    if c.checkpoint.keep < 2:
        yield "checkpoint.keep", "at least 2: one may turn out broken"
    if not 0.0 < c.data.held_out_frac < 0.5:
        yield "data.held_out_frac", "want a fraction between 0 and 0.5"


def _positive(c: Config) -> Iterator[tuple[str, str]]:
    for key in _ABOVE_ZERO:
        value = attrgetter(key)(c)
        if value <= 0:
            yield key, f"want more than 0, got {value}"
    for key in _NOT_NEGATIVE:
        value = attrgetter(key)(c)
        if value < 0:
            yield key, f"want 0 or more, got {value}"


def _layout(c: Config) -> Iterator[tuple[str, str]]:
    if c.layout.workers not in WORKERS:
        yield "layout.workers", f"want one of {', '.join(WORKERS)}"
    if c.layout.workers == "processes" and c.layout.race_mitigation in SEED_MITIGATIONS:
        yield "layout.race_mitigation", f"{c.layout.race_mitigation!r} is about threads; want full, or workers threads"
    if c.layout.workers == "processes" and not hasattr(os, "memfd_create"):
        yield "layout.workers", "'processes' needs Linux; 'threads' works"
    if c.layout.layout != "split":
        yield "layout.layout", f"{c.layout.layout!r} is not available yet; 'split' works"
    if c.layout.race_mitigation not in MITIGATIONS:
        yield "layout.race_mitigation", f"want one of {', '.join(MITIGATIONS)}"
    if c.layout.attention not in ("auto", "dense", "flex"):
        yield "layout.attention", "want auto, dense or flex"
    if c.layout.dtype not in ("auto", "float32", "bfloat16"):
        yield "layout.dtype", "want auto, float32 or bfloat16"


def _shapes(c: Config) -> Iterator[tuple[str, str]]:
    if c.target.hidden % (2 * c.target.heads):
        yield "target.hidden", f"want a multiple of twice target.heads ({2 * c.target.heads})"
    if c.draft.head_dim % 2:
        yield "draft.head_dim", "want an even number: RoPE rotates pairs"
    if c.draft.heads % c.draft.kv_heads:
        yield "draft.kv_heads", f"draft.heads ({c.draft.heads}) must divide by it"
    if c.draft.block < 2:
        yield "draft.block", "want 2 or more: slot 0 is the anchor, the rest are drafts"
    if c.data.response_tokens < 2:
        yield "data.response_tokens", "want 2 or more: an anchor needs a token after it"
    bad = [tap for tap in c.draft.taps if not 0 <= tap < c.target.layers]
    if bad:
        yield "draft.taps", f"{bad[0]} is no layer of a {c.target.layers}-layer target"
    if sorted(set(c.draft.taps)) != list(c.draft.taps):
        yield "draft.taps", "want different layers in rising order"
    if c.target.layers - 1 in c.draft.taps:
        yield "draft.taps", f"layer {c.target.layers - 1} is the target's last: its features are not tapped"
    if not c.draft.taps and not 1 <= c.draft.tap_count <= max(1, c.target.layers - 3):
        yield "draft.tap_count", f"the default rule has no {c.draft.tap_count} layers in {c.target.layers}"
