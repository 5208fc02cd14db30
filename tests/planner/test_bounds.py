"""Bounds hold against real runs, and are close enough to be of use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.cost.shape import StepShape
from sim.deploy import assemble_pools
from sim.metrics_steps import row_times_s
from sim.planner.bounds import Bounds, Limits, PoolBounds
from sim.planner.demand import Demand
from sim.planner.physics import physics_of, windowed_keys
from sim.planner.windows import windows_of
from sim.result import arrays_of
from workloads import build_workload

HARDWARE = ["h100-sxm", "l40s", "a100-sxm-80gb"]
MODELS = ["meta-llama/Llama-3.1-8B", "mistralai/Mixtral-8x7B-Instruct-v0.1", "deepseek-ai/DeepSeek-V2-Lite",
          "google/gemma-2-9b-it"]  # fmt: skip


def scenario(**changes: Any) -> Scenario:
    document = {
        "model": MODELS[0],
        "hardware": "h100-sxm",
        "engine": {"max_model_len": 8192},
        "workload": {
            "num_requests": 150,
            "arrivals": {"process": "poisson", "rate_per_s": 4.0},
            "prompt_tokens": {"distribution": "lognormal", "mean": 900, "cv": 0.8, "max": 4000},
            "output_tokens": {"distribution": "lognormal", "mean": 120, "cv": 0.7, "max": 400},
        },
        "slo": {"ttft_p99_s": 1.0, "tpot_p99_s": 0.05},
    }
    return Scenario.from_dict(document | changes)


def bounds_of(asked: Scenario) -> Bounds:
    pool, parts = next(iter(assemble_pools(asked.resolved()).values()))
    engine = parts.engine
    limits = Limits(engine.max_num_seqs, engine.max_num_batched_tokens, engine.usable_blocks * engine.block_size)
    demand = Demand.of(build_workload(asked.workload, asked.seed), prefix_caching=engine.enable_prefix_caching)
    one = PoolBounds(physics_of(parts, pool.layout), limits, demand)
    return Bounds(one, one, first_come=True)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("hardware", HARDWARE)
def test_no_step_is_faster_than_its_bound(model: str, hardware: str) -> None:
    asked = scenario(model=model, hardware=hardware, layout={"tensor_parallel_size": 4})
    pool, parts = next(iter(assemble_pools(asked.resolved()).values()))
    physics = physics_of(parts, pool.layout)
    rng = np.random.default_rng(0)
    for _ in range(200):
        shape = StepShape()
        shape.decode_seqs = int(rng.integers(0, 200))
        context = rng.integers(1, 4000, shape.decode_seqs)
        window = parts.timer.window
        shape.decode_context = int(context.sum())
        shape.decode_context_windowed = int(np.minimum(context, window or 1 << 30).sum())
        for _ in range(int(rng.integers(0 if shape.decode_seqs else 1, 4))):
            shape.add_prefill(int(rng.integers(1, 3000)), int(rng.integers(0, 2000)), window)
        shape.sampled_seqs = shape.decode_seqs
        seconds = parts.timer.step(shape)
        attention = (
            physics.key_s * shape.decode_context
            + physics.windowed_key_s * shape.decode_context_windowed
            + physics.pair_s * shape.prefill_pairs
            + physics.windowed_pair_s * shape.prefill_pairs_windowed
        )
        for line in physics.lines:
            assert line.fixed_s + line.token_s * shape.tokens + attention <= seconds * (1 + 1e-9)
        assert physics.token_s * shape.tokens + attention <= seconds * (1 + 1e-9)
        assert physics.least_step_s <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("changes", [{}, {"layout": {"tensor_parallel_size": 2}}, {"hardware": "l40s"},
                                     {"model": "google/gemma-2-9b-it"}])  # fmt: skip
def test_no_request_is_faster_than_its_floor(changes: dict[str, Any]) -> None:
    asked = scenario(**changes)
    rows = simulate(asked).requests.sort_values("arrival_s", kind="stable")
    floors = bounds_of(asked)._floors
    for metric in ("ttft", "tpot", "e2e"):
        measured, floor = rows[f"{metric}_s"].to_numpy(), floors[metric]
        known = ~np.isnan(measured) & ~np.isnan(floor)
        assert (floor[known] <= measured[known] * (1 + 1e-9)).all()


def test_an_idle_engine_comes_near_its_floors() -> None:
    workload = {"num_requests": 5, "arrivals": {"process": "constant", "rate_per_s": 0.01}, "prompt_tokens": 4000,
                "output_tokens": 100}  # fmt: skip
    asked = scenario(workload=workload)
    summary, floors = simulate(asked).summary, bounds_of(asked)._floors
    assert summary.ttft_s.mean is not None
    assert summary.tpot_s.mean is not None
    assert 0.8 < floors["ttft"].mean() / summary.ttft_s.mean <= 1
    assert 0.8 < floors["tpot"].mean() / summary.tpot_s.mean <= 1


def test_shared_beginnings_cost_the_bound_nothing() -> None:
    plain = scenario()
    document = plain.workload.model_dump(mode="json", exclude_none=True)
    document["prompt_tokens"] = 900
    shared = scenario(workload={**document, "prefixes": {"groups": 1, "prefix_tokens": 800}})
    new = bounds_of(shared).prefill.demand.new_tokens
    assert new[0] == 900
    assert (new[1:] == 100).all()


@pytest.mark.parametrize("window", [None, 10, 35, 1000])
def test_windowed_sums_are_those_of_a_loop(window: int | None) -> None:
    for first in (1, 7, 10, 30, 60):
        for count in (0, 1, 5, 40):
            expected = sum(min(first + i, window or 1 << 30) for i in range(count))
            assert windowed_keys(np.array([first]), np.array([count]), window)[0] == expected


def test_more_replicas_are_asked_for_in_proportion_to_the_load() -> None:
    def least(rate: float) -> int:
        document = scenario().workload.model_dump(mode="json", exclude_none=True)
        document["arrivals"]["rate_per_s"] = rate
        document["num_requests"] = 20_000
        asked = scenario(workload=document)
        bounds = bounds_of(asked)
        return bounds.least_replicas(windows_of(bounds.prefill.demand, asked.slo, 0.99), (1, 1))

    assert least(1.0) == 1
    assert 5 <= least(400.0) <= 40
    assert 1.5 < least(400.0) / least(200.0) < 2.5


@pytest.mark.parametrize("rate", [2.0, 8.0, 20.0])
@pytest.mark.parametrize("changes", [{}, {"hardware": "l40s"}, {"model": "google/gemma-2-9b-it"}])
def test_a_promised_tpot_asks_for_no_more_time_than_a_run_that_keeps_it_took(
    changes: dict[str, Any], rate: float
) -> None:
    document = scenario().workload.model_dump(mode="json", exclude_none=True)
    document["arrivals"]["rate_per_s"] = rate
    asked = scenario(workload=document, **changes)
    result = simulate(asked)
    busy_s = float(row_times_s(dict(arrays_of(result.step_columns))).sum())
    pool, tpot_s = bounds_of(asked).decode, float(np.nanmax(result.requests["tpot_s"]))
    least_s = float(pool.work_s(prefill=True, decode=True, tpot_s=tpot_s).sum(axis=1).max())
    assert least_s <= busy_s
    without_s = float(pool.work_s(prefill=True, decode=True).sum(axis=1).max())
    hurried_s = pool.work_s(prefill=True, decode=True, tpot_s=1.05 * float(np.nanmin(pool.tpot_s))).sum(axis=1).max()
    assert hurried_s > without_s
