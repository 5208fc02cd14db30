"""The search finds what brute force finds: nothing that could win is left out, whatever is dropped."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sim import Scenario
from sim.planner.bench import Bench, Outcome, Trial
from sim.planner.case import Case
from sim.planner.executors import InProcess
from sim.planner.ground import Ground
from sim.planner.hunt import rank
from sim.planner.search import cheapest
from sim.planner.space import Cell, Options, cells_of
from sim.planner.store import Store

ATTAINMENT = 0.95


def lengths(low: int, high: int) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.integers(low, high),
        st.builds(
            lambda mean, cv: {"distribution": "lognormal", "mean": float(mean), "cv": cv, "max": 2 * high},
            st.integers(low, high),
            st.sampled_from([0.3, 1.0]),
        ),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Small traffic on a small model: all promises, arrivals and sharing that bounds must reckon with."""
    rate = draw(st.sampled_from([1.0, 4.0, 12.0, 30.0, 80.0]))
    arrivals = draw(
        st.sampled_from(
            [
                {"process": "poisson", "rate_per_s": rate},
                {"process": "gamma", "rate_per_s": rate, "cv": 3.0},
                {"process": "constant", "rate_per_s": rate},
                {"process": "stages", "stages": [{"rate_per_s": rate, "duration_s": 60 / rate},
                                                 {"rate_per_s": 4 * rate, "duration_s": 20 / rate}]},
                {"process": "closed_loop", "concurrency": max(2, int(rate))},
            ]
        )
    )  # fmt: skip
    workload: dict[str, Any] = {
        "num_requests": 120,
        "arrivals": arrivals,
        "prompt_tokens": draw(lengths(60, 3000)),
        "output_tokens": draw(lengths(1, 300)),
    }
    sharing = draw(st.sampled_from(["none", "none", "prefixes", "sessions"]))
    if sharing == "prefixes":
        workload["prefixes"] = {"groups": 3, "prefix_tokens": 40}
    elif sharing == "sessions" and arrivals["process"] != "stages":
        workload["sessions"] = {"turns": 3, "think_s": 1.0}
    keys = ["ttft_p99_s", "ttft_mean_s", "tpot_p99_s", "tpot_p50_s", "e2e_p90_s", "itl_p99_s", "goodput_ttft_s",
            "goodput_e2e_s"]  # fmt: skip
    bounds = {"ttft": [0.05, 0.2, 1.0, 5.0], "tpot": [0.008, 0.02, 0.05], "e2e": [1.0, 5.0, 20.0], "itl": [0.02, 0.1]}
    chosen = draw(st.lists(st.sampled_from(keys), min_size=1, max_size=3, unique=True))
    slo = {key: draw(st.sampled_from(bounds[key.replace("goodput_", "").split("_")[0]])) for key in chosen}
    engine: dict[str, Any] = {"max_model_len": 16384}
    if draw(st.booleans()):
        engine["num_gpu_blocks_override"] = draw(st.sampled_from([1100, 3000]))
    if draw(st.booleans()):
        engine["async_scheduling"] = False
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "engine": engine,
            "workload": workload,
            "slo": slo,
            "seed": draw(st.integers(0, 3)),
        }
    )


def space_of(scenario: Scenario) -> tuple[Options, list[Cell]]:
    options = Options(
        max_gpus=4,
        tensor_parallel=(1, 2, 4),
        max_num_seqs=(8, 64),
        max_num_batched_tokens=(512, 4096),
        min_attainment=ATTAINMENT,
    )
    return options, cells_of(scenario, options)


def brute_force(bench: Bench, ground: Ground, case: Case, cells: list[Cell]) -> list[Outcome]:
    """Every deployment, simulated to its end."""
    trials = [
        Trial(case, cell, number, whole=True) for cell in cells for number in range(1, ground.most_replicas(cell) + 1)
    ]
    return bench.run(trials)


