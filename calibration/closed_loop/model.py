"""Decoders small enough for a CPU, as Hugging Face configurations: one with grouped heads, one with MLA."""

from __future__ import annotations

from typing import Any, Final

from sim.models.architecture import Architecture
from sim.models.huggingface import architecture_from_config

_COMMON: Final[dict[str, Any]] = {
    "vocab_size": 8192,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}
_LLAMA: Final = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
_DEEPSEEK: Final = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "kv_lora_rank": 512,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "gqa": {
        **_COMMON,
        **_LLAMA,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
    },
    "mla": {
        **_COMMON,
        **_DEEPSEEK,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    },
    "gqa-small": {
        **_COMMON,
        **_LLAMA,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    },
    "mla-small": {
        **_COMMON,
        **_DEEPSEEK,
        "hidden_size": 512,
        "intermediate_size": 1408,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
    },
}


def architecture(name: str) -> Architecture:
    """The architecture of one of `CONFIGS`."""
    return architecture_from_config(CONFIGS[name], f"closed loop {name}")
