"""How many parameters an architecture has, by component."""

from __future__ import annotations

from collections.abc import Mapping

from sim.models.architecture import Architecture, Attention, LayerRun, Mlp


def attention_params(attention: Attention, hidden: int) -> int:
    """Weights and biases of one attention layer: q, k, v and o projections, or the linear mixer's own."""
    if attention.kind == "linear":
        return attention.linear_params
    if attention.kind == "mla":
        return _latent_params(attention, hidden)
    query = attention.num_heads * attention.head_dim * (2 if attention.output_gate else 1)
    key = attention.num_kv_heads * attention.head_dim
    value = 0 if attention.shared_kv_projection else attention.num_kv_heads * attention.v_head_dim
    output = attention.num_heads * attention.v_head_dim
    weights = hidden * (query + key + value + output)
    bias = (query + key + value if attention.qkv_bias else 0) + (hidden if attention.o_bias else 0)
    return weights + bias + attention.qk_norm_params + attention.sink_params


def _latent_params(attention: Attention, hidden: int) -> int:
    """MLA: low-rank query, shared latent with a RoPE key, up-projections, output (arXiv 2405.04434, section 2.1)."""
    heads, latent, rope = attention.num_heads, attention.kv_lora_rank, attention.qk_rope_head_dim
    rank = attention.q_lora_rank
    query = hidden * heads * attention.head_dim if not rank else rank * (hidden + 1 + heads * attention.head_dim)
    down = hidden * (latent + rope) + latent
    up = latent * heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    output = heads * attention.v_head_dim * hidden
    return query + down + up + output + indexer_params(attention, hidden)


def indexer_params(attention: Attention, hidden: int) -> int:
    """DeepSeek-V3.2's sparse-attention indexer: queries from the low-rank query, one key, head weights."""
    if not attention.index_heads:
        return 0
    dim = attention.index_head_dim
    return attention.q_lora_rank * attention.index_heads * dim + hidden * (dim + attention.index_heads) + 2 * dim


def expert_params(mlp: Mlp, hidden: int) -> int:
    """One routed expert, or the dense block."""
    inner = mlp.intermediate_size
    matrices = 3 if mlp.gated else 2
    return matrices * hidden * inner + (((matrices - 1) * inner + hidden) if mlp.bias else 0)


def router_params(mlp: Mlp, hidden: int) -> int:
    """The gate over the experts, with its bias, and the gate of the shared experts."""
    if not mlp.num_experts:
        return 0
    return mlp.num_experts * (hidden + (1 if mlp.router_bias else 0)) + (hidden if mlp.shared_gate else 0)


def shared_params(mlp: Mlp, hidden: int) -> int:
    """All shared experts together."""
    return (3 if mlp.gated else 2) * hidden * mlp.shared_intermediate_size


def layer_components(run: LayerRun, hidden: int) -> dict[str, int]:
    """Parameters of one layer by component (see `sim.models.quantization.COMPONENTS`), norms left out."""
    parts = dict.fromkeys(("attention", "dense_mlp", "router", "shared_experts", "experts"), 0)
    if run.attention is not None:
        parts["attention"] = attention_params(run.attention, hidden)
    if run.mlp is not None:
        block = expert_params(run.mlp, hidden)
        if run.mlp.num_experts:
            parts["experts"] = block * run.mlp.num_experts
            parts["router"] = router_params(run.mlp, hidden)
            parts["shared_experts"] = shared_params(run.mlp, hidden)
        else:
            parts["dense_mlp"] = block
    return parts


def parameter_counts(arch: Architecture) -> Mapping[str, int]:
    """Parameters by component, multi-token-prediction heads left out (the engine does not load them for serving)."""
    counts = {
        "embedding": arch.vocab_size * arch.hidden_size,
        "lm_head": 0 if arch.tie_word_embeddings else arch.vocab_size * arch.hidden_size,
        "norm": arch.num_layers * arch.norm_params_per_layer + arch.final_norm_params,
        "vision": arch.extra_params,
        "attention": 0,
        "dense_mlp": 0,
        "router": 0,
        "shared_experts": 0,
        "experts": 0,
    }
    counts["lm_head"] += arch.vocab_size if arch.lm_head_bias else 0
    for run in arch.layers:
        for component, params in layer_components(run, arch.hidden_size).items():
            counts[component] += run.count * params
    return counts


def total_params(arch: Architecture) -> int:
    """All parameters that are served."""
    return sum(parameter_counts(arch).values())


def mtp_params(arch: Architecture) -> int:
    """Multi-token-prediction heads of the checkpoint: a layer like the last, a projection of two hidden states to one,
    and their own embedding and LM head (DeepSeek-V3, arXiv 2412.19437, section 2.2)."""
    last = arch.layers[arch.layer_order[-1]]
    layer = sum(layer_components(last, arch.hidden_size).values()) + arch.norm_params_per_layer
    heads = 2 * arch.vocab_size * arch.hidden_size
    return arch.mtp_layers * (layer + 2 * arch.hidden_size**2 + 3 * arch.hidden_size + heads)


def active_params(arch: Architecture) -> int:
    """Parameters that one token uses: of the routed experts only ``experts_per_token``."""
    idle = 0
    for run in arch.layers:
        if run.mlp is not None and run.mlp.num_experts:
            unused = run.mlp.num_experts - run.mlp.experts_per_token
            idle += run.count * unused * expert_params(run.mlp, arch.hidden_size)
    return total_params(arch) - idle
