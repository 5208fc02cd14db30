"""Layouts of real models with data-parallel ranks and experts: equality, memory, and a production day."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from sim import Scenario, simulate
from sim.assemble import assemble
from sim.cost.joint import JointModel
from sim.cost.shape import StepShape
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


# DeepSeek's account of a day of serving V3 and R1 (github.com/deepseek-ai/open-infra-index, day 6, 27 February 2025):
# per node of 8 H800, 73,700 input tokens a second while prefilling, 56.3 % of them from the cache, and 14,800 output
# tokens a second while decoding, at 4,989 tokens of context on average and 20 to 22 output tokens a second and request.
INPUT_PER_NODE_S, OUTPUT_PER_NODE_S = 73_700, 14_800
CONTEXT, HIT_SHARE = 4989, 0.563
SECONDS_PER_TOKEN = 1 / 21


def production(ranks: int, hardware: str = "h800", **layout: Any) -> JointModel:
    """32 redundant experts and moderately skewed load levelled by copies: assumed (docs/layouts.md)."""
    spread = {
        "data_parallel_size": ranks,
        "enable_expert_parallel": True,
        "expert_load": {"distribution": "power_law", "exponent": 0.5},
        "enable_eplb": True,
        "num_redundant_experts": 32,
        **layout,
    }
    engine = {"max_model_len": 16_384, "max_num_batched_tokens": 16_384 if ranks == 32 else 256}
    timer = assemble(scenario("deepseek-ai/DeepSeek-V3", hardware, layout=spread, engine=engine)).timer
    assert isinstance(timer, JointModel)
    return timer


def decode_per_node_s(timer: JointModel, batch: int, context: int) -> float:
    return 8 * batch / timer.step(StepShape(batch, batch * context, batch * context, sampled_seqs=batch))


def prefill_per_node_s(timer: JointModel, new: int, cached: int) -> float:
    """New tokens of prompts, as many as 16,384 new tokens a rank hold."""
    shape = StepShape()
    for _ in range(16_384 // new):
        shape.add_prefill(new, cached, None)
    shape.sampled_seqs = shape.prefill_seqs
    return 8 * shape.prefill_tokens / timer.step(shape)


def test_decoding_of_a_production_day() -> None:
    """EP144 at the batch that decodes 21 tokens a second and request."""
    timer = production(144, all2all_backend="deepep_low_latency")
    batch = next(n for n in range(200, 0, -1) if decode_per_node_s(timer, n, CONTEXT) / 8 / n >= 1 / SECONDS_PER_TOKEN)
    assert decode_per_node_s(timer, batch, CONTEXT) == pytest.approx(OUTPUT_PER_NODE_S, rel=0.25)


def test_prefill_of_a_production_day_was_not_at_its_limit() -> None:
    """EP32 on prompts of the average context in a pool that is always full: more than the mean of the day."""
    new = round(CONTEXT * (1 - HIT_SHARE))
    whole, halves = (
        prefill_per_node_s(
            production(32, all2all_backend="deepep_high_throughput", enable_dbo=split), new, CONTEXT - new
        )
        / (1 - HIT_SHARE)
        for split in (False, True)
    )
    assert INPUT_PER_NODE_S < whole < 1.35 * INPUT_PER_NODE_S
    assert whole < halves < 2 * INPUT_PER_NODE_S


def test_prefill_under_full_load_lies_between_whole_and_half_batches() -> None:
    """SGLang on four nodes of 8 H100, prompts of 4,096: 50.3k a second and node (lmsys.org, 5 May 2025)."""
    whole, halves = (
        prefill_per_node_s(
            production(32, "h100-sxm", all2all_backend="deepep_high_throughput", enable_dbo=split), 4096, 0
        )
        for split in (False, True)
    )
    assert whole == pytest.approx(50_300, rel=0.15)
    assert whole < 50_300 < halves < 1.45 * 50_300


@pytest.mark.parametrize("split", [False, True])
def test_decoding_under_full_load(split: bool) -> None:
    """SGLang on nine nodes of 8 H100, 256 requests a GPU with prompts of 2,000: 22.3k a second and node (as above)."""
    timer = production(72, "h100-sxm", all2all_backend="deepep_low_latency", enable_dbo=split)
    assert decode_per_node_s(timer, 256, 2050) == pytest.approx(22_300, rel=0.25)


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
