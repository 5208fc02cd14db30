"""Drawing token counts from the distributions of `workloads.length_spec`."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from sim.workload import Ints
from workloads.length_spec import (
    ConstantLength,
    EmpiricalLength,
    Length,
    LognormalLength,
    NormalLength,
    UniformLength,
)

#: A cut that moves the mean by more than this is told.
TOLD_SHIFT: Final = 0.01


def draw_lengths(spec: Length, n: int, rng: np.random.Generator) -> Ints:
    """``n`` token counts. Draws outside [min, max] are drawn again, never moved to the bound."""
    if isinstance(spec, ConstantLength):
        return np.full(n, spec.value, dtype=np.int64)
    if isinstance(spec, UniformLength):
        return rng.integers(spec.min, spec.max, size=n, endpoint=True, dtype=np.int64)
    if isinstance(spec, EmpiricalLength):
        probabilities, tokens = zip(*spec.quantiles, strict=True)
        drawn: Ints = np.rint(np.interp(rng.random(n), probabilities, tokens)).astype(np.int64)
        return drawn
    return _draw_cut(spec, n, rng)


def mean_length(spec: Length) -> float:
    """The expected token count, the cut to [min, max] included (rounding to whole tokens aside)."""
    if isinstance(spec, ConstantLength):
        return float(spec.value)
    if isinstance(spec, UniformLength):
        return (spec.min + spec.max) / 2
    if isinstance(spec, EmpiricalLength):
        return sum((q - p) * (low + high) / 2 for (p, low), (q, high) in pairwise(spec.quantiles))
    return spec.mean if spec.std_tokens == 0 else spec.cut.cut_mean


def cut_note(name: str, spec: Length) -> tuple[str, ...]:
    """A sentence when the cut to [min, max] moves the mean away from the one asked for."""
    if not isinstance(spec, NormalLength | LognormalLength):
        return ()
    mean = mean_length(spec)
    if abs(mean - spec.mean) <= TOLD_SHIFT * spec.mean:
        return ()
    bounds = f"at least {spec.min}" if spec.max is None else f"within [{spec.min}, {spec.max}]"
    return (f"{name}: keeping draws {bounds} moves the mean from {spec.mean:g} to {mean:.4g} tokens.",)


def _draw_cut(spec: NormalLength | LognormalLength, n: int, rng: np.random.Generator) -> Ints:
    """Normal or lognormal lengths by rejection: only those that round into [min, max] are kept."""
    if spec.std_tokens == 0:
        return np.full(n, round(spec.mean), dtype=np.int64)
    cut = spec.cut
    lengths = np.empty(n, dtype=np.float64)
    missing = np.arange(n)
    while len(missing):
        draws = rng.normal(cut.mu, cut.sigma, size=len(missing))
        if cut.log:
            np.exp(draws, out=draws)
        lengths[missing] = draws
        missing = missing[(draws < cut.low) | (draws >= cut.high)]
    rounded: Ints = np.floor(lengths + 0.5).astype(np.int64)
    return rounded
