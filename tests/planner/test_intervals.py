"""Confidence intervals cover the truth about as often as they say, for values that depend on their neighbours."""

from __future__ import annotations

import numpy as np

from sim.planner.intervals import BLOCKS, interval_of


def correlated(rng: np.random.Generator, n: int, strength: float) -> np.ndarray:
    """Exponential values whose logs of survival follow an autoregression: stationary, neighbours alike."""
    noise = rng.standard_normal(n + 200)
    state = np.empty(n + 200)
    state[0] = noise[0]
    for i in range(1, n + 200):
        state[i] = strength * state[i - 1] + np.sqrt(1 - strength**2) * noise[i]
    return np.exp(state[200:])


def coverage(statistic: str, truth: float, strength: float, n: int = 1000, runs: int = 200) -> float:
    rng = np.random.default_rng(5)
    hits = 0
    for _ in range(runs):
        interval = interval_of(correlated(rng, n, strength), statistic)
        assert interval is not None
        hits += interval[0] <= truth <= interval[1]
    return hits / runs


def test_the_median_is_covered() -> None:
    assert coverage("p50", 1.0, 0.8) >= 0.88


def test_the_ninetieth_percentile_is_covered() -> None:
    assert coverage("p90", float(np.exp(1.2815515655)), 0.8) >= 0.86


def test_the_mean_is_covered() -> None:
    assert coverage("mean", float(np.exp(0.5)), 0.8) >= 0.84


def test_an_interval_is_narrower_for_more_values() -> None:
    rng = np.random.default_rng(2)
    few, many = (interval_of(rng.exponential(size=n), "p90") for n in (200, 20_000))
    assert few is not None
    assert many is not None
    assert many[1] - many[0] < 0.3 * (few[1] - few[0])


def test_it_is_the_same_every_time_and_absent_for_too_few_values() -> None:
    values = np.random.default_rng(3).random(100)
    assert interval_of(values, "p99") == interval_of(values, "p99")
    assert interval_of(values[: BLOCKS - 1], "p99") is None
