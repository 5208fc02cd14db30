"""Attention of each layer, read from a configuration."""

from __future__ import annotations

from sim.errors import InputError
from sim.models.architecture import Attention, AttentionKind
from sim.models.config_reader import ConfigReader
from sim.models.families import Family
from sim.models.linear_layers import gated_delta_net, mamba2

_LAYER_KINDS: dict[str, AttentionKind] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
}


def attention_of_layers(config: ConfigReader, family: Family, num_layers: int) -> list[Attention | None]:
    """The attention of each of ``num_layers`` layers, None where a layer has none.

    Raises:
        InputError: heads that do not divide, an unknown layer type, a missing key.
    """
    pattern = config.text("hybrid_override_pattern")
    if pattern:
        return _from_pattern(config, family, pattern, num_layers)
    if "kv_lora_rank" in config:
        return [_latent(config, family)] * num_layers
    kinds = _kinds(config, family, num_layers)
    built = {kind: _of_kind(config, family, kind) for kind in dict.fromkeys(kinds)}
    return [built[kind] for kind in kinds]


def _from_pattern(config: ConfigReader, family: Family, pattern: str, num_layers: int) -> list[Attention | None]:
    """Nemotron-H: one letter a layer, M = Mamba-2, * = attention, - = MLP, E = mixture of experts."""
    if len(pattern) != num_layers or set(pattern) - set("M*-E"):
        raise InputError(
            f"{config.where}.hybrid_override_pattern",
            f"must hold {num_layers} letters out of M, *, - and E, got {pattern!r}",
        )
    made = {"M": mamba2(config), "*": _standard(config, family, "full", None), "-": None, "E": None}
    return [made[letter] for letter in pattern]


def _kinds(config: ConfigReader, family: Family, num_layers: int) -> list[AttentionKind]:
    """full, sliding, chunked or linear for each layer."""
    listed = config.items("layer_types")
    if listed:
        unknown = [kind for kind in listed if not isinstance(kind, str) or kind not in _LAYER_KINDS]
        if unknown or len(listed) != num_layers:
            raise InputError(
                f"{config.where}.layer_types",
                f"unknown layer type {unknown[0]!r}" if unknown else f"{len(listed)} types for {num_layers} layers",
                f"known: {', '.join(_LAYER_KINDS)}",
            )
        return [_LAYER_KINDS[kind] for kind in listed]
    if "full_attention_interval" in config:
        every = config.integer("full_attention_interval")
        return ["full" if (index + 1) % every == 0 else "linear" for index in range(num_layers)]
    return [_windowed(config, family, index) for index in range(num_layers)]


def _windowed(config: ConfigReader, family: Family, index: int) -> AttentionKind:
    """full, sliding or chunked by the family's own rule."""
    if family.windows == "llama4":
        rope = config.items("no_rope_layers")
        local = bool(rope[index]) if rope else (index + 1) % 4 != 0
        return "chunked" if local and "attention_chunk_size" in config else "full"
    if "sliding_window" not in config:
        return "full"
    if family.windows == "qwen":
        first = config.integer("max_window_layers", default=0, minimum=0)
        return "sliding" if config.flag("use_sliding_window") and index >= first else "full"
    if family.windows == "alternate":
        return "sliding" if index % 2 == 0 else "full"
    if family.windows == "pattern":
        return "sliding" if (index + 1) % config.integer("sliding_window_pattern") else "full"
    return "sliding" if family.windows == "all" else "full"


def _of_kind(config: ConfigReader, family: Family, kind: AttentionKind) -> Attention:
    if kind == "linear":
        return gated_delta_net(config)
    if kind == "chunked":
        return _standard(config, family, kind, config.integer("attention_chunk_size"))
    return _standard(config, family, kind, config.integer("sliding_window") if kind == "sliding" else None)


def head_dim(config: ConfigReader) -> int:
    """Elements of one head: the key where it is given, hidden over heads otherwise."""
    given = config.optional_integer("head_dim", "attention_head_dim")
    if given is not None:
        return given
    hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads")
    if hidden % heads:
        raise InputError(f"{config.where}.num_attention_heads", f"{heads} heads do not divide hidden_size {hidden}")
    return hidden // heads


def _standard(config: ConfigReader, family: Family, kind: AttentionKind, window: int | None) -> Attention:
    """MHA, GQA or MQA."""
    heads = config.integer("num_attention_heads")
    kv_heads, elements, shared = config.integer("num_key_value_heads", default=heads), head_dim(config), False
    if kind == "full" and "global_head_dim" in config:
        elements, shared = config.integer("global_head_dim"), config.flag("attention_k_eq_v")
        kv_heads = config.integer("num_global_key_value_heads", default=kv_heads) if shared else kv_heads
    if heads % kv_heads:
        raise InputError(
            f"{config.where}.num_key_value_heads", f"{kv_heads} KV heads do not divide {heads} attention heads"
        )
    bias = config.flag("attention_bias") or config.flag("use_bias") or config.flag("bias")
    norm = family.qk_norm or config.flag("use_qk_norm")
    whole = norm and family.qk_norm_whole
    return Attention(
        kind=kind,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=elements,
        v_head_dim=elements,
        window=window,
        qkv_bias=bias if family.qkv_bias is None else family.qkv_bias,
        o_bias=bias if family.o_bias is None else family.o_bias,
        qk_norm=norm,
        qk_norm_params=(heads + kv_heads if whole else 2) * elements if norm and family.qk_norm_weights else 0,
        sink_params=heads if family.sinks else 0,
        shared_kv_projection=shared,
        output_gate="full_attention_interval" in config and config.flag("attn_output_gate", default=True),
    )


def _latent(config: ConfigReader, family: Family) -> Attention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent and one RoPE key a token, no heads."""
    nope, rope = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
    heads = config.integer("num_attention_heads")
    return Attention(
        kind="mla",
        num_heads=heads,
        num_kv_heads=1,
        head_dim=nope + rope,
        v_head_dim=config.integer("v_head_dim"),
        qkv_bias=bool(family.qkv_bias),
        kv_lora_rank=config.integer("kv_lora_rank"),
        q_lora_rank=config.optional_integer("q_lora_rank") or 0,
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        index_heads=config.optional_integer("index_n_heads") or 0,
        index_head_dim=config.optional_integer("index_head_dim") or 0,
        index_topk=config.optional_integer("index_topk") or 0,
    )
