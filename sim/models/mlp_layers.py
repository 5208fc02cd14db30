"""Feed-forward block of each layer, read from a configuration."""

from __future__ import annotations

from sim.models.architecture import Mlp
from sim.models.config_reader import ConfigReader
from sim.models.families import Family


def mlp_of_layers(config: ConfigReader, family: Family, num_layers: int) -> list[Mlp | None]:
    """The feed-forward block of each of ``num_layers`` layers, None where a layer has none."""
    experts = config.optional_integer("num_local_experts", "num_experts", "n_routed_experts", minimum=0) or 0
    moe = _moe(config, family, experts) if experts > 1 else None
    pattern = config.text("hybrid_override_pattern")
    if pattern:
        dense = _dense(config, family) if "-" in pattern else None
        return [dense if letter == "-" else moe if letter == "E" else None for letter in pattern]
    if moe is None:
        return [_dense(config, family)] * num_layers
    sparse = _sparse_layers(config, num_layers)
    if len(sparse) == num_layers:
        return [moe] * num_layers
    dense = _dense(config, family)
    return [moe if index in sparse else dense for index in range(num_layers)]


def _dense(config: ConfigReader, family: Family) -> Mlp:
    return Mlp(
        intermediate_size=config.integer("intermediate_size_mlp", "intermediate_size"),
        gated=family.gated,
        bias=_bias(config, family),
    )


def _bias(config: ConfigReader, family: Family) -> bool:
    return config.flag("mlp_bias") if family.mlp_bias is None else family.mlp_bias


def _moe(config: ConfigReader, family: Family, experts: int) -> Mlp:
    inner = config.integer("moe_intermediate_size", "intermediate_size")
    shared, gate = _shared(config, inner)
    return Mlp(
        intermediate_size=inner,
        gated=family.gated,
        bias=_bias(config, family),
        num_experts=experts,
        experts_per_token=config.integer("num_experts_per_tok", "top_k_experts", "moe_k"),
        shared_intermediate_size=shared,
        shared_gate=gate,
        router_bias=_router_bias(config),
        groups_per_token=config.optional_integer("topk_group", minimum=0) or 0,
    )


def _shared(config: ConfigReader, inner: int) -> tuple[int, bool]:
    """(width of all shared experts together, whether a gate weighs them)."""
    own = config.optional_integer("shared_expert_intermediate_size", minimum=0)
    if own is not None:
        return own, own > 0
    count = config.optional_integer("n_shared_experts", minimum=0) or 0
    if "moe_shared_expert_intermediate_size" in config:
        return count * config.integer("moe_shared_expert_intermediate_size"), False
    if config.text("model_type") == "llama4_text":
        return inner, False
    if config.flag("enable_moe_block"):  # Gemma 4: a dense block beside the experts of the same layer
        return config.integer("intermediate_size"), False
    return count * inner, False


def _router_bias(config: ConfigReader) -> bool:
    return (
        config.text("topk_method") == "noaux_tc"
        or config.flag("use_routing_bias")
        or config.text("model_type") in {"gpt_oss", "glm4_moe", "nemotron_h", "glm_moe_dsa"}
    )


def _sparse_layers(config: ConfigReader, num_layers: int) -> frozenset[int]:
    """Indices of the layers whose feed-forward block is a mixture of experts."""
    listed = config.indices("moe_layers")
    if listed:
        return listed
    every = config.integer("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1)
    # Families count the interval from 1 where they skip (Qwen, Llama 4); DeepSeek counts from 0, with an interval of 1.
    first = config.integer("first_k_dense_replace", default=0, minimum=0)
    dense = config.indices("mlp_only_layers")
    return frozenset(index for index in range(first, num_layers) if (index + 1) % every == 0 and index not in dense)
