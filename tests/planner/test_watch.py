"""A run that is given up early would have broken the promise; one that is not was not for certain."""

from __future__ import annotations

from typing import Any

import pytest

from sim import Scenario
from sim.planner.measuring import Job, measure
from sim.planner.verdict import judge
from sim.planner.watch import Limit


def run(small: Scenario, slo: dict[str, Any], rate: float, attainment: float | None) -> Any:
    document = small.given | {"slo": slo}
    document["workload"] = {**document["workload"], "num_requests": 400}
    document["workload"]["arrivals"] = {"process": "poisson", "rate_per_s": rate}
    scenario = Scenario.from_dict(document)
    record = measure(Job("key", scenario.given, attainment))
    return record, judge(record, scenario.slo, attainment or 0.9)


@pytest.mark.parametrize("rate", [2.0, 10.0, 14.0, 30.0])
@pytest.mark.parametrize(
    "slo",
    [
        {"ttft_p99_s": 0.05},
        {"ttft_mean_s": 0.2},
        {"tpot_p50_s": 0.03},
        {"tpot_p99_s": 0.012},
        {"e2e_p90_s": 2.0},
        {"itl_p99_s": 0.01},
        {"goodput_ttft_s": 0.1, "goodput_tpot_s": 0.05},
    ],
)
def test_the_verdict_is_that_of_the_whole_run(small: Scenario, slo: dict[str, Any], rate: float) -> None:
    early, verdict = run(small, slo, rate, 0.9)
    whole, expected = run(small, slo, rate, None)
    assert whole.status == "done"
    assert verdict.kept == expected.kept
    if early.status == "stopped":
        assert set(verdict.broken) <= set(expected.broken)
        assert early.evidence is not None
    else:
        assert early.summary == whole.summary


def test_an_overloaded_run_is_given_up(small: Scenario) -> None:
    record, _ = run(small, {"ttft_p99_s": 0.2}, 100.0, 0.9)
    assert record.status == "stopped"
    assert record.refusal.field == "ttft_p99_s"


def test_a_limit_counts_as_numpy_interpolates() -> None:
    import numpy as np

    from sim.planner.watch import limits_of
    from sim.scenario import SloSpec
    from sim.workload import Workload

    rng = np.random.default_rng(1)
    for n in (1, 2, 7, 100, 101, 333):
        workload = Workload(np.zeros(n), np.ones(n, np.int64), np.full(n, 5))
        for statistic, level in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            (limit,) = limits_of(SloSpec.parse({f"ttft_{statistic}_s": 0.5}), workload)
            assert isinstance(limit, Limit)
            for share in (0.0, 0.3, 0.9, 1.0):
                values = rng.random(n) * 0.5 + 0.5 * (rng.random(n) < share)
                if limit.broken_by(values):
                    assert np.quantile(values, level) > 0.5
