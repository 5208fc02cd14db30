from __future__ import annotations

import numpy as np
import pytest
from toy_run import ToyRun, toy_run

from reports.series import Series, series_of
from sim import Scenario, simulate
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


def test_tokens_add_up_to_what_the_steps_held(run: tuple[ToyRun, Series]) -> None:
    toy, series = run
    slots = (toy.result.context.num_gpu_blocks - 1) * toy.result.context.block_size
    assert total(series, series.kv_tokens) * slots == pytest.approx(toy.token_seconds, rel=1e-3)
    assert (series.kv_tokens <= series.kv_utilization).all()
    assert not series.kv_reserved.any()
    assert not series.kv_stranded.any()


def test_kinds_of_memory_over_time_are_those_of_the_summary() -> None:
    document = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"preset": "orca", "kv_allocation": "contiguous", "max_model_len": 900,
                   "num_gpu_blocks_override": 5001},
        "workload": {
            "num_requests": 200,
            "arrivals": {"process": "poisson", "rate_per_s": 50.0},
            "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 400},
            "output_tokens": {"distribution": "uniform", "min": 5, "max": 300},
        },
    }  # fmt: skip
    result = simulate(Scenario.from_dict(document))
    series, kv = series_of(result), result.summary.kv
    assert series is not None
    spent = {name: total(series, getattr(series, name)) for name in ("kv_utilization", "kv_reserved", "kv_stranded")}
    whole = spent["kv_utilization"] + spent["kv_stranded"]
    assert kv.external_fragmentation == pytest.approx(spent["kv_stranded"] / whole, rel=1e-6)
    assert kv.reserved_unused == pytest.approx(spent["kv_reserved"] / whole, rel=1e-2)
    assert kv.external_fragmentation > 0.05


def test_the_share_of_gaps_at_an_edge_is_counted_exactly() -> None:
    runs = WeightedRuns.of(
        np.array([1.0, 2.0]), np.array([0.5, 0.0]), np.array([3, 2]), np.array([2, 1]), np.array([9.0])
    )  # 1 1.5 2 twice each, 2 2, 9
    assert runs.cdf(np.array([0.5, 1.0, 1.9, 2.0, 9.0])).tolist() == pytest.approx([0, 2 / 9, 4 / 9, 8 / 9, 1])
