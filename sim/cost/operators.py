"""What a layer computes on one rank, as operators that each scale with one count of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from sim.models.architecture import Architecture, Attention, LayerRun, Mlp
from sim.models.quantization import WeightFormat

# What an operator's size m counts: all tokens, decoding sequences, keys that prefill chunks read, sequences sampled.
Driver = Literal["tokens", "decode_seqs", "prefill_context", "sampled"]
_PEAK_DTYPE = {"fp16": "bf16", "nvfp4": "fp4", "mxfp4": "fp4"}


@dataclass(frozen=True, slots=True)
class Gemm:
    """(m, k) x (k, n) with weights of ``family``; ``batch`` independent ones (heads of a batched product)."""

    name: str
    n: int
    k: int
    family: str
    dtype: str
    bits: float
    count: int = 1
    driver: Driver = "tokens"
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Memory-bound kernels that move ``bytes_per_token`` together."""

    name: str
    bytes_per_token: float
    kernels: int
    count: int = 1
    driver: Driver = "tokens"


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of one MoE layer: gate-up and down products of the experts that are hit."""

    name: str
    hidden: int
    intermediate: int  # width on this rank
    up_width: int  # columns of the first product for each unit of ``intermediate``: 2 where gated
    experts: int  # on this rank
    total_experts: int
    top_k: int
    family: str
    dtype: str
    bits: float
    token_share: float  # tokens of the whole group for each token of this rank
    count: int = 1


@dataclass(frozen=True, slots=True)
class Collective:
    """``kind`` over ``ranks`` GPUs, ``bytes_per_token`` a rank."""

    name: str
    kind: Literal["all_reduce", "all_gather", "all_to_all"]
    ranks: int
    bytes_per_token: float
    count: int = 1
    driver: Driver = "tokens"


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """The attention of ``count`` equal layers on one rank."""

    attention: Attention
    heads: int
    kv_heads: int
    count: int


Operator = Gemm | Elementwise | Experts | Collective


@dataclass(frozen=True, slots=True)
class Ranks:
    """Over how many ranks the parts of a layer are spread."""

    tensor: int
    data: int
    expert_parallel: bool


def _gemm(
    weights: WeightFormat,
    component: str,
    name: str,
    n: int,
    k: int,
    count: int,
    driver: Driver = "tokens",
    batch: int = 1,
) -> Gemm:
    kept = component in weights.unquantized
    dtype = "bf16" if kept else _PEAK_DTYPE.get(weights.compute_dtype, weights.compute_dtype)
    family = "bf16" if kept else weights.gemm_family
    return Gemm(name, n, k, family, dtype, weights.bits(component), count, driver, batch)


def kv_heads_of(attention: Attention, tensor: int) -> int:
    """KV heads that one rank holds: replicated where there are fewer than ranks."""
    return max(1, attention.num_kv_heads // tensor)


def layer_operators(arch: Architecture, run: LayerRun, weights: WeightFormat, ranks: Ranks) -> Iterator[Operator]:
    """Everything of ``run.count`` layers but the attention kernels themselves."""
    hidden, count = arch.hidden_size, run.count
    if run.attention is not None:
        yield Elementwise("norm", 8.0 * hidden, 1, count)
        if run.attention.kind == "mla":
            yield from _mla(run.attention, hidden, weights, ranks.tensor, count)
        elif run.attention.kind == "linear":
            yield from _linear(run.attention, hidden, weights, ranks.tensor, count)
        else:
            yield from _heads(run.attention, hidden, weights, ranks.tensor, count)
        yield from _all_reduce(ranks.tensor, hidden, count)
    if run.mlp is not None:
        yield Elementwise("norm", 8.0 * hidden, 1, count)
        if run.mlp.num_experts:
            yield from _moe(run.mlp, hidden, weights, ranks, count)
        else:
            yield from _dense(run.mlp, hidden, weights, "dense_mlp", run.mlp.intermediate_size, ranks.tensor, count)
        yield from _all_reduce(ranks.tensor, hidden, count)


def outer_operators(arch: Architecture, weights: WeightFormat, tensor: int) -> Iterator[Operator]:
    """Embedding, final norm, LM head and sampling."""
    hidden, vocab = arch.hidden_size, -(-arch.vocab_size // tensor)
    yield Elementwise("embedding", 4.0 * hidden, 1)
    yield from _all_reduce(tensor, hidden, 1)
    yield Elementwise("norm", 8.0 * hidden, 1)
    yield _gemm(weights, "lm_head", "lm_head", vocab, hidden, 1, "sampled")
    if tensor > 1:
        yield Collective("all_gather", "all_gather", tensor, 2.0 * vocab, 1, "sampled")
    yield Elementwise("sampling", 10.0 * arch.vocab_size, 4, 1, "sampled")


def _all_reduce(tensor: int, hidden: int, count: int) -> Iterator[Operator]:
    if tensor > 1:
        yield Collective("all_reduce", "all_reduce", tensor, 2.0 * hidden, count)


def _heads(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    heads, kv = a.num_heads // tensor, kv_heads_of(a, tensor)
    q_width = heads * a.head_dim * (2 if a.output_gate else 1)
    yield _gemm(weights, "attention", "qkv_proj", q_width + kv * (a.head_dim + a.v_head_dim), hidden, count)
    rotated = (heads + kv) * a.head_dim
    if a.qk_norm:
        yield Elementwise("norm", 4.0 * rotated, 2, count)
    yield Elementwise("rope", 4.0 * rotated, 1, count)
    yield Elementwise("kv_write", 4.0 * kv * (a.head_dim + a.v_head_dim), 1, count)
    yield _gemm(weights, "attention", "o_proj", hidden, heads * a.v_head_dim, count)


def _mla(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    """DeepSeek-V2 (arXiv 2405.04434): latent projections are replicated, heads are sharded.

    Decode uses the absorbed form (queries and outputs pass through the up-projections, attention runs in the latent
    space); prefill expands keys and values of all it attends.
    """
    heads = a.num_heads // tensor
    latent = a.kv_lora_rank + a.qk_rope_head_dim
    if a.q_lora_rank:
        yield _gemm(weights, "attention", "qkv_proj", a.q_lora_rank + latent, hidden, count)
        yield _gemm(weights, "attention", "q_up_proj", heads * a.head_dim, a.q_lora_rank, count)
    else:
        yield _gemm(weights, "attention", "qkv_proj", heads * a.head_dim + latent, hidden, count)
    yield Elementwise("norm", 4.0 * (a.q_lora_rank + a.kv_lora_rank), 2, count)
    yield Elementwise("rope", 4.0 * (heads + 1) * a.qk_rope_head_dim, 1, count)
    yield Elementwise("kv_write", 4.0 * latent, 1, count)
    nope, rank = a.qk_nope_head_dim, a.kv_lora_rank
    yield Gemm("absorb", rank, nope, "bf16", "bf16", 16, count, "decode_seqs", heads)
    yield Gemm("absorb", a.v_head_dim, rank, "bf16", "bf16", 16, count, "decode_seqs", heads)
    up = heads * (nope + a.v_head_dim)
    yield _gemm(weights, "attention", "kv_up_proj", up, rank, count, "prefill_context")
    yield _gemm(weights, "attention", "o_proj", hidden, heads * a.v_head_dim, count)


def _linear(a: Attention, hidden: int, weights: WeightFormat, tensor: int, count: int) -> Iterator[Operator]:
    """A mixer with constant state: its projections, and its state read and written once for each token."""
    inner = a.num_heads * a.v_head_dim // tensor
    width = max(1, a.linear_params // (hidden * tensor) - inner)
    yield _gemm(weights, "attention", "mixer_in_proj", width, hidden, count)
    yield Elementwise("mixer_state", 8.0 * a.state_elements / tensor, 3, count)
    yield _gemm(weights, "attention", "o_proj", hidden, inner, count)


def _dense(
    mlp: Mlp, hidden: int, weights: WeightFormat, component: str, width: int, tensor: int, count: int
) -> Iterator[Operator]:
    inner = -(-width // tensor)
    up = 2 if mlp.gated else 1
    prefix = "shared_" if component == "shared_experts" else ""
    yield _gemm(weights, component, f"{prefix}gate_up_proj", up * inner, hidden, count)
    yield Elementwise("activation", 2.0 * (up + 1) * inner, 1, count)
    yield _gemm(weights, component, f"{prefix}down_proj", hidden, inner, count)


def _moe(mlp: Mlp, hidden: int, weights: WeightFormat, ranks: Ranks, count: int) -> Iterator[Operator]:
    yield _gemm(weights, "router", "router", mlp.num_experts, hidden, count)
    yield Elementwise("routing", 8.0 * mlp.num_experts, 3, count)
    group = ranks.tensor * ranks.data
    experts, width = mlp.num_experts, -(-mlp.intermediate_size // ranks.tensor)
    if ranks.expert_parallel:
        experts, width = max(1, mlp.num_experts // group), mlp.intermediate_size
    proto = _gemm(weights, "experts", "experts", width, hidden, count)
    yield Experts(
        "experts", hidden, width, 2 if mlp.gated else 1, experts, mlp.num_experts, mlp.experts_per_token,
        proto.family, proto.dtype, proto.bits, float(ranks.data if ranks.expert_parallel else 1), count,
    )  # fmt: skip
    if mlp.shared_intermediate_size:
        yield from _dense(mlp, hidden, weights, "shared_experts", mlp.shared_intermediate_size, ranks.tensor, count)
    if ranks.expert_parallel and ranks.data > 1:
        yield Collective("all_to_all", "all_to_all", group, 4.0 * hidden * mlp.experts_per_token, count)
