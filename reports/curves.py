"""Shares of requests, and of gaps between tokens, within a time: what distribution plots draw."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.metrics_gaps import WeightedRuns
from sim.result import Result, arrays_of

Floats = NDArray[np.float64]

POINTS: Final = 1000


def sample_curve(values_s: Floats, points: int = POINTS) -> tuple[Floats, Floats] | None:
    """Times and the share (0 to 1) of the values at or below each; None where all are NaN."""
    values = np.sort(values_s[~np.isnan(values_s)])
    if not len(values):
        return None
    share = np.arange(1, len(values) + 1) / len(values)
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), points)).round().astype(np.int64))
    return np.concatenate([values[:1], values[keep]]), np.concatenate([[0.0], share[keep]])


def gap_curve(result: Result, points: int = POINTS) -> tuple[Floats, Floats] | None:
    """The same over every gap between two tokens of one request; None where there is none."""
    runs, itl = arrays_of(result.step_columns), result.summary.itl_s
    if itl.min is None or itl.p99 is None or itl.max is None:
        return None
    gaps = WeightedRuns.of(
        runs["duration_s"],
        runs["increment_s"],
        runs["steps"],
        runs["gaps"],
        result.irregular_gaps_s,
        result.gap_tokens,
    )
    edges = np.concatenate([np.linspace(itl.min, itl.p99, points), np.linspace(itl.p99, itl.max, points // 4)])
    return np.concatenate([edges[:1], edges]), np.concatenate([[0.0], gaps.cdf(edges)])
