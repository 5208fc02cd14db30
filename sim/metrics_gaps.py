"""Exact statistics of values held as weighted arithmetic runs, without a value for each token.

Run r stands for ``steps[r]`` values ``first[r] + i * increment[r]``, each counted ``weight[r]`` times. A row of steps
is such a run of inter-token gaps: step i takes ``first + i * increment`` and ends a gap of ``weight`` sequences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EXPAND_LIMIT: Final = 2_000_000  # values held at once


@dataclass(frozen=True, slots=True)
class WeightedRuns:
    """Arithmetic runs; all arrays are (runs,), ``increment >= 0``, ``steps >= 1``, ``weight >= 1``."""

    first: Floats
    increment: Floats
    steps: Ints
    weight: Ints

    @classmethod
    def of(
        cls,
        first: Floats,
        increment: Floats,
        steps: Ints,
        weight: Ints,
        single: Floats,
        single_weight: Ints | None = None,
    ) -> WeightedRuns:
        """Runs with at least one value, and each of ``single`` as a run of its own (weight 1 unless given)."""
        kept = (weight > 0) & (steps > 0)
        ones = np.ones(len(single), np.int64)
        return cls(
            np.concatenate([first[kept], single]),
            np.concatenate([increment[kept], np.zeros(len(single))]),
            np.concatenate([steps[kept].astype(np.int64), ones]),
            np.concatenate([weight[kept].astype(np.int64), ones if single_weight is None else single_weight]),
        )

    @property
    def count(self) -> int:
        """Values, each counted by its weight."""
        return int(np.dot(self.steps, self.weight))

    def moments(self) -> tuple[float, float, float, float]:
        """Mean, population standard deviation, minimum and maximum; there must be a value."""
        n, weight = self.steps.astype(np.float64), self.weight.astype(np.float64)
        last = self.first + (n - 1) * self.increment
        mean = float(np.dot(weight * n, (self.first + last) / 2) / self.count)
        centre = (self.first + last) / 2 - mean
        within = self.increment**2 * (n * n - 1) / 12  # variance of an arithmetic run about its own middle
        variance = float(np.dot(weight * n, centre**2 + within) / self.count)
        return mean, float(np.sqrt(variance)), float(self.first.min()), float(last.max())

    def cdf(self, edges: Floats) -> Floats:
        """Share of the values that are at or below each of the sorted ``edges``; there must be a value."""
        counts = np.zeros(len(edges), np.int64)
        bounds = np.searchsorted(np.cumsum(self.steps), np.arange(EXPAND_LIMIT, int(self.steps.sum()), EXPAND_LIMIT))
        for part in np.split(np.arange(len(self.steps)), np.unique(bounds)):
            runs = WeightedRuns(self.first[part], self.increment[part], self.steps[part], self.weight[part])
            sample = _Expanded.of(runs, np.zeros_like(runs.steps), runs.steps)
            upto = np.concatenate([[0], sample.upto])
            counts += upto[np.searchsorted(sample.values, edges, side="right")]
        return np.asarray(counts / self.count)

    def quantiles(self, levels: tuple[float, ...]) -> list[float]:
        """Quantiles of the weighted sample as `numpy.quantile` gives them (linear); there must be a value."""
        few = int(self.steps.sum()) <= EXPAND_LIMIT
        sample = _Expanded.of(self, np.zeros_like(self.steps), self.steps) if few else None
        found = []
        for level in levels:
            position = (self.count - 1) * level
            rank = min(int(position), max(self.count - 2, 0))
            low, high = sample.pair(rank) if sample else _select(self, rank)
            found.append(_lerp(low, high, position - rank))
        return found


def _lerp(low: float, high: float, share: float) -> float:
    return high - (high - low) * (1 - share) if share >= 0.5 else low + (high - low) * share


@dataclass(frozen=True, slots=True)
class _Expanded:
    """Values in order with the number of weighted values up to and including each."""

    values: Floats
    upto: Ints

    @classmethod
    def of(cls, runs: WeightedRuns, start: Ints, stop: Ints) -> _Expanded:
        lengths = stop - start
        ends = np.cumsum(lengths)
        index = np.arange(int(lengths.sum())) - np.repeat(ends - lengths - start, lengths)
        values = np.repeat(runs.first, lengths) + index * np.repeat(runs.increment, lengths)
        order = np.argsort(values, kind="stable")
        return cls(values[order], np.cumsum(np.repeat(runs.weight, lengths)[order]))

    def pair(self, rank: int) -> tuple[float, float]:
        """The order statistics ``rank`` and ``rank + 1`` (the same one where there is no next)."""
        at = np.searchsorted(self.upto, [rank, rank + 1], side="right").clip(max=len(self.values) - 1)
        return float(self.values[at[0]]), float(self.values[at[1]])


def _select(runs: WeightedRuns, rank: int) -> tuple[float, float]:
    """Order statistics ``rank`` and ``rank + 1``: cut the runs around pivots until few values are left, sort those."""
    start, stop = np.zeros_like(runs.steps), runs.steps
    below = 0  # weighted values cut off under the ones still in play
    while int((stop - start).sum()) > EXPAND_LIMIT:
        pivot = _pivot(runs, start, stop)
        less = _count_upto(runs, start, stop, np.nextafter(pivot, -np.inf))
        upto = _count_upto(runs, start, stop, pivot)
        under = below + int(np.dot(less - start, runs.weight))
        covered = below + int(np.dot(upto - start, runs.weight))
        if rank + 1 < under:
            stop = less
        elif rank >= covered:
            start, below = upto, covered
        else:
            low = pivot if rank >= under else _value(runs, less - 1, less > start).max()
            high = pivot if rank + 1 < covered else _value(runs, upto, upto < stop).min()
            return float(low), float(high)
        kept = stop > start
        runs = WeightedRuns(runs.first[kept], runs.increment[kept], runs.steps[kept], runs.weight[kept])
        start, stop = start[kept], stop[kept]
    return _Expanded.of(runs, start, stop).pair(rank - below)


def _pivot(runs: WeightedRuns, start: Ints, stop: Ints) -> float:
    """The weighted median of the runs' middle values: a quarter of the values at least lies on either side of it."""
    middle = runs.first + ((start + stop - 1) // 2) * runs.increment
    order = np.argsort(middle)
    upto = np.cumsum(((stop - start) * runs.weight)[order])
    return float(middle[order[np.searchsorted(upto, upto[-1] / 2)]])


def _count_upto(runs: WeightedRuns, start: Ints, stop: Ints, value: float) -> Ints:
    """For each run the first index in [start, stop] whose value is above ``value``."""
    rising = runs.increment > 0
    guess = np.where(runs.first <= value, stop, start)
    with np.errstate(over="ignore"):
        ratio = (value - runs.first[rising]) / runs.increment[rising]
    guess[rising] = np.clip(np.floor(np.clip(ratio, -1, runs.steps[rising])) + 1, start[rising], stop[rising])
    while (step_up := (guess < stop) & (_value(runs, guess) <= value)).any():
        guess = guess + step_up
    while (step_down := (guess > start) & (_value(runs, guess - 1) > value)).any():
        guess = guess - step_down
    return guess


def _value(runs: WeightedRuns, index: Ints, where: NDArray[np.bool_] | None = None) -> Floats:
    values = runs.first + index * runs.increment
    return values if where is None else values[where]
