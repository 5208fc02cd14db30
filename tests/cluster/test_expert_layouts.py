"""Layouts of real models with data-parallel ranks and experts: equality and memory."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from sim import Scenario, simulate
from sim.assemble import assemble
from sim.errors import InputError

SMALL_MOE = "deepseek-ai/DeepSeek-V2-Lite"


def scenario(model: str, hardware: str, n: int = 60, rate: float = 20, **more: Any) -> Scenario:
    engine = {"max_model_len": 8192, "enable_prefix_caching": False, **more.pop("engine", {})}
    return Scenario.from_dict(
        {
            "model": model,
            "hardware": hardware,
            "engine": engine,
            "workload": {
                "num_requests": n,
                "arrivals": {"process": "poisson", "rate_per_s": rate},
                "prompt_tokens": {"distribution": "lognormal", "mean": 600, "cv": 1.0, "max": 4000},
                "output_tokens": {"distribution": "lognormal", "mean": 150, "cv": 0.7, "max": 600},
            },
            **more,
        }
    )


LAYOUTS: dict[str, dict[str, Any]] = {
    "ranks that share experts": {"data_parallel_size": 4, "enable_expert_parallel": True},
    "TP and DP": {"tensor_parallel_size": 2, "data_parallel_size": 2, "enable_expert_parallel": True},
    "width of experts split": {"data_parallel_size": 2},
    "half-batches": {
        "data_parallel_size": 4,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_low_latency",
        "enable_dbo": True,
    },
    "skewed load, copies, two engines": {
        "data_parallel_size": 4,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_auto",
        "expert_load": {"distribution": "power_law", "exponent": 0.5},
        "enable_eplb": True,
        "num_redundant_experts": 8,
        "replicas": 2,
    },
    "TP and EP": {"tensor_parallel_size": 4, "enable_expert_parallel": True, "sequence_parallel": True},
    "TP over two nodes": {"tensor_parallel_size": 4, "gpus_per_node": 2},
    "stages of ranks that share experts": {
        "pipeline_parallel_size": 3,
        "data_parallel_size": 4,
        "enable_expert_parallel": True,
        "all2all_backend": "deepep_auto",
    },
    "pipeline with experts": {"pipeline_parallel_size": 2, "tensor_parallel_size": 2, "enable_expert_parallel": True},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_one_event_a_step_changes_no_record(name: str) -> None:
    asked = scenario(SMALL_MOE, "h100-sxm", layout=LAYOUTS[name])
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    pd.testing.assert_frame_equal(jumped.requests, stepped.requests, rtol=1e-9, atol=1e-12)


def test_ranks_of_a_dense_model_are_engines_of_their_own() -> None:
    ranks, replicas = (
        simulate(scenario("meta-llama/Llama-3.1-8B", "h100-sxm", layout={key: 3})).requests
        for key in ("data_parallel_size", "replicas")
    )
    pd.testing.assert_frame_equal(ranks, replicas, check_exact=True)


def test_latent_attention_in_ranks_holds_nearly_as_many_times_the_context_as_there_are_ranks() -> None:
    """Every TP rank keeps the whole latent; data-parallel ranks keep their own requests'. 7.7 times is reported."""

    def tokens(**layout: Any) -> int:
        budget = assemble(scenario(SMALL_MOE, "h100-sxm", layout=layout)).budget
        assert budget is not None
        return budget.capacity_tokens * budget.layout.data_parallel_size

    ratio = tokens(data_parallel_size=8, enable_expert_parallel=True) / tokens(tensor_parallel_size=8)
    assert ratio == pytest.approx(7.7, abs=0.1)


def test_stages_of_ranks_that_share_experts_hold_more_context_and_answer_more_slowly() -> None:
    """Twice the GPUs as a pipeline: half the weights on each, and two halves of a step one after the other."""
    ranks = {"data_parallel_size": 4, "enable_expert_parallel": True}
    short, long = (scenario(SMALL_MOE, "h100-sxm", layout={**ranks, "pipeline_parallel_size": n}) for n in (1, 2))
    capacities = [simulate(asked).summary.kv.capacity_tokens for asked in (short, long)]
    assert capacities[1] > 2 * capacities[0]
    latencies = [simulate(asked).summary.tpot_s.mean or 0.0 for asked in (short, long)]
    assert latencies[1] > latencies[0]


def test_ranks_under_a_scheduler_that_has_none_are_refused() -> None:
    asked = scenario(SMALL_MOE, "h100-sxm", layout={"data_parallel_size": 2}, engine={"preset": "orca"})
    with pytest.raises(InputError, match="data-parallel ranks under the scheduler of 'orca'"):
        simulate(asked)
