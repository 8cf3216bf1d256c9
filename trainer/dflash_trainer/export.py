"""The drafter as others read it: config.json and model.safetensors with the published names, in bf16.

Readers ignore unknown keys silently and add their own layer offset to the tap ids, so the key set is checked
here and the ids are 0-based layer outputs.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_trainer.config import Config
from dflash_trainer.drafter import Drafter
from dflash_trainer.layers import NORM_EPS, ROPE_THETA
from dflash_trainer.target import MASK_ID, VOCAB

_LAYER_NAMES = (
    "input_layernorm.weight",
    "self_attn.q_proj.weight",
    "self_attn.k_proj.weight",
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",
    "mlp.down_proj.weight",
)


def tensor_names(layers: int) -> set[str]:
    """The exact key set: 11 a layer and 3 more; no prefix, no embedding, no head."""
    inner = {f"layers.{i}.{name}" for i in range(layers) for name in _LAYER_NAMES}
    return inner | {"fc.weight", "hidden_norm.weight", "norm.weight"}


def draft_config(config: Config, taps: tuple[int, ...]) -> dict[str, object]:
    """config.json as vLLM, SGLang and Hugging Face read it; block_size in both places that are in use."""
    draft, target = config.draft, config.target
    sliding = draft.window > 0
    length = config.data.prompt_tokens + max(config.data.response_tokens, config.eval.tokens)
    return {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3",
        "block_size": draft.block,
        "dflash_config": {
            "block_size": draft.block,
            "mask_token_id": MASK_ID,
            "target_layer_ids": list(taps),
            "causal": draft.causal,
        },
        "is_causal": draft.causal,
        "num_target_layers": target.layers,
        "hidden_size": target.hidden,
        "intermediate_size": draft.mlp,
        "num_hidden_layers": draft.layers,
        "num_attention_heads": draft.heads,
        "num_key_value_heads": draft.kv_heads,
        "head_dim": draft.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": NORM_EPS,
        "rope_theta": ROPE_THETA,
        "rope_scaling": None,
        "max_position_embeddings": length + draft.block,
        "layer_types": ["sliding_attention" if sliding else "full_attention"] * draft.layers,
        "sliding_window": draft.window or None,
        "use_sliding_window": sliding,
        "max_window_layers": 0 if sliding else draft.layers,
        "vocab_size": VOCAB,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "bfloat16",
        "bos_token_id": None,
        "eos_token_id": None,
    }


def write(folder: Path, drafter: Drafter, config: Config, taps: tuple[int, ...]) -> None:
    """Write both files into an existing folder.

    Raises:
        AssertionError: the parameters are not the published key set.
    """
    tensors = {name: p.detach().to("cpu", torch.bfloat16).contiguous() for name, p in drafter.named_parameters()}
    assert set(tensors) == tensor_names(config.draft.layers), "export keys differ from the published ones"
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(draft_config(config, taps), indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")


def read(folder: Path, config: Config, taps: tuple[int, ...]) -> Drafter:
    """A drafter from an exported folder, float32, checked key by key.

    Raises:
        ValueError: keys or shapes are not this drafter's.
    """
    tensors: dict[str, Tensor] = load_file(folder / "model.safetensors")
    drafter = Drafter(config.draft, config.target.hidden, len(taps))
    if set(tensors) != tensor_names(config.draft.layers):
        raise ValueError(f"{folder}: not the key set of a {config.draft.layers}-layer drafter")
    drafter.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    return drafter
