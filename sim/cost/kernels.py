"""Seconds of one kernel on a device: its law, its correction, and the datasheet as the bound that nothing beats."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from hardware_profiles.grid import Surface
from hardware_profiles.kernels import CollectiveFit, MemoryBoundFit, RooflineFit
from hardware_profiles.profile import HardwareProfile
from sim.cost import laws


class Correction:
    """The product of a section's grids (and anchors) with some axes fixed, as a function of the free ones by name."""

    __slots__ = ("_parts",)

    def __init__(self, fit: RooflineFit | MemoryBoundFit, fixed: Mapping[str, float]) -> None:
        self._parts: list[tuple[Surface, list[str]]] = []
        for grid in fit.grids:
            held = {name: value for name, value in fixed.items() if name in grid.axes}
            self._parts.append((grid.surface(held), [name for name in grid.axes if name not in held]))
        if isinstance(fit, RooflineFit) and fit.anchors is not None:
            self._parts.append((fit.anchors.surface(fixed), [fit.anchors.along]))

    def __call__(self, **values: float) -> float:
        """The factor at ``values``; a grid takes the axes that it has."""
        octaves = {name: math.log2(value) for name, value in values.items()}
        total = 0.0
        for surface, names in self._parts:
            total += surface.log(*[octaves[name] for name in names])
        return math.exp(total)


class Bounded:
    """A roofline kernel on a device: corrected, at the speeds of service, never faster than the datasheet."""

    __slots__ = ("_bandwidth", "_correction", "_fit", "_peak", "_slower_compute", "_slower_memory")

    def __init__(self, fit: RooflineFit, hardware: HardwareProfile, dtype: str, fixed: Mapping[str, float]) -> None:
        self._fit = fit
        self._correction = Correction(fit, fixed)
        self._peak = hardware.peak_flops(dtype)
        self._bandwidth = hardware.memory_bandwidth_bytes_per_s
        self._slower_compute = 1.0 / hardware.sustained_fraction - 1.0
        self._slower_memory = 1.0 / hardware.sustained_memory_fraction - 1.0

    def __call__(self, flops: float, moved_bytes: float, cold_bytes: float, **at: float) -> float:
        """Seconds of ``flops`` and ``moved_bytes``, of which ``cold_bytes`` must come out of memory."""
        return self.seconds(flops, moved_bytes, cold_bytes, self._correction(**at))

    def factor(self, **at: float) -> float:
        """What the grids say at these axes: dearer to look up than the law is to evaluate."""
        return self._correction(**at)

    def seconds(self, flops: float, moved_bytes: float, cold_bytes: float, factor: float) -> float:
        """The same with the correction looked up before."""
        fit, p = self._fit, self._fit.sharpness
        compute, memory = (flops / fit.peak_flops) ** p, (moved_bytes / fit.bandwidth_bytes_per_s) ** p
        both = compute + memory
        fitted: float = (both ** (1.0 / p) + fit.fixed_s) * factor
        if both:
            fitted *= 1.0 + (self._slower_compute * compute + self._slower_memory * memory) / both
        return max(fitted, flops / self._peak, cold_bytes / self._bandwidth)


def gemm(
    fit: RooflineFit,
    hardware: HardwareProfile,
    family: laws.GemmFamily,
    n: int,
    k: int,
    weight_bits: float,
    batch: int = 1,
) -> Callable[[float], float]:
    """Seconds against m of ``batch`` independent (m, k) x (k, n) products."""
    kernel = Bounded(fit, hardware, family.dtype, {"n": n * batch, "k": k})
    weights = batch * n * k * weight_bits / 8.0

    def seconds(m: float) -> float:
        flops, moved = laws.gemm_work(m, n, k, weight_bits, family.input_bytes)
        return kernel(batch * flops, batch * moved, weights, m=m)

    return seconds


def elementwise(fit: MemoryBoundFit, moved_per_token: float, kernels: int) -> Callable[[float], float]:
    """Seconds against tokens of ``kernels`` memory-bound kernels that move ``moved_per_token`` bytes together.

    Intermediate results may stay in the cache, so the datasheet's memory is no bound here.
    """
    correction = Correction(fit, {})

    def seconds(tokens: float) -> float:
        each = max(tokens * moved_per_token / kernels, 1.0)
        value: float = kernels * laws.memory_bound(fit, each) * correction(bytes=each)
        return value

    return seconds


def collective(fit: CollectiveFit, bytes_per_token: float) -> Callable[[float], float]:
    """Seconds against tokens of a collective over ``bytes_per_token`` a rank and token."""

    def seconds(tokens: float) -> float:
        size = tokens * bytes_per_token
        for segment in fit.segments:
            if segment.up_to_bytes is None or size <= segment.up_to_bytes:
                return segment.alpha_s + size / segment.beta_bytes_per_s
        last = fit.segments[-1]
        return last.alpha_s + size / last.beta_bytes_per_s

    return seconds