@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.generate],  # an example takes seconds: it is not made smaller
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(scenario=scenarios())
def test_the_winner_is_that_of_brute_force_and_nothing_that_keeps_the_promise_was_refuted(scenario: Scenario) -> None:
    options, cells = space_of(scenario)
    ground, case = Ground(scenario, options), Case.of(scenario.resolved())
    fitting = [cell for cell in cells if ground.fit(cell).refusal is None]
    bench = Bench(InProcess(), Store(None), ATTAINMENT)
    found = cheapest(bench, ground, case, fitting)
    everything = brute_force(Bench(InProcess(), Store(None), ATTAINMENT), ground, case, fitting)
    kept = [outcome for outcome in everything if outcome.verdict.kept]
    best = min(kept, key=lambda outcome: rank(ground, outcome)) if kept else None
    for outcome in kept:
        assert (outcome.trial.cell, outcome.trial.replicas) not in found.refuted
        assert (outcome.trial.cell, outcome.trial.replicas) not in found.spared
    if best is None:
        assert found.best is None
    else:
        assert found.best is not None
        assert found.best.trial[1:3] == best.trial[1:3]
        assert found.best.verdict == best.verdict
    by_trial = {outcome.trial[1:3]: outcome for outcome in everything}
    for cell, replicas in found.outbid:
        assert best is not None
        verdict = by_trial[cell, replicas].verdict
        assert not verdict.kept or (verdict.ratio or 0.0) > (best.verdict.ratio or 0.0)
    for outcome in found.tried + found.level:
        whole = by_trial[outcome.trial[1:3]]
        if outcome.record.status == "stopped" and outcome.record.beyond < 1:  # the best keeps the promise better
            assert found.best is not None
            assert best is not None
            assert not whole.verdict.kept or (whole.verdict.ratio or 0.0) > (best.verdict.ratio or 0.0)
            continue
        assert outcome.verdict.kept == whole.verdict.kept
        if outcome.inferred and outcome.record.summary is not None and whole.record.summary is not None:
            mine, theirs = outcome.record.summary, whole.record.summary
            assert (mine.ttft_s, mine.tpot_s, mine.e2e_s, mine.requests) == (
                theirs.ttft_s, theirs.tpot_s, theirs.e2e_s, theirs.requests,
            )  # fmt: skip


@pytest.mark.parametrize("rate", [6.0, 14.0])
def test_with_prefill_and_decode_apart_the_winner_is_that_of_brute_force_and_pools_are_judged_once(rate: float) -> None:
    scenario = Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "workload": {
                "num_requests": 200,
                "arrivals": {"process": "poisson", "rate_per_s": rate},
                "prompt_tokens": 2000,
                "output_tokens": 300,
            },
            "slo": {"ttft_p99_s": 0.6, "tpot_p99_s": 0.0095},
        }
    )
    options = Options(max_gpus=5, tensor_parallel=(1,), disaggregation=True, max_num_seqs=(16, 256),
                      max_num_batched_tokens=(2048, 8192))  # fmt: skip
    ground, case, cells = Ground(scenario, options), Case.of(scenario), cells_of(scenario, options)
    bench = Bench(InProcess(), Store(None), 0.99)
    found = cheapest(bench, ground, case, cells)
    everything = brute_force(Bench(InProcess(), Store(None), 0.99), ground, case, cells)
    kept = [outcome for outcome in everything if outcome.verdict.kept]
    assert found.best is not None
    assert found.best.trial[1:3] == min(kept, key=lambda outcome: rank(ground, outcome)).trial[1:3]
    assert not {outcome.trial[1:3] for outcome in kept} & set(found.spared)
    assert len(bench.keys) * 3 <= len(everything)


@pytest.mark.parametrize("rate", [1.0, 4.0])
def test_it_takes_a_third_of_the_simulations_at_most(rate: float) -> None:
    scenario = Scenario.from_dict(
        {
            "model": "Qwen/Qwen3-32B",
            "hardware": "h200-sxm",
            "workload": {
                "num_requests": 300,
                "arrivals": {"process": "poisson", "rate_per_s": rate},
                "prompt_tokens": 4000,
                "output_tokens": 1000,
            },
            "slo": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.03},
        }
    )
    options = Options(max_gpus=8)
    ground, case, cells = Ground(scenario, options), Case.of(scenario), cells_of(scenario, options)
    bench = Bench(InProcess(), Store(None), 0.99)
    found = cheapest(bench, ground, case, cells)
    deployments = sum(ground.most_replicas(cell) for cell in cells)
    assert found.best is not None
    assert deployments >= 40
    assert len(bench.keys) * 3 <= deployments
