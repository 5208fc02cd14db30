"""The physical law of each operator family: work, and seconds before correction. Floats or arrays alike.

A *point* of work is described by the axes that the correction grids use, so that the fit and the simulator share every
formula. Activations are 16 bit unless a format says otherwise.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hardware_profiles.kernels import MemoryBoundFit, RooflineFit

ACTIVATION_BYTES: Final = 2.0


class GemmFamily(NamedTuple):
    """How a family of matrix products computes: dtype of the peak, stored bits of a weight, bytes of an input."""

    dtype: str
    weight_bits: float
    input_bytes: float


GEMM_FAMILIES: Final = {
    "bf16": GemmFamily("bf16", 16.0, 2.0),
    "fp8": GemmFamily("fp8", 8.0, 1.0),
    "fp8_block": GemmFamily("fp8", 8.0, 1.0),
    "int8": GemmFamily("int8", 8.0, 1.0),
    "w8a16": GemmFamily("bf16", 8.0, 2.0),
    "w4a16": GemmFamily("bf16", 4.16, 2.0),
    "nf4": GemmFamily("bf16", 4.5, 2.0),
    "mxfp4": GemmFamily("bf16", 4.25, 2.0),
    "nvfp4": GemmFamily("fp4", 4.5, 0.5),
}


def roofline(fit: RooflineFit, flops: Any, moved_bytes: Any) -> Any:
    """Seconds of a kernel bound by compute or memory."""
    p = fit.sharpness
    return ((flops / fit.peak_flops) ** p + (moved_bytes / fit.bandwidth_bytes_per_s) ** p) ** (1.0 / p) + fit.fixed_s


def memory_bound(fit: MemoryBoundFit, moved_bytes: Any) -> Any:
    """Seconds of a kernel bound by memory alone."""
    return moved_bytes / fit.bandwidth_bytes_per_s + fit.fixed_s


def gemm_work(m: Any, n: Any, k: Any, weight_bits: float, input_bytes: float) -> tuple[Any, Any]:
    """(flops, bytes) of (m, k) x (k, n): weights once, input once, output once."""
    return 2.0 * m * n * k, n * k * weight_bits / 8.0 + input_bytes * m * k + ACTIVATION_BYTES * m * n


def decode_attention_work(
    batch: Any, context: Any, heads: Any, kv_heads: Any, head_dims: Any, kv_element_bytes: float
) -> Any:
    """Bytes that decode attention moves.

    Args:
        batch: sequences.
        context: mean tokens attended.
        heads, kv_heads: of this rank.
        head_dims: key and value dimension together.
        kv_element_bytes: of one cached element.
    """
    return batch * (context * kv_heads * kv_element_bytes + ACTIVATION_BYTES * heads) * head_dims


def prefill_attention_work(
    pairs: Any, queries: Any, keys: Any, heads: Any, kv_heads: Any, head_dims: Any
) -> tuple[Any, Any]:
    """(flops, bytes) of causal attention: two products a (query, key) pair and head; every tensor moves once.

    Args:
        pairs: attended (query, key) pairs.
        queries: new tokens.
        keys: tokens read as keys.
        heads, kv_heads: of this rank.
        head_dims: key and value dimension together.
    """
    return 2.0 * pairs * heads * head_dims, ACTIVATION_BYTES * (queries * heads + keys * kv_heads) * head_dims


def mla_decode_work(batch: Any, context: Any, heads: Any, rank: Any, rope: Any, kv_bytes: float) -> tuple[Any, Any]:
    """(flops, bytes) of attention in the latent space: scores over rank + rope, values over rank.

    Args:
        batch: sequences.
        context: mean tokens attended.
        heads: query heads of this rank; all share the one latent.
        rank, rope: ``kv_lora_rank`` and ``qk_rope_head_dim``.
        kv_bytes: of one cached element.
    """
    flops = 2.0 * batch * context * heads * (2.0 * rank + rope)
    return flops, batch * (context * (rank + rope) * kv_bytes + ACTIVATION_BYTES * heads * (2.0 * rank + rope))


def experts_work(
    rows: Any, active: Any, hidden: Any, width: Any, projections: Any, weight_bits: float, input_bytes: float
) -> tuple[Any, Any]:
    """(flops, bytes) of the grouped products of one MoE layer.

    Args:
        rows: (token, expert) pairs on this rank.
        active: experts with at least one row.
        hidden, width: of the two products.
        projections: matrices an expert (3 gated, 2 plain).
        weight_bits: stored bits of a weight.
        input_bytes: of one activation.
    """
    matrix = hidden * width
    flops = 2.0 * rows * projections * matrix
    moved = active * projections * matrix * weight_bits / 8.0
    return flops, moved + rows * (hidden * (input_bytes + ACTIVATION_BYTES) + 2.0 * projections * width)
