"""Weights of one rank: how tensors split, replicate and pad over TP, PP, DP and EP ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture, Attention, LayerRun, Mlp
from sim.models.engine_memory import EngineMemory
from sim.models.layout_rules import check_experts, check_nodes
from sim.models.parameters import indexer_params, layer_components
from sim.models.quantization import WeightFormat

_VOCAB_PADDING = 64  # rows of embedding and LM head are padded to a multiple of this before they are split


def check_layout(arch: Architecture, layout: Layout) -> None:
    """Refuse a layout that cannot hold the model's shapes.

    Raises:
        InputError: TP that does not divide heads or widths, more stages than layers, EP over more ranks than experts.
    """
    tp, pp = layout.tensor_parallel_size, layout.pipeline_parallel_size
    for run in arch.layers:
        if run.attention is not None:
            _check_heads(arch, run.attention, tp)
        if run.mlp is not None and not run.mlp.num_experts and run.mlp.intermediate_size % tp:
            raise _uneven(arch, f"intermediate size {run.mlp.intermediate_size}", tp)
        if run.mlp is not None and run.mlp.num_experts:
            _check_experts(arch, run.mlp, layout)
    if pp > arch.num_layers:
        raise InputError(
            "layout.pipeline_parallel_size",
            f"{pp} stages are more than the {arch.num_layers} layers of {arch.name}",
            f"use at most {arch.num_layers}",
        )
    _check_partition(arch, layout)
    check_nodes(layout)
    check_experts(arch, layout)


def _check_partition(arch: Architecture, layout: Layout) -> None:
    given, pp = layout.pp_layer_partition, layout.pipeline_parallel_size
    if given is None:
        return
    if len(given) != pp or min(given) < 1 or sum(given) != arch.num_layers:
        even = [sum(run.count for run in stage.runs) for stage in stages(arch, _evenly(layout))]
        raise InputError(
            "layout.pp_layer_partition",
            f"{given} does not deal the {arch.num_layers} layers of {arch.name} to {pp} stages",
            f"give {pp} numbers of at least 1 that add up to {arch.num_layers}, for example {even}",
        )


def _evenly(layout: Layout) -> Layout:
    return layout.model_copy(update={"pp_layer_partition": None})


def _check_heads(arch: Architecture, attention: Attention, tp: int) -> None:
    if attention.num_heads % tp:
        raise _uneven(arch, f"{attention.num_heads} attention heads", tp)
    kv = attention.num_kv_heads
    if attention.kind != "mla" and kv % tp and tp % kv:
        raise _uneven(arch, f"{kv} KV heads", tp)


def _check_experts(arch: Architecture, mlp: Mlp, layout: Layout) -> None:
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    if layout.enable_expert_parallel and ranks > mlp.num_experts:
        raise InputError(
            "layout.enable_expert_parallel",
            f"{ranks} ranks are more than the {mlp.num_experts} experts of {arch.name}",
            f"use a TP x DP of at most {mlp.num_experts}, or turn expert parallelism off",
        )


def _uneven(arch: Architecture, what: str, tp: int) -> InputError:
    divisors = ", ".join(str(size) for size in (1, 2, 4, 8, 16, 32, 64) if _divides(arch, size))
    return InputError(
        "layout.tensor_parallel_size", f"{tp} does not divide the {what} of {arch.name}", f"sizes that do: {divisors}"
    )


def _divides(arch: Architecture, tp: int) -> bool:
    """Whether every head count and dense width of ``arch`` splits over ``tp`` ranks."""
    for run in arch.layers:
        attention, mlp = run.attention, run.mlp
        if attention is not None:
            kv = attention.num_kv_heads
            if attention.num_heads % tp or (attention.kind != "mla" and kv % tp and tp % kv):
                return False
        if mlp is not None and not mlp.num_experts and mlp.intermediate_size % tp:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Stage:
    """One pipeline stage: which layers it holds, and whether it embeds or samples."""

    index: int
    runs: tuple[LayerRun, ...]  # counts are of this stage
    first: bool
    last: bool


def stages(arch: Architecture, layout: Layout) -> Iterator[Stage]:
    """Split the layers as vLLM does: as given, or evenly with remainders to the stages before the last.

    Source: vllm/distributed/utils.py, get_pp_indices.
    """
    pp = layout.pipeline_parallel_size
    sizes = list(layout.pp_layer_partition or [arch.num_layers // pp] * pp)
    for index in range(0 if layout.pp_layer_partition else arch.num_layers % pp):
        sizes[pp - 2 - index if pp > 1 else 0] += 1
    begin = 0
    for index, size in enumerate(sizes):
        order = arch.layer_order[begin : begin + size]
        runs = tuple(
            LayerRun(order.count(position), run.attention, run.mlp)
            for position, run in enumerate(arch.layers)
            if position in order
        )
        yield Stage(index, runs, first=index == 0, last=index == pp - 1)
        begin += size


def weight_bytes(
    arch: Architecture, layout: Layout, weights: WeightFormat, stage: Stage, rules: EngineMemory
) -> dict[str, int]:
    """Bytes of the weights of the largest rank of ``stage``, by component, as the engine loads them.

    Rotary tables count as weights because the engine measures them with the weights.
    """
    parts: dict[str, float] = {}
    for run in stage.runs:
        for component, size in _layer_bytes(arch, run, layout, weights, rules).items():
            parts[component] = parts.get(component, 0.0) + run.count * size
    base, tp = weights.base_bits / 8, layout.tensor_parallel_size
    rows = -(-arch.vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING // tp
    table = rows * arch.hidden_size * base
    tied_copy = arch.tie_word_embeddings and stage.last and not stage.first
    parts["embedding"] = table if stage.first or tied_copy else 0.0
    if stage.last and not arch.tie_word_embeddings:
        parts["lm_head"] = table + (rows * base if arch.lm_head_bias else 0.0)
    layers = sum(run.count for run in stage.runs)
    parts["norm"] = (layers * arch.norm_params_per_layer + (arch.final_norm_params if stage.last else 0)) * base
    parts["rope"] = arch.rope_cache_elements * base
    parts["vision"] = arch.extra_params * base / tp if stage.first else 0.0
    return {component: round(size) for component, size in parts.items() if size}


def _layer_bytes(
    arch: Architecture, run: LayerRun, layout: Layout, weights: WeightFormat, rules: EngineMemory
) -> dict[str, float]:
    """One layer of one rank, by component."""
    hidden, tp = arch.hidden_size, layout.tensor_parallel_size
    whole = layer_components(run, hidden)
    parts: dict[str, float] = {"router": whole["router"] * weights.bits("router") / 8}
    if run.attention is not None:
        parts["attention"] = _attention_bytes(run.attention, hidden, tp, weights)
    if run.mlp is not None and run.mlp.num_experts:
        parts["experts"] = _expert_bytes(run.mlp, hidden, layout, weights, rules)
        parts["shared_experts"] = whole["shared_experts"] / tp * weights.bits("shared_experts") / 8
    elif run.mlp is not None:
        scales = (3 * run.mlp.intermediate_size / tp + hidden) * weights.channel_bits("dense_mlp") / 8
        parts["dense_mlp"] = whole["dense_mlp"] / tp * weights.bits("dense_mlp") / 8 + scales
    return parts


def _expert_bytes(mlp: Mlp, hidden: int, layout: Layout, weights: WeightFormat, rules: EngineMemory) -> float:
    """Routed experts of the fullest rank: split by width without expert parallelism, whole experts with it."""
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    inner, held = mlp.intermediate_size, mlp.num_experts
    if layout.enable_expert_parallel:
        held = -(-(held + layout.num_redundant_experts) // ranks)
    else:
        inner = -(-inner // ranks)
    width = hidden
    if weights.gemm_family == "mxfp4":
        inner, width = (
            -(-size // step) * step for size, step in zip((inner, hidden), rules.mxfp4_padding, strict=True)
        )
    matrices = 3 if mlp.gated else 2
    bias = ((matrices - 1) * inner + hidden) * weights.base_bits if mlp.bias else 0
    scales = ((matrices - 1) * inner + width) * weights.channel_bits("experts")
    return held * (matrices * inner * width * weights.bits("experts") + bias + scales) / 8


def _attention_bytes(attention: Attention, hidden: int, tp: int, weights: WeightFormat) -> float:
    bits, channel = weights.bits("attention"), weights.channel_bits("attention")
    if attention.kind == "linear":
        return attention.linear_params / tp * bits / 8
    if attention.kind == "mla":
        return _latent_weight_bytes(attention, hidden, tp, weights)
    kv = max(1, attention.num_kv_heads // tp)
    query = attention.num_heads * attention.head_dim * (2 if attention.output_gate else 1) // tp
    columns = query + kv * (attention.head_dim + (0 if attention.shared_kv_projection else attention.v_head_dim))
    output = attention.num_heads * attention.v_head_dim // tp
    small = (columns if attention.qkv_bias else 0) + (hidden if attention.o_bias else 0) + attention.qk_norm_params
    return (hidden * (columns + output) * bits + (columns + hidden) * channel + small * weights.base_bits) / 8


def _latent_weight_bytes(attention: Attention, hidden: int, tp: int, weights: WeightFormat) -> float:
    """Down-projections and the indexer are whole on every rank; a quantised up-projection is kept in 16 bit as well."""
    latent, rank, heads = attention.kv_lora_rank, attention.q_lora_rank, attention.num_heads // tp
    down = hidden * (latent + attention.qk_rope_head_dim + rank) + indexer_params(attention, hidden)
    query = (rank or hidden) * heads * attention.head_dim
    up = latent * heads * (attention.qk_nope_head_dim + attention.v_head_dim)
    output = heads * attention.v_head_dim * hidden
    absorbed = up * weights.base_bits if weights.bits("attention") < weights.base_bits else 0
    return ((down + query + up + output) * weights.bits("attention") + absorbed) / 8
