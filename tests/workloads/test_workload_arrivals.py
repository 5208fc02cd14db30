"""Arrival processes against theory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from workloads import WorkloadSpec, build_workload
from workloads.arrivals import pauses, unit_gaps, weibull_shape

N = 100_000
SIGMAS = 4.5


def arrivals(seed: int = 3, **section: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    spec = WorkloadSpec.parse({"prompt_tokens": 10, "output_tokens": 10, **section})
    return build_workload(spec, seed).arrival_s


@pytest.mark.parametrize("cv", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("process", ["gamma", "weibull"])
def test_gaps_have_the_rate_and_variation_asked_for(process: str, cv: float) -> None:
    gaps = np.diff(arrivals(num_requests=N, arrivals={"process": process, "rate_per_s": 4.0, "cv": cv}))
    assert abs(gaps.mean() - 0.25) < SIGMAS * 0.25 * cv / math.sqrt(N)
    assert abs(gaps.std() / gaps.mean() - cv) < 0.1 * cv


def test_poisson_gaps_are_exponential() -> None:
    gaps = np.diff(arrivals(num_requests=N, arrivals={"process": "poisson", "rate_per_s": 4.0}))
    for p in (0.1, 0.5, 0.9, 0.99):
        below = (gaps <= -math.log(1 - p) / 4.0).mean()
        assert abs(below - p) < SIGMAS * math.sqrt(p * (1 - p) / N)


def test_poisson_counts_scatter_as_poisson() -> None:
    times = arrivals(duration_s=10_000.0, arrivals={"process": "poisson", "rate_per_s": 5.0})
    counts = np.bincount((times / 10).astype(int), minlength=1000)
    assert abs(len(times) - 50_000) < SIGMAS * math.sqrt(50_000)
    # index of dispersion 1, its standard error sqrt(2 / windows)
    assert abs(counts.var() / counts.mean() - 1) < SIGMAS * math.sqrt(2 / 1000)
    assert times.max() < 10_000


def test_constant_arrivals_tick() -> None:
    times = arrivals(num_requests=4, arrivals={"process": "constant", "rate_per_s": 8.0})
    assert times.tolist() == [0.0, 0.125, 0.25, 0.375]
    assert len(arrivals(duration_s=1.0, arrivals={"process": "constant", "rate_per_s": 8.0})) == 8


@pytest.mark.parametrize("cv", [0.01, 0.5, 1.0, 2.0, 13.0, 100.0])
def test_the_weibull_shape_gives_the_variation(cv: float) -> None:
    k = weibull_shape(cv)
    squared = math.exp(math.lgamma(1 + 2 / k) - 2 * math.lgamma(1 + 1 / k)) - 1
    assert math.sqrt(squared) == pytest.approx(cv, rel=1e-6)


def test_a_weibull_of_variation_one_is_exponential() -> None:
    assert weibull_shape(1.0) == pytest.approx(1.0, abs=1e-9)


def test_a_stages_rate_holds_up_to_its_very_end() -> None:
    stages = [{"rate_per_s": 50.0, "duration_s": 200.0}, {"rate_per_s": 5.0, "duration_s": 400.0}]
    times = arrivals(arrivals={"process": "stages", "stages": stages})
    first = (times < 200).sum()
    assert abs(first - 10_000) < SIGMAS * math.sqrt(10_000)
    assert abs(len(times) - first - 2_000) < SIGMAS * math.sqrt(2_000)
    around = [((times >= low) & (times < low + 10)).sum() for low in (190, 200)]
    assert abs(around[0] - 500) < SIGMAS * math.sqrt(500)
    assert abs(around[1] - 50) < SIGMAS * math.sqrt(50)


def test_constant_stages_change_pace_at_the_boundary() -> None:
    stages = [{"rate_per_s": 1.0, "duration_s": 3.0}, {"rate_per_s": 2.0, "duration_s": 1.0}]
    times = arrivals(arrivals={"process": "stages", "stages": stages, "gaps": "constant"})
    assert times.tolist() == [0.0, 1.0, 2.0, 3.0, 3.5]


def test_stages_that_end_early_are_told() -> None:
    stages = {"process": "stages", "stages": [{"rate_per_s": 10.0, "duration_s": 10.0}], "gaps": "constant"}
    spec = {"prompt_tokens": 1, "output_tokens": 1, "arrivals": stages, "num_requests": 500}
    workload = build_workload(WorkloadSpec.parse(spec), 0)
    assert len(workload) == 100
    assert workload.notes == ("The stages end after 100 of the 500 requests asked for.",)


def test_a_rate_changes_the_pace_and_not_the_pattern() -> None:
    slow = arrivals(num_requests=1000, arrivals={"process": "gamma", "rate_per_s": 1.0, "cv": 2.0})
    fast = arrivals(num_requests=1000, arrivals={"process": "gamma", "rate_per_s": 8.0, "cv": 2.0})
    np.testing.assert_allclose(slow / 8, fast, rtol=1e-12)


def test_more_requests_begin_like_fewer() -> None:
    few = arrivals(num_requests=100, arrivals={"process": "poisson", "rate_per_s": 1.0})
    many = arrivals(num_requests=1000, arrivals={"process": "poisson", "rate_per_s": 1.0})
    np.testing.assert_array_equal(few, many[:100])


def test_pauses_have_the_mean_and_variation_asked_for() -> None:
    drawn = pauses(3.0, 0.5, N, np.random.default_rng(0))
    assert abs(drawn.mean() - 3) < SIGMAS * 1.5 / math.sqrt(N)
    assert abs(drawn.std() / drawn.mean() - 0.5) < 0.02
    assert set(pauses(3.0, 0.0, 9, np.random.default_rng(0)).tolist()) == {3.0}


def test_a_time_without_arrivals_is_refused() -> None:
    with pytest.raises(InputError, match=r"workload\.duration_s: no request arrives"):
        arrivals(duration_s=1e-6, arrivals={"process": "poisson", "rate_per_s": 1e-3})


def test_a_flood_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(InputError, match="would arrive"):
        arrivals(duration_s=1e6, arrivals={"process": "poisson", "rate_per_s": 1e6})


def test_bursts_that_outgrow_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workloads.arrivals.MAX_REQUESTS", 50)
    with pytest.raises(InputError, match="crowds"):
        arrivals(duration_s=1.0, arrivals={"process": "gamma", "rate_per_s": 40.0, "cv": 100.0}, seed=0)


def test_unit_gaps_of_a_small_variation_hardly_vary() -> None:
    gaps = unit_gaps("weibull", 0.001, 1000, np.random.default_rng(0))
    assert gaps.std() == pytest.approx(0.001, rel=0.2)
