"""Seconds of one kernel on a device: its law, its correction, and the datasheet as the bound that nothing beats."""

from __future__ import annotations

from collections.abc import Callable

from hardware_profiles.grid import Surface
from hardware_profiles.kernels import CollectiveFit, MemoryBoundFit, RooflineFit
from hardware_profiles.profile import HardwareProfile
from sim.cost import laws


class Correction:
    """The product of a section's grids with some axes fixed, as a function of the free ones by name."""

    __slots__ = ("_surfaces",)

    def __init__(self, fit: RooflineFit | MemoryBoundFit, fixed: dict[str, float]) -> None:
        self._surfaces: list[tuple[Surface, list[str]]] = []
        for grid in fit.grids:
            held = {name: value for name, value in fixed.items() if name in grid.axes}
            free = [name for name in grid.axes if name not in held]
            self._surfaces.append((grid.surface(held), free))

    def __call__(self, **values: float) -> float:
        """The factor at ``values``; axes that a grid does not have are ignored."""
        factor = 1.0
        for surface, names in self._surfaces:
            factor *= surface(*[values[name] for name in names])
        return factor


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
    correction = Correction(fit, {"n": n * batch, "k": k})
    peak, bandwidth = hardware.peak_flops(family.dtype), hardware.memory_bandwidth_bytes_per_s

    def seconds(m: float) -> float:
        flops, moved = laws.gemm_work(m, n, k, weight_bits, family.input_bytes)
        flops, moved = batch * flops, batch * moved
        fitted: float = laws.roofline(fit, flops, moved) * correction(m=m)
        return max(fitted, float(flops / peak), float(moved / bandwidth))

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
