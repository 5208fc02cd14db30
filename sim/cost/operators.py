"""What a layer computes on one rank, as operators that each scale with one count of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sim.cost.kinds import Collective, Driver, Elementwise, Exchange, Experts, Gemm, Operator, SortedSampling
from sim.layout import All2AllBackend, Layout
from sim.models.architecture import Architecture, Attention, LayerRun, Mlp
from sim.models.quantization import WeightFormat
from sim.models.sharding import Stage

Sampler = Literal["greedy", "truncated"]  # truncated: top-k or top-p, the default that many checkpoints ask for
_FP8_BYTES: Final = 1.0 + 4.0 / 128  # of an exchanged element: one fp32 scale for 128 of them


@dataclass(frozen=True, slots=True)
class Ranks:
    """Over how many ranks the parts of a layer are spread."""

    tensor: int
    data: int
    expert_parallel: bool
    backend: All2AllBackend = "allgather_reducescatter"
    sequence: bool = False
    redundant_experts: int = 0

    @classmethod
    def of(cls, layout: Layout) -> Ranks:
        """The ranks of one engine."""
        return cls(
            layout.tensor_parallel_size,
            layout.data_parallel_size,
            layout.enable_expert_parallel,
            layout.all2all_backend,
            layout.sequence_parallel,
            layout.num_redundant_experts,
        )


def kv_heads_of(attention: Attention, tensor: int) -> int:
    """KV heads that one rank holds: replicated where there are fewer than ranks."""
    return max(1, attention.num_kv_heads // tensor)


def layer_operators(arch: Architecture, run: LayerRun, weights: WeightFormat, ranks: Ranks) -> Iterator[Operator]:
    """Everything of ``run.count`` layers but the attention kernels themselves."""
    hidden, count = arch.hidden_size, run.count
    norm_bytes = 8.0 * hidden / (ranks.tensor if ranks.sequence else 1)
    if run.attention is not None:
        yield Elementwise("norm", norm_bytes, 1, count)
        if run.attention.kind == "mla":
            yield from _latent_attention(run.attention, hidden, weights, ranks.tensor, count)
        elif run.attention.kind == "linear":
            yield from _linear_mixer(run.attention, hidden, weights, ranks.tensor, count)
        else:
            yield from _head_attention(run.attention, hidden, weights, ranks.tensor, count)
        yield from _all_reduce(ranks.tensor, hidden, count, ranks.sequence)
    if run.mlp is not None:
        yield Elementwise("norm", norm_bytes, 1, count)
        if run.mlp.num_experts:
            yield from _experts(run.mlp, hidden, weights, ranks, count)
        else:
            yield from _dense(run.mlp, hidden, weights, "dense_mlp", run.mlp.intermediate_size, ranks.tensor, count)
        yield from _all_reduce(ranks.tensor, hidden, count, ranks.sequence)


def outer_operators(
    arch: Architecture, weights: WeightFormat, tensor: int, sampler: Sampler = "greedy", stage: Stage | None = None
) -> Iterator[Operator]:
    """Embedding, final norm, LM head and sampling, as far as ``stage`` of a pipeline has them; None: all."""
    hidden, vocab = arch.hidden_size, -(-arch.vocab_size // tensor)
    if stage is None or stage.first:
        yield Elementwise("embedding", 4.0 * hidden, 1, 1)
        yield from _all_reduce(tensor, hidden, 1)
    if stage is not None and not stage.last:
        return
    yield Elementwise("norm", 8.0 * hidden, 1, 1)
    yield _gemm(weights, "lm_head", "lm_head", vocab, hidden, 1, "sampled")
    if tensor > 1:
        yield Collective("all_gather", "all_gather", tensor, 2.0 * vocab, 1, "sampled")
    yield Elementwise("sampling", 10.0 * arch.vocab_size, 4, 1, "sampled")
    if sampler == "truncated":
        yield SortedSampling("sampling", arch.vocab_size, 1)


def _gemm(
    weights: WeightFormat, component: str, name: str, n: int, k: int, count: int, driver: Driver = "tokens"
) -> Gemm:
    family = "bf16" if component in weights.unquantized else weights.gemm_family
    return Gemm(name, n, k, family, weights.bits(component), count, driver)


def _quantize(weights: WeightFormat, component: str, width: int, count: int) -> Iterator[Operator]:
    """Activations of W8A8 and narrower formats are quantised before the product."""
    if component not in weights.unquantized and weights.gemm_family in ("fp8", "fp8_block", "int8", "nvfp4"):
        yield Elementwise("quantize", 3.0 * width, 1, count)


def _all_reduce(tensor: int, hidden: int, count: int, sequence: bool = False) -> Iterator[Operator]:
    """Add up partial sums; with sequence parallelism in two halves, around a norm of each rank's own tokens."""
    if tensor > 1 and sequence:
        yield Collective("reduce_scatter", "reduce_scatter", tensor, 2.0 * hidden, count)
        yield Collective("all_gather", "all_gather", tensor, 2.0 * hidden, count)
    elif tensor > 1:
        yield Collective("all_reduce", "all_reduce", tensor, 2.0 * hidden, count)


