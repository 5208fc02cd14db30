"""Drawn lengths against theory; bounds come from the number of draws, not from what came out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from workloads.length_spec import Length, LengthSpec
from workloads.lengths import cut_note, draw_lengths, mean_length

DRAWS = 200_000
SIGMAS = 4.5  # one false alarm in 150,000 checks


def length(value: Any) -> Length:
    return TypeAdapter(LengthSpec).validate_python(value)


def draw(value: Any, n: int = DRAWS, seed: int = 1) -> np.ndarray[Any, np.dtype[np.int64]]:
    return draw_lengths(length(value), n, np.random.default_rng(seed))


CASES = [
    {"distribution": "uniform", "min": 3, "max": 300},
    {"distribution": "normal", "mean": 500, "std": 50},
    {"distribution": "normal", "mean": 100, "cv": 0.8, "min": 20, "max": 220},
    {"distribution": "lognormal", "mean": 1000, "cv": 1.2},
    {"distribution": "lognormal", "mean": 1000, "cv": 1.2, "max": 8192},
    {"distribution": "lognormal", "mean": 200, "std": 400, "min": 50, "max": 2000},
    {"distribution": "empirical", "quantiles": [[0, 10], [0.5, 100], [0.9, 400], [1, 5000]]},
]


@pytest.mark.parametrize("case", CASES)
def test_the_mean_is_the_one_computed(case: dict[str, Any]) -> None:
    lengths = draw(case)
    assert abs(lengths.mean() - mean_length(length(case))) < SIGMAS * lengths.std() / math.sqrt(DRAWS) + 0.01


def test_an_uncut_distribution_has_the_mean_and_cv_asked_for() -> None:
    for name, mean, cv in (("normal", 5000.0, 0.2), ("lognormal", 5000.0, 0.5)):
        lengths = draw({"distribution": name, "mean": mean, "cv": cv})
        assert abs(lengths.mean() - mean) < SIGMAS * mean * cv / math.sqrt(DRAWS)
        # standard error of a standard deviation: sd * sqrt((kurtosis - 1) / 4n); lognormal with cv 0.5 has kurtosis 8.0
        kurtosis = 3.0 if name == "normal" else 8.04
        assert abs(lengths.std() - mean * cv) < SIGMAS * mean * cv * math.sqrt((kurtosis - 1) / (4 * DRAWS))


def test_quantiles_of_a_lognormal_are_those_of_theory() -> None:
    mean, cv = 1000.0, 1.2
    sigma = math.sqrt(math.log1p(cv * cv))
    mu = math.log(mean) - sigma**2 / 2
    lengths = draw({"distribution": "lognormal", "mean": mean, "cv": cv})
    for p, z in ((0.1, -1.281552), (0.5, 0.0), (0.9, 1.281552), (0.99, 2.326348)):
        below = (lengths <= math.exp(mu + z * sigma)).mean()
        assert abs(below - p) < SIGMAS * math.sqrt(p * (1 - p) / DRAWS) + 1e-3  # whole tokens near the median


def test_empirical_quantiles_come_back() -> None:
    points = [[0, 10], [0.5, 100], [0.9, 400], [1, 5000]]
    lengths = draw({"distribution": "empirical", "quantiles": points})
    assert (lengths.min(), lengths.max()) >= (10, 4900)
    for p, tokens in points[1:3]:
        assert abs((lengths <= tokens).mean() - p) < SIGMAS * math.sqrt(p * (1 - p) / DRAWS) + 1 / 180


def test_a_uniform_reaches_both_ends_equally_often() -> None:
    counts = np.bincount(draw({"distribution": "uniform", "min": 1, "max": 8}))[1:]
    expected = DRAWS / 8
    assert len(counts) == 8
    assert ((counts - expected) ** 2 / expected).sum() < 30  # chi-square, 7 degrees of freedom: p = 1e-4


def test_draws_beyond_the_range_are_drawn_again_not_moved_to_its_ends() -> None:
    cut = draw({"distribution": "normal", "mean": 100, "std": 50, "min": 60, "max": 140})
    inner = np.bincount(cut)[61:140]
    assert (cut.min(), cut.max()) == (60, 140)
    for at_end in ((cut == 60).sum(), (cut == 140).sum()):
        assert at_end < inner.mean()  # a clamp would pile a fifth of all draws here


def test_a_cut_that_moves_the_mean_is_told() -> None:
    told = cut_note("prompt_tokens", length({"distribution": "lognormal", "mean": 1000, "cv": 1.2, "max": 8192}))
    assert told == ("prompt_tokens: keeping draws within [1, 8192] moves the mean from 1000 to 963.7 tokens.",)


def test_a_cut_that_hardly_moves_the_mean_is_not_told() -> None:
    assert not cut_note("x", length({"distribution": "lognormal", "mean": 1000, "cv": 0.5, "max": 20_000}))
    assert not cut_note("x", length({"distribution": "uniform", "min": 1, "max": 9}))


def test_no_spread_means_the_mean_itself() -> None:
    assert set(draw({"distribution": "normal", "mean": 77, "std": 0}, n=5).tolist()) == {77}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["normal", "lognormal"]),
    mean=st.floats(2, 50_000),
    cv=st.floats(0, 5),
    low=st.integers(1, 1000),
    room=st.integers(0, 10_000),
)
def test_every_draw_lies_within_the_range(name: str, mean: float, cv: float, low: int, room: int) -> None:
    from pydantic import ValidationError

    low = min(low, int(mean))
    try:
        spec = length({"distribution": name, "mean": mean, "cv": cv, "min": low, "max": int(mean) + 1 + room})
    except ValidationError:  # keeps too few draws: refused, see test_workload_spec
        return
    lengths = draw_lengths(spec, 200, np.random.default_rng(0))
    assert lengths.min() >= low
    assert lengths.max() <= int(mean) + 1 + room
