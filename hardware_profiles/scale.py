"""Kernel figures of a device that nobody measured, from a measured one of the same architecture."""

from __future__ import annotations

from typing import Any

from hardware_profiles.kernels import CollectiveFit, Kernels, MemoryBoundFit, RooflineFit
from hardware_profiles.profile import HardwareProfile

_REACHED = 0.95  # of a matrix peak that neither power nor memory holds back
_PEAK_OF = {
    "fp8_block": "fp8",
    "nvfp4": "fp4",
}  # GEMM families by the dtype of their peak; others are their own or bf16


def scaled_kernels(profile: HardwareProfile, sibling: HardwareProfile) -> Kernels:
    """The sections of ``sibling`` with bandwidths and links in proportion to the two datasheets.

    Compute scales as the FP32 peaks do, that is with cores and clock, up to nearly the matrix peak of the device:
    kernels that a sibling's power holds back reach a peak that is lower by design. Fixed times and the correction grids
    stay: they belong to the kernels and the architecture. Collectives are kept where both devices are joined by the
    same kind of link.
    """
    scale = _Scale(profile, sibling)
    update: dict[str, Any] = {}
    for name in ("gemm", "experts", "prefill_attention", "mla_decode", "mla_prefill"):
        update[name] = {key: scale.roofline(fit, name, key) for key, fit in getattr(sibling.kernels, name).items()}
    update["decode_attention"] = {key: scale.memory(fit) for key, fit in sibling.kernels.decode_attention.items()}
    if sibling.kernels.elementwise is not None:
        update["elementwise"] = scale.memory(sibling.kernels.elementwise)
    same_link = profile.links.kind == sibling.links.kind
    update["collectives"] = {
        kind: tuple(scale.collective(fit) for fit in fits) for kind, fits in sibling.kernels.collectives.items()
    } if same_link else {}  # fmt: skip
    return sibling.kernels.model_copy(update=update)


class _Scale:
    """Ratios of two datasheets."""

    def __init__(self, profile: HardwareProfile, sibling: HardwareProfile) -> None:
        self._profile, self._sibling = profile, sibling
        reached = profile.kernels_from.bandwidth if profile.kernels_from else None
        self._bandwidth = profile.memory_bandwidth_bytes_per_s / sibling.memory_bandwidth_bytes_per_s
        self._bandwidth *= reached.value if reached else 1.0
        self._cores = profile.peak_flops("fp32") / sibling.peak_flops("fp32")
        self._link = profile.links.gpu_bytes_per_s.value / sibling.links.gpu_bytes_per_s.value
        self._note = {
            "provenance": "assumed",
            "source": f"{sibling.name}, scaled by the datasheets",
            "residual": None,
        }

    def roofline(self, fit: RooflineFit, section: str, key: str) -> RooflineFit:
        dtype = _PEAK_OF.get(key, key) if section in ("gemm", "experts") else "bf16"
        if dtype not in self._sibling.compute.peak_flops:
            dtype = "bf16"
        peak = min(fit.peak_flops * self._cores, _REACHED * self._profile.peak_flops(dtype))
        return fit.model_copy(update={"peak_flops": peak} | self._memory(fit))

    def memory(self, fit: MemoryBoundFit) -> MemoryBoundFit:
        return fit.model_copy(update=self._memory(fit))

    def collective(self, fit: CollectiveFit) -> CollectiveFit:
        segments = tuple(
            piece.model_copy(update={"beta_bytes_per_s": piece.beta_bytes_per_s * self._link}) for piece in fit.segments
        )
        return fit.model_copy(update={"segments": segments, **self._note})

    def _memory(self, fit: RooflineFit | MemoryBoundFit) -> dict[str, Any]:
        return {"bandwidth_bytes_per_s": fit.bandwidth_bytes_per_s * self._bandwidth, **self._note}
