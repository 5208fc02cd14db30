"""Kernel figures for what nobody measured on a device: datasheet peaks times the efficiencies of devices measured."""

from __future__ import annotations

from hardware_profiles.kernels import CollectiveFit, MemoryBoundFit, RooflineFit, Segment
from hardware_profiles.profile import HardwareProfile
from sim.errors import InputError

# Fractions of the datasheet, and fixed times, that the fitted NVIDIA devices reach (medians over their profiles).
_SOURCE = "datasheet times the median efficiency of the fitted devices"
_GEMM_PEAK = {"bf16": 0.76, "fp8": 0.58, "int8": 0.55, "fp4": 0.42}
_GEMM_FIXED_S = {"bf16": 3e-6}
_WIDENED = {"fp8": "w8a16", "int8": "w8a16", "fp4": "w4a16"}
_QUANTIZED_FIXED_S = 6e-6
_BANDWIDTH = 0.82
_ATTENTION_PEAK = 0.62
_PREFILL_BANDWIDTH = 0.30
_ATTENTION_FIXED_S = 12e-6
_EXPERTS_PEAK = 0.40
_EXPERTS_FIXED_S = 40e-6
_ELEMENTWISE_FIXED_S = 2e-6
_LINK = 0.45
_ALPHA_S = {"nvlink": 5e-6, "pcie": 13e-6}


def gemm_fit(hardware: HardwareProfile, family: str, dtype: str) -> RooflineFit:
    """The fit of GEMM ``family``, whose products run at the peak of ``dtype``, or an assumed one.

    A device without units for ``dtype`` widens the weights and multiplies in 16 bit, as Marlin kernels do.
    """
    if dtype not in hardware.compute.peak_flops and family not in hardware.kernels.gemm:
        family, dtype = _WIDENED.get(dtype, family), "bf16"
    found = hardware.kernels.gemm.get(family)
    fixed = _GEMM_FIXED_S.get(family, _QUANTIZED_FIXED_S)
    return found or _assumed(hardware, dtype, _GEMM_PEAK.get(dtype, 0.76), _BANDWIDTH, fixed, 3.0)


def experts_fit(hardware: HardwareProfile, family: str, dtype: str) -> RooflineFit:
    """The fit of grouped expert products of ``family``, or an assumed one."""
    found = hardware.kernels.experts.get(family)
    return found or _assumed(hardware, dtype, _EXPERTS_PEAK, _BANDWIDTH, _EXPERTS_FIXED_S, 2.0)


def decode_attention_fit(hardware: HardwareProfile, dtype: str) -> MemoryBoundFit:
    """The fit of decode attention over a cache of ``dtype``, or an assumed one.

    Other formats that are widened in the kernel reach what FP8 does there, as long as nobody has timed them.
    """
    found = hardware.kernels.decode_attention
    widened = found.get("fp8") if dtype in ("int8", "int4") else None
    return found.get(dtype) or widened or found.get("bf16") or _memory_bound(hardware, _ATTENTION_FIXED_S)


def prefill_attention_fit(hardware: HardwareProfile, dtype: str) -> RooflineFit:
    """The fit of prefill attention over a cache of ``dtype`` (else over bf16), or an assumed one."""
    found = hardware.kernels.prefill_attention
    assumed = _assumed(hardware, "bf16", _ATTENTION_PEAK, _PREFILL_BANDWIDTH, _ATTENTION_FIXED_S, 1.0)
    return found.get(dtype) or found.get("bf16") or assumed


def mla_decode_fit(hardware: HardwareProfile, dtype: str) -> RooflineFit:
    """The fit of latent decode attention, or an assumed one."""
    found = hardware.kernels.mla_decode
    assumed = _assumed(hardware, "bf16", _ATTENTION_PEAK, _BANDWIDTH, _ATTENTION_FIXED_S, 2.0)
    return found.get(dtype) or found.get("bf16") or assumed


def mla_prefill_fit(hardware: HardwareProfile, dtype: str) -> RooflineFit:
    """The fit of attention over expanded latents, or an assumed one."""
    found = hardware.kernels.mla_prefill
    assumed = _assumed(hardware, "bf16", _ATTENTION_PEAK, _PREFILL_BANDWIDTH, _ATTENTION_FIXED_S, 1.0)
    return found.get(dtype) or found.get("bf16") or assumed


def elementwise_fit(hardware: HardwareProfile) -> MemoryBoundFit:
    """The fit of memory-bound pieces, or an assumed one."""
    return hardware.kernels.elementwise or _memory_bound(hardware, _ELEMENTWISE_FIXED_S)


def collective_fit(hardware: HardwareProfile, kind: str, ranks: int, ranks_per_node: int) -> CollectiveFit:
    """The fit of ``kind`` over ``ranks`` GPUs, or an assumed one from the slowest link on the way.

    A rank count between fitted ones takes the next larger fit; groups past ``ranks_per_node`` are bound by the network.

    Raises:
        InputError: fewer than two ranks.
    """
    if ranks < 2:
        raise InputError("layout", f"a collective needs at least 2 ranks, got {ranks}")
    if ranks <= ranks_per_node:
        for fit in sorted(hardware.kernels.collectives.get(kind, ()), key=lambda entry: entry.ranks):
            if fit.ranks >= ranks:
                return fit
    links = hardware.links
    link = links.gpu_bytes_per_s.value if ranks <= ranks_per_node else links.inter_node_bytes_per_s.value
    alpha = _ALPHA_S.get(links.kind, 8e-6) * (1 if ranks <= ranks_per_node else 4)
    beta = link * _LINK * {"all_gather": 2.0, "reduce_scatter": 2.0, "all_to_all": 2.0}.get(kind, 1.0)
    segment = Segment(alpha_s=alpha, beta_bytes_per_s=beta)
    return CollectiveFit(provenance="assumed", source=_SOURCE, ranks=ranks, segments=(segment,))


def _assumed(
    hardware: HardwareProfile, dtype: str, peak: float, bandwidth: float, fixed_s: float, sharpness: float
) -> RooflineFit:
    return RooflineFit(
        provenance="assumed",
        source=_SOURCE,
        peak_flops=hardware.peak_flops(dtype) * peak,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * bandwidth,
        fixed_s=fixed_s,
        sharpness=sharpness,
    )


def _memory_bound(hardware: HardwareProfile, fixed_s: float) -> MemoryBoundFit:
    return MemoryBoundFit(
        provenance="assumed",
        source=_SOURCE,
        bandwidth_bytes_per_s=hardware.memory_bandwidth_bytes_per_s * _BANDWIDTH,
        fixed_s=fixed_s,
    )