def _head_attention(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    heads, kv = a.num_heads // tensor, kv_heads_of(a, tensor)
    q_width = heads * a.head_dim * (2 if a.output_gate else 1)
    yield from _quantize(weights, "attention", hidden, count)
    yield _gemm(weights, "attention", "qkv_proj", q_width + kv * (a.head_dim + a.v_head_dim), hidden, count)
    rotated = (heads + kv) * a.head_dim
    if a.qk_norm:
        yield Elementwise("norm", 4.0 * rotated, 2, count)
    yield Elementwise("rope", 4.0 * rotated, 1, count)
    yield Elementwise("kv_write", 4.0 * kv * (a.head_dim + a.v_head_dim), 1, count)
    yield from _quantize(weights, "attention", heads * a.v_head_dim, count)
    yield _gemm(weights, "attention", "o_proj", hidden, heads * a.v_head_dim, count)


def _latent_attention(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    """DeepSeek-V2 (arXiv 2405.04434): latent projections are replicated, heads are sharded.

    Decode uses the absorbed form (queries and outputs pass through the up-projections, attention runs in the latent
    space); prefill expands keys and values of all that it attends. Where an indexer picks what is attended, the form of
    prefill is the kernels' affair (`sim.cost.sparse`).
    """
    heads, rank, nope = a.num_heads // tensor, a.kv_lora_rank, a.qk_nope_head_dim
    latent = rank + a.qk_rope_head_dim
    yield from _quantize(weights, "attention", hidden, count)
    if a.q_lora_rank:
        yield _gemm(weights, "attention", "qkv_proj", a.q_lora_rank + latent, hidden, count)
        yield from _quantize(weights, "attention", a.q_lora_rank, count)
        yield _gemm(weights, "attention", "q_up_proj", heads * a.head_dim, a.q_lora_rank, count)
    else:
        yield _gemm(weights, "attention", "qkv_proj", heads * a.head_dim + latent, hidden, count)
    yield Elementwise("norm", 4.0 * (a.q_lora_rank + rank), 2, count)
    yield Elementwise("rope", 4.0 * (heads + 1) * a.qk_rope_head_dim, 1, count)
    yield Elementwise("kv_write", 4.0 * latent, 1, count)
    yield Gemm("absorb", rank, nope, "bf16", 16.0, count, "decode_seqs", heads)
    yield Gemm("absorb", a.v_head_dim, rank, "bf16", 16.0, count, "decode_seqs", heads)
    if a.index_topk:
        yield from _indexer(a, hidden, weights, count)
    else:
        yield _gemm(weights, "attention", "kv_up_proj", heads * (nope + a.v_head_dim), rank, count, "prefill_context")
    yield from _quantize(weights, "attention", heads * a.v_head_dim, count)
    yield _gemm(weights, "attention", "o_proj", hidden, heads * a.v_head_dim, count)


def _indexer(a: Attention, hidden: int, weights: WeightFormat, count: int) -> Iterator[Operator]:
    """Its queries, its key and its head weights, whole on every rank (deepseek-ai/DeepSeek-V3.2-Exp, model.py)."""
    yield _gemm(weights, "attention", "index_proj", a.index_heads * a.index_head_dim, a.q_lora_rank, count)
    yield _gemm(weights, "attention", "index_proj", a.index_head_dim, hidden, count)
    yield Gemm("index_proj", a.index_heads, hidden, "bf16", 16.0, count)


def _linear_mixer(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    """A mixer with constant state: its projections, and its state read and written once a token."""
    inner = a.num_heads * a.v_head_dim // tensor
    width = max(1, a.linear_params // (hidden * tensor) - inner)
    yield _gemm(weights, "attention", "mixer_in_proj", width, hidden, count)
    yield Elementwise("mixer_state", 8.0 * a.state_elements / tensor, 3, count)
    yield _gemm(weights, "attention", "o_proj", hidden, inner, count)


def _dense(
    mlp: Mlp, hidden: int, weights: WeightFormat, component: str, width: int, tensor: int, count: int
) -> Iterator[Operator]:
    inner, up = -(-width // tensor), 2 if mlp.gated else 1
    prefix = "shared_" if component == "shared_experts" else ""
    yield from _quantize(weights, component, hidden, count)
    yield _gemm(weights, component, f"{prefix}gate_up_proj", up * inner, hidden, count)
    yield Elementwise("activation", 2.0 * (up + 1) * inner, 1, count)
    yield from _quantize(weights, component, inner, count)
    yield _gemm(weights, component, f"{prefix}down_proj", hidden, inner, count)


def _experts(mlp: Mlp, hidden: int, weights: WeightFormat, ranks: Ranks, count: int) -> Iterator[Operator]:
    """Router, routed experts (sharded by width over TP, or by expert over TP x DP), shared experts.

    Choosing the experts, sorting the rows and adding up the results are part of the measured expert kernels.
    """
    yield _gemm(weights, "router", "router", mlp.num_experts, hidden, count)
    group = ranks.tensor * ranks.data
    experts, width, share = mlp.num_experts, -(-mlp.intermediate_size // group), float(ranks.data)
    if ranks.expert_parallel:
        experts, width = -(-(mlp.num_experts + ranks.redundant_experts) // group), mlp.intermediate_size
    family = "bf16" if "experts" in weights.unquantized else weights.gemm_family
    yield Experts(
        "experts",
        hidden,
        width,
        3 if mlp.gated else 2,
        experts,
        mlp.num_experts,
        mlp.experts_per_token,
        family,
        weights.bits("experts"),
        share,
        group if ranks.expert_parallel else 1,
        ranks.backend if ranks.expert_parallel and ranks.data > 1 else "allgather_reducescatter",
        count,
    )
    if mlp.shared_intermediate_size:
        yield from _dense(mlp, hidden, weights, "shared_experts", mlp.shared_intermediate_size, ranks.tensor, count)
    if ranks.data > 1:
        yield from _exchanges(mlp, hidden, family, ranks, count)


def _exchanges(mlp: Mlp, hidden: int, family: str, ranks: Ranks, count: int) -> Iterator[Operator]:
    """Without expert parallelism every rank needs all tokens, so that only the gathering backend makes sense."""
    backend: All2AllBackend = ranks.backend if ranks.expert_parallel else "allgather_reducescatter"
    element_bytes = _FP8_BYTES if family in ("fp8", "fp8_block") else 2.0
    shared = (ranks.tensor, ranks.data, hidden, mlp.experts_per_token)
    yield Exchange("dispatch", "dispatch", backend, *shared, element_bytes, mlp.groups_per_token, count)
    yield Exchange("combine", "combine", backend, *shared, 2.0, mlp.groups_per_token, count)
