"""Attention of a step: decode by the sum of contexts, prefill by what the chunks really compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hardware_profiles.assume import (
    decode_attention_fit,
    mla_decode_fit,
    mla_prefill_fit,
    prefill_attention_fit,
)
from hardware_profiles.profile import HardwareProfile
from sim.cost import laws
from sim.cost.kernels import Bounded, Correction
from sim.cost.shape import StepShape
from sim.cost.table import Table
from sim.models.architecture import Attention
from sim.models.kv_format import KvFormat

# Mean contexts at which decode attention is evaluated; straight lines between them.
CONTEXT_NODES = (1, *(2**power for power in range(6, 21)))


REMEMBERED = 1 << 16  # corrections of prefill shapes kept at a time


class KernelPace(NamedTuple):
    """How many times as long as in the tables attention over heads takes."""

    decode: float = 1.0
    prefill: float = 1.0


AS_IN_TABLES: Final = KernelPace()


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """The attention of ``count`` equal layers on one rank; ``pace`` is of heads, not of latents."""

    attention: Attention
    heads: int
    kv_heads: int
    count: int
    pace: KernelPace = AS_IN_TABLES

    @property
    def windowed(self) -> bool:
        """Whether a query's range is cut."""
        return self.attention.window is not None


def decode_table(kernel: AttentionKernel, hardware: HardwareProfile, kv: KvFormat, seqs: int) -> Table:
    """Seconds of all layers against the summed contexts of ``seqs`` sequences."""
    if kernel.attention.kind == "mla":
        one, times = _latent_decode(kernel, hardware, kv, seqs), 1.0 * kernel.count
    else:
        one, times = _head_decode(kernel, hardware, kv, seqs), kernel.pace.decode * kernel.count
    return Table([seqs * node for node in CONTEXT_NODES], [times * one(node) for node in CONTEXT_NODES])


def _head_decode(
    kernel: AttentionKernel, hardware: HardwareProfile, kv: KvFormat, seqs: int
) -> Callable[[float], float]:
    a = kernel.attention
    fit = decode_attention_fit(hardware, kv.kernel_dtype)
    dims = a.head_dim + a.v_head_dim
    element_bytes = (a.head_dim * kv.key_bits + a.v_head_dim * kv.value_bits) / dims / 8.0
    fixed = {
        "parallel": seqs * kernel.kv_heads,
        "group": kernel.heads / kernel.kv_heads,
        "head_dim": a.head_dim,
        "batch": seqs,
        "kv_heads": kernel.kv_heads,
    }
    correction = Correction(fit, fixed)
    served = hardware.sustained_memory_fraction

    def seconds(context: float) -> float:
        moved = laws.decode_attention_work(seqs, context, kernel.heads, kernel.kv_heads, dims, element_bytes)
        fitted: float = laws.memory_bound(fit, moved) * correction(context=context) / served
        return max(fitted, float(moved / hardware.memory_bandwidth_bytes_per_s))

    return seconds


def _latent_decode(
    kernel: AttentionKernel, hardware: HardwareProfile, kv: KvFormat, seqs: int
) -> Callable[[float], float]:
    a = kernel.attention
    fit = mla_decode_fit(hardware, kv.kernel_dtype)
    one = Bounded(fit, hardware, "bf16" if kv.kernel_dtype == "bf16" else "fp8", {"batch": seqs, "heads": kernel.heads})

    def seconds(context: float) -> float:
        flops, moved = laws.mla_decode_work(
            seqs, context, kernel.heads, a.kv_lora_rank, a.qk_rope_head_dim, kv.key_bits / 8.0
        )
        return one(flops, moved, moved, context=context)

    return seconds


class PrefillAttention:
    """Seconds of the prefill chunks of a step in all layers of one kernel."""

    __slots__ = ("_count", "_dims", "_factors", "_heads", "_kernel", "_kv_heads", "_sustained_flops", "windowed")

    def __init__(self, kernel: AttentionKernel, hardware: HardwareProfile, kv: KvFormat) -> None:
        a = kernel.attention
        self.windowed = kernel.windowed
        latent = a.kind == "mla"
        self._count = kernel.count * (1.0 if latent else kernel.pace.prefill)
        self._heads = kernel.heads
        self._dims = a.head_dim + a.v_head_dim
        self._kv_heads = kernel.heads if latent else kernel.kv_heads
        find = mla_prefill_fit if latent else prefill_attention_fit
        fixed = {"group": self._heads / self._kv_heads, "head_dim": a.head_dim}
        fit = find(hardware, kv.kernel_dtype)
        self._kernel = Bounded(fit, hardware, "bf16", fixed)
        self._sustained_flops = fit.peak_flops * hardware.sustained_fraction
        self._factors: dict[tuple[int, int], float] = {}

    def __call__(self, chunks: int, tokens: int, pairs: float, keys: float) -> float:
        """Seconds for ``chunks`` chunks of ``tokens`` new tokens that attend ``pairs`` pairs and read ``keys`` keys."""
        flops, moved = laws.prefill_attention_work(pairs, tokens, keys, self._heads, self._kv_heads, self._dims)
        return self._count * self._kernel.seconds(flops, moved, 0.0, self._factor(chunks, tokens))

    def of(self, shape: StepShape) -> float:
        """Seconds of the prefill chunks of a step."""
        if self.windowed:
            pairs, keys = shape.prefill_pairs_windowed, shape.prefill_context_windowed
        else:
            pairs, keys = shape.prefill_pairs, shape.prefill_context
        return self(shape.prefill_seqs, shape.prefill_tokens, pairs, keys)

    def _factor(self, chunks: int, tokens: int) -> float:
        factor = self._factors.get((chunks, tokens))
        if factor is None:
            if len(self._factors) >= REMEMBERED:
                self._factors.clear()
            factor = self._kernel.factor(parallel=chunks * self._heads, new=tokens / chunks)
            self._factors[chunks, tokens] = factor
        return factor

    def tiles(self, query_rows: float, context: float) -> float:
        """Seconds of computing ``query_rows`` padded rows against each of ``context`` keys, in all heads."""
        return self._count * 2.0 * query_rows * context * self._heads * self._dims / self._sustained_flops
