"""Attention over the tokens that an indexer picks (DeepSeek sparse attention, arXiv 2512.02556).

A light indexer scores every token that a query may see and names the best ``index_topk``; attention then runs in the
latent space over those alone. All figures are shares of the datasheet, or seconds, fitted to timings of whole attention
modules of DeepSeek-V3.2 in vLLM 0.24 on H200 (aiconfigurator-core 0.12.0, Apache-2.0, NVIDIA:
h200_sxm/sparse_attention/vllm/0.24.0, dsa_context_module and dsa_generation_module), less the products that the cost
model has anyway. Errors are in docs/cost-model.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hardware_profiles.assume import elementwise_fit, gemm_fit
from hardware_profiles.profile import HardwareProfile
from sim.cost import kernels, laws
from sim.cost.attention import CONTEXT_NODES, AttentionKernel, PrefillAttention
from sim.cost.shape import StepShape
from sim.cost.table import Table, count_nodes
from sim.models.architecture import Attention
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat

_PEAK: Final = {"bf16": 0.74, "fp8": 0.38}  # of the 16-bit peak, by the cache: FP8 is widened in the kernel
_QUERY_S: Final = 64e-6  # a query's own way through index_topk latents in 16 bit; FP8 latents are split among blocks
_SCORE_PEAK: Final = 0.39  # of the FP8 peak, scores of prompts; choosing the best of them is in it
_SCORE_BANDWIDTH: Final = 0.74  # of the memory's, scores of decoding sequences
_ROW_S: Final = 21e-6  # a multiprocessor on one query: laying out, choosing and translating its places
_KERNELS: Final = 45  # small ones of a layer: norm, rotary, rotation, quantisation, indices, padding
_SCALE_BYTES: Final = 4.0  # of an index key in FP8

# Kernels compute blocks of heads: 64 on Hopper, 128 on Blackwell (vllm/v1/attention/backends/mla/flashmla_sparse.py,
# prefill_padding); devices are told apart by their FP4 units. Over an FP8 cache Blackwell has other kernels
# (FlashInfer's), whose times come nearest to blocks of 64.
_HEAD_BLOCK: Final = 64
_WIDE_HEAD_BLOCK: Final = 128
# Below so many heads of a rank vLLM computes prompts over an FP8 cache with the kernel for decoding; from there on it
# widens the cache first (the same file, MIN_HEADS_FOR_BF16_PREFILL).
_WIDENING_HEADS: Final = 32
_LARGEST_COUNT: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Picks:
    """How an engine's kernels treat the tokens that were picked.

    Attributes:
        padded: they run through all ``index_topk`` places of a query, though a short context fills only a few.
        expands_short: prompts of a step that all fit within ``index_topk`` are computed as without an indexer.
    """

    padded: bool = False
    expands_short: bool = False


class SparseAttention:
    """Seconds of the sparse attention of ``kernel.count`` layers on one rank, projections of the indexer aside.

    Args:
        kernel: latent attention with an indexer.
        hardware, kv, weights: as of `sim.cost.CostModel`.
        picks: how the engine's kernels treat them.
    """

    windowed = False

    def __init__(
        self, kernel: AttentionKernel, hardware: HardwareProfile, kv: KvFormat, weights: WeightFormat, picks: Picks
    ) -> None:
        a = kernel.attention
        self._attention, self._heads, self._count, self._picks = a, kernel.heads, kernel.count, picks
        self._fp8 = kv.kernel_dtype == "fp8"
        self._blackwell = "fp4" in hardware.compute.peak_flops
        self._peak = hardware.peak_flops("bf16") * hardware.sustained_fraction
        self._bandwidth = hardware.memory_bandwidth_bytes_per_s
        self._key_bytes = (a.kv_lora_rank + a.qk_rope_head_dim) * kv.key_bits / 8.0
        self._score_s = 2.0 * a.index_heads * a.index_head_dim / (
            hardware.peak_flops("fp8") * hardware.sustained_fraction * _SCORE_PEAK
        )  # fmt: skip
        self._index_key_s = (a.index_head_dim + _SCALE_BYTES) / (self._bandwidth * _SCORE_BANDWIDTH)
        cores = hardware.compute.multiprocessors.value if hardware.compute.multiprocessors else 100.0
        self._row_s = _ROW_S / cores
        self._small = kernels.elementwise(
            elementwise_fit(hardware), _copied_bytes(a, kernel.heads, self._block), _KERNELS
        )
        self._expanded = PrefillAttention(kernel, hardware, kv)
        nodes = count_nodes(_LARGEST_COUNT)
        into, out = _absorbing(kernel, hardware)
        self._latent = Table.of(lambda count: into(count) + out(count) + self._beside(count), nodes)
        self._up = Table.of(_expanding(kernel, hardware, weights), nodes)

    @property
    def _block(self) -> int:
        return _WIDE_HEAD_BLOCK if self._blackwell and not self._fp8 else _HEAD_BLOCK

    def decode_tables(self, seqs: int, queries: int) -> tuple[Table, Table]:
        """Of ``seqs`` sequences with ``queries`` queries each: scores against the summed contexts, attention against
        the summed contexts cut to ``index_topk``."""
        rows, nodes = seqs * queries, [seqs * node for node in CONTEXT_NODES]
        scores = [self._count * node * self._index_key_s for node in nodes]
        beside, attended = self._beside(rows), []
        for node in nodes:
            kept = min(node, seqs * self._attention.index_topk)
            read = kept * self._key_bytes / self._bandwidth
            attended.append(self._count * (beside + max(read, self._over_latents(rows, kept * queries, self._fp8))))
        return Table(nodes, scores), Table(nodes, attended)

    def of(self, shape: StepShape) -> float:
        """Seconds of the prefill chunks of a step, their way to and from the latent space included."""
        tokens, pairs, kept = shape.prefill_tokens, shape.prefill_pairs, shape.prefill_pairs_windowed
        if self._picks.expands_short and kept == pairs:
            return self._expanded.of(shape) + self._count * self._up(shape.prefill_context)
        fp8 = self._fp8 and self._heads < _WIDENING_HEADS
        return self._count * (self._latent(tokens) + self._over_latents(tokens, kept, fp8) + pairs * self._score_s)

    def tiles(self, query_rows: float, context: float) -> float:
        """Decoding beside prefill is the same kernel on more rows."""
        return 0.0

    def _beside(self, rows: float) -> float:
        """Small kernels around ``rows`` queries, and choosing."""
        return self._small(rows) + rows * self._row_s

    def _over_latents(self, rows: float, kept: float, fp8: bool) -> float:
        """Attention of ``rows`` queries over ``kept`` latents together, in whole blocks of heads."""
        a, blocks = self._attention, -(-self._heads // self._block)
        padded = self._picks.padded or (fp8 and not self._blackwell)
        places = rows * a.index_topk if padded else kept
        flops = 2.0 * places * blocks * self._block * (2.0 * a.kv_lora_rank + a.qk_rope_head_dim)
        own = 0.0 if fp8 else _QUERY_S * places / (rows * a.index_topk)
        return flops / (self._peak * _PEAK["fp8" if fp8 else "bf16"]) + own


def _absorbing(kernel: AttentionKernel, hardware: HardwareProfile) -> list[Callable[[float], float]]:
    """Queries into the latent space, and outputs out of it: a product a head."""
    a, family = kernel.attention, laws.GEMM_FAMILIES["bf16"]
    fit = gemm_fit(hardware, "bf16", family.dtype)
    shapes = ((a.kv_lora_rank, a.qk_nope_head_dim), (a.v_head_dim, a.kv_lora_rank))
    return [kernels.gemm(fit, hardware, family, n, k, 16.0, kernel.heads) for n, k in shapes]


def _expanding(kernel: AttentionKernel, hardware: HardwareProfile, weights: WeightFormat) -> Callable[[float], float]:
    """Keys and values of all heads out of latents."""
    a = kernel.attention
    name = "bf16" if "attention" in weights.unquantized else weights.gemm_family
    family, width = laws.GEMM_FAMILIES[name], kernel.heads * (a.qk_nope_head_dim + a.v_head_dim)
    fit = gemm_fit(hardware, name, family.dtype)
    return kernels.gemm(fit, hardware, family, width, a.kv_lora_rank, weights.bits("attention"))


def _copied_bytes(a: Attention, heads: int, block: int) -> float:
    """Bytes a query that small kernels move: queries in two pieces and as one, padded to a block, outputs likewise."""
    row = 2.0 * (2.0 * a.kv_lora_rank + a.qk_rope_head_dim)
    padded = -(-heads // block) * block
    scored = a.index_heads * a.index_head_dim * 7.0  # read and written in 16 bit twice, then quantised
    return 2.0 * heads * row + (padded * row if padded > heads else 0.0) + scored + 16.0 * a.index_topk
