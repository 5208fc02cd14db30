"""What a ``model_type`` fixes that its ``config.json`` need not say, as data.

Source: the configuration and modelling classes of Hugging Face transformers (defaults of keys a file may leave out,
bias and norm layout of each family).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

WindowRule = Literal["none", "all", "qwen", "alternate", "pattern", "llama4"]


@dataclass(frozen=True, slots=True)
class Family:
    """Facts of one ``model_type``. A bias of None follows the ``attention_bias`` or ``mlp_bias`` key.

    Attributes:
        windows: which layers have a sliding window where ``layer_types`` does not say.
        qk_norm_whole: query and key norms span all heads instead of being shared by them.
        qk_norm_weights: the query and key norms have weights.
        sinks: a learned attention sink a head.
        norms: block norms of a layer, each of ``hidden_size`` elements (twice that with ``norm_bias``).
        gated: gate and up projections (SwiGLU, GeGLU) against a single up projection.
        defaults: values of keys that the file may leave out.
    """

    qkv_bias: bool | None = None
    o_bias: bool | None = None
    qk_norm: bool = False
    qk_norm_whole: bool = False
    qk_norm_weights: bool = True
    sinks: bool = False
    windows: WindowRule = "none"
    norms: int = 2
    norm_bias: bool = False
    gated: bool = True
    mlp_bias: bool | None = None
    lm_head_bias: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)


_GEMMA3: Mapping[str, Any] = {
    "tie_word_embeddings": True,
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131_072,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}
_DEEPSEEK = Family(qkv_bias=False, o_bias=False, mlp_bias=False)
_QWEN_NEXT: Mapping[str, Any] = {
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "mistral": Family(qkv_bias=False, o_bias=False, windows="all"),
    "mistral3_text": Family(qkv_bias=False, o_bias=False, windows="all"),
    "mixtral": Family(qkv_bias=False, o_bias=False, windows="all"),
    "qwen2": Family(qkv_bias=True, o_bias=False, windows="qwen"),
    "qwen2_moe": Family(qkv_bias=True, o_bias=False, windows="qwen"),
    "qwen3": Family(qk_norm=True, windows="qwen"),
    "qwen3_moe": Family(qk_norm=True, windows="qwen"),
    "qwen3_vl_text": Family(qk_norm=True),
    "qwen3_vl_moe_text": Family(qk_norm=True),
    "qwen3_next": Family(qk_norm=True, defaults=_QWEN_NEXT),
    "qwen3_5_text": Family(qk_norm=True, defaults=_QWEN_NEXT),
    "qwen3_5_moe_text": Family(qk_norm=True, defaults=_QWEN_NEXT),
    "gemma": Family(defaults={"tie_word_embeddings": True, "head_dim": 256}),
    "gemma2": Family(
        windows="alternate", norms=4, defaults={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096}
    ),
    "gemma3_text": Family(qk_norm=True, windows="pattern", norms=4, defaults=_GEMMA3),
    "gemma4_text": Family(qk_norm=True, norms=4, defaults={"tie_word_embeddings": True}),
    "phi": Family(
        qkv_bias=True,
        o_bias=True,
        norms=1,
        norm_bias=True,
        gated=False,
        mlp_bias=True,
        lm_head_bias=True,
        defaults={"intermediate_size": 8192, "vocab_size": 51_200, "max_position_embeddings": 2048},
    ),
    "phi3": Family(qkv_bias=False, o_bias=False, windows="all"),
    "phimoe": Family(norm_bias=True, lm_head_bias=True, windows="all"),
    "starcoder2": Family(
        qkv_bias=True,
        o_bias=True,
        norm_bias=True,
        gated=False,
        mlp_bias=True,
        windows="all",
        defaults={"tie_word_embeddings": True},
    ),
    "cohere": Family(norms=1, defaults={"tie_word_embeddings": True}),
    "cohere2": Family(norms=1, windows="pattern", defaults={"tie_word_embeddings": True, "sliding_window_pattern": 4}),
    "olmo2": Family(qk_norm=True, qk_norm_whole=True),
    "granite": Family(),
    "internlm2": Family(qkv_bias=False, o_bias=False),
    "baichuan": Family(qkv_bias=False, o_bias=False),
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK,
    "deepseek_v32": _DEEPSEEK,
    "kimi_k2": _DEEPSEEK,
    "glm_moe_dsa": _DEEPSEEK,
    "glm4_moe_lite": _DEEPSEEK,
    "glm4": Family(o_bias=False, norms=4),
    "glm4_moe": Family(o_bias=False),
    "gpt_oss": Family(
        qkv_bias=True,
        o_bias=True,
        mlp_bias=True,
        sinks=True,
        windows="alternate",
        defaults={"attention_bias": True, "sliding_window": 128, "head_dim": 64},
    ),
    "llama4_text": Family(
        windows="llama4",
        qk_norm_weights=False,
        defaults={"attention_chunk_size": 8192, "interleave_moe_layer_step": 1, "head_dim": 128},
    ),
    "nemotron_h": Family(norms=1, gated=False),
    "minimax_m2": Family(qkv_bias=False, o_bias=False, qk_norm=True, qk_norm_whole=True),
    "smollm3": Family(defaults={"tie_word_embeddings": True}),
}
