"""Seconds of one kernel from its work and the device's fitted figures. Nothing is faster than the datasheet."""

from __future__ import annotations

from hardware_profiles.kernels import CollectiveFit, DecodeAttentionFit, ElementwiseFit, GemmFit, PrefillAttentionFit
from hardware_profiles.profile import HardwareProfile

ACTIVATION_BYTES = 2


def gemm_s(fit: GemmFit, hardware: HardwareProfile, dtype: str, m: int, n: int, k: int, weight_bytes: float) -> float:
    """Seconds of an (m, k) x (k, n) product with ``weight_bytes`` of weights."""
    flops = 2.0 * m * n * k
    moved = weight_bytes + ACTIVATION_BYTES * m * (n + k)
    peak = min(fit.peak_flops, hardware.peak_flops(dtype))
    bandwidth = min(fit.bandwidth_bytes_per_s, hardware.memory_bandwidth_bytes_per_s)
    return max(flops / peak, moved / bandwidth) + fit.fixed_s


def elementwise_s(fit: ElementwiseFit, moved_bytes: float, kernels: int) -> float:
    """Seconds of ``kernels`` memory-bound kernels that move ``moved_bytes`` together."""
    return moved_bytes / fit.bandwidth_bytes_per_s + kernels * fit.fixed_s


def decode_attention_line(
    fit: DecodeAttentionFit, hardware: HardwareProfile, bytes_per_token: float
) -> tuple[float, float]:
    """(seconds, seconds per attended token) of decode attention that reads ``bytes_per_token`` of cache."""
    bandwidth = min(fit.bandwidth_bytes_per_s, hardware.memory_bandwidth_bytes_per_s)
    return fit.fixed_s, bytes_per_token / bandwidth


def prefill_attention_coefficients(
    fit: PrefillAttentionFit,
    hardware: HardwareProfile,
    flops_per_pair: float,
    bytes_per_query: float,
    bytes_per_key: float,
) -> tuple[float, float, float, float]:
    """(seconds, per pair, per query, per key) of causal attention."""
    peak = min(fit.peak_flops, hardware.peak_flops("bf16"))
    bandwidth = min(fit.bandwidth_bytes_per_s, hardware.memory_bandwidth_bytes_per_s)
    return fit.fixed_s, flops_per_pair / peak, bytes_per_query / bandwidth, bytes_per_key / bandwidth


def collective_s(fit: CollectiveFit, message_bytes: float) -> float:
    """Seconds of a collective over ``message_bytes`` a rank."""
    for segment in fit.segments:
        if segment.up_to_bytes is None or message_bytes <= segment.up_to_bytes:
            return segment.alpha_s + message_bytes / segment.beta_bytes_per_s
    last = fit.segments[-1]
    return last.alpha_s + message_bytes / last.beta_bytes_per_s
