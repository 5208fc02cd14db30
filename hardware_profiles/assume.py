"""Kernel figures for a device that nobody measured: datasheet peaks times the efficiencies of those measured."""

from __future__ import annotations

from hardware_profiles.kernels import (
    CollectiveFit,
    DecodeAttentionFit,
    ElementwiseFit,
    GemmFit,
    Kernels,
    PrefillAttentionFit,
    Segment,
)
from hardware_profiles.profile import HardwareProfile
from sim.errors import InputError

# Typical figures of the six fitted NVIDIA devices (aiconfigurator-core 0.12.0 tables).
_SOURCE = "assumed: datasheet times the typical efficiency of fitted devices"
_GEMM_PEAK = {"bf16": 0.76, "fp8": 0.55, "int8": 0.55, "fp4": 0.40}
_BANDWIDTH = 0.80
_ELEMENTWISE_BANDWIDTH = 0.70
_PREFILL_PEAK = 0.60
_PREFILL_BANDWIDTH = 0.30
_LINK = 0.45


def gemm_fit(hardware: HardwareProfile, family: str, dtype: str) -> GemmFit:
    """The fit of GEMM ``family`` (weights computed in ``dtype``), or an assumed one."""
    if family in hardware.kernels.gemm:
        return hardware.kernels.gemm[family]
    return GemmFit(
        provenance="assumed",
        source=_SOURCE,
        peak_flops=hardware.peak_flops(dtype) * _GEMM_PEAK.get(dtype, _GEMM_PEAK["bf16"]),
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * _BANDWIDTH,
        fixed_s=3e-6 if family == "bf16" else 8e-6,
    )


def decode_attention_fit(hardware: HardwareProfile, dtype: str) -> DecodeAttentionFit:
    """The fit of decode attention over a cache of ``dtype``, or an assumed one."""
    if dtype in hardware.kernels.decode_attention:
        return hardware.kernels.decode_attention[dtype]
    if "bf16" in hardware.kernels.decode_attention:
        return hardware.kernels.decode_attention["bf16"]
    return DecodeAttentionFit(
        provenance="assumed",
        source=_SOURCE,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * _BANDWIDTH,
        fixed_s=12e-6,
    )


def prefill_attention_fit(hardware: HardwareProfile, dtype: str) -> PrefillAttentionFit:
    """The fit of prefill attention, or an assumed one."""
    if dtype in hardware.kernels.prefill_attention:
        return hardware.kernels.prefill_attention[dtype]
    if "bf16" in hardware.kernels.prefill_attention:
        return hardware.kernels.prefill_attention["bf16"]
    return PrefillAttentionFit(
        provenance="assumed",
        source=_SOURCE,
        peak_flops=hardware.peak_flops("bf16") * _PREFILL_PEAK,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * _PREFILL_BANDWIDTH,
        fixed_s=12e-6,
    )


def elementwise_fit(hardware: HardwareProfile) -> ElementwiseFit:
    """The fit of memory-bound pieces, or an assumed one."""
    return hardware.kernels.elementwise or ElementwiseFit(
        provenance="assumed",
        source=_SOURCE,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * _ELEMENTWISE_BANDWIDTH,
        fixed_s=2e-6,
    )


def all_reduce_fit(hardware: HardwareProfile, ranks: int) -> CollectiveFit:
    """The fit of an all-reduce over ``ranks`` GPUs of a node, or an assumed one from the link's bandwidth.

    A rank count between fitted ones takes the next larger fit.

    Raises:
        InputError: fewer than two ranks.
    """
    if ranks < 2:
        raise InputError("layout", f"an all-reduce needs at least 2 ranks, got {ranks}")
    for fit in sorted(hardware.kernels.all_reduce, key=lambda entry: entry.ranks):
        if fit.ranks >= ranks:
            return fit
    beta = hardware.links.gpu_bytes_per_s.value * _LINK * 2 / 2
    alpha = 5e-6 if hardware.links.kind != "pcie" else 6e-6 * ranks / 2
    segment = Segment(alpha_s=alpha, beta_bytes_per_s=beta)
    return CollectiveFit(provenance="assumed", source=_SOURCE, ranks=ranks, segments=(segment,))


def kernels_assumed(hardware: HardwareProfile) -> bool:
    """Whether nothing at all was fitted on this device."""
    return hardware.kernels == Kernels()
