from __future__ import annotations

import numpy as np
import pytest
from toy_run import ToyRun, toy_run

from reports.series import Series, series_of
from sim.metrics_gaps import WeightedRuns


@pytest.fixture(scope="module")
def run() -> tuple[ToyRun, Series]:
    toy = toy_run()
    series = series_of(toy.result, bins=50)
    assert series is not None
    return toy, series


def total(series: Series, values: np.ndarray) -> float:
    return float((values * np.diff(series.edges_s)).sum())


def test_binning_loses_no_token(run: tuple[ToyRun, Series]) -> None:
    toy, series = run
    done = toy.result.requests[toy.result.requests["status"] == "completed"]
    assert total(series, series.output_tokens_per_s) == pytest.approx(done["output_tokens"].sum())
    assert total(series, series.prefill_tokens_per_s) == pytest.approx(done["prompt_tokens"].sum())


def test_waiting_adds_up_to_the_time_spent_in_the_queue(run: tuple[ToyRun, Series]) -> None:
    toy, series = run
    done = toy.result.requests[toy.result.requests["status"] == "completed"]
    assert total(series, series.waiting) == pytest.approx(done["queue_s"].sum())


def test_running_adds_up_to_the_time_spent_in_the_batch(run: tuple[ToyRun, Series]) -> None:
    toy, series = run
    done = toy.result.requests[toy.result.requests["status"] == "completed"]
    assert total(series, series.running) == pytest.approx((done["finish_s"] - done["scheduled_s"]).sum())


def test_the_share_of_gaps_at_an_edge_is_counted_exactly() -> None:
    runs = WeightedRuns.of(
        np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([3, 2]), np.array([2, 1]), np.array([9.0])
    )  # 1 1.5 2 twice each, 2 2, 9
    assert runs.cdf(np.array([0.5, 1.0, 1.9, 2.0, 9.0])).tolist() == pytest.approx([0, 2 / 9, 4 / 9, 8 / 9, 1])
