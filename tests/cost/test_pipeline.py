"""Stages of a real model: their parts add up to the whole, and their times to what a pipeline does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.assemble import assemble, served_by
from sim.cost import CostModel
from sim.cost.pipeline import PipelineTimer, activation_hop
from sim.cost.shape import StepShape
from sim.errors import InputError
from sim.models.loader import load_model
from sim.models.sharding import stages

SHAPES = [
    StepShape(64, 64_000, 64_000, sampled_seqs=64),
    StepShape(0, 0, 0, 2, 4000, 4_002_000, 4_002_000, 4000, 4000, 2),
    StepShape(32, 9000, 9000, 1, 1000, 500_500, 500_500, 1000, 1000, 33),
]


def scenario(n: int = 40, prompt: int = 512, output: int = 200, **layout: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-70B",
            "hardware": "h100-sxm",
            "layout": {"tensor_parallel_size": 2, **layout},
            "engine": {"max_model_len": 8192, "max_num_batched_tokens": 2048, "enable_prefix_caching": False},
            "workload": {
                "num_requests": n,
                "arrivals": {"process": "constant", "rate_per_s": 1e6},
                "prompt_tokens": {"distribution": "constant", "value": prompt},
                "output_tokens": {"distribution": "constant", "value": output},
            },
        }
    )


def pipeline(asked: Scenario) -> PipelineTimer:
    timer = assemble(asked).timer
    assert isinstance(timer, PipelineTimer)
    return timer


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pp", [2, 4, 8])
def test_stages_add_up_to_the_whole_model(shape: StepShape, pp: int) -> None:
    whole = assemble(scenario()).timer
    assert isinstance(whole, CostModel)
    parts = pipeline(scenario(pipeline_parallel_size=pp)).breakdown(shape)
    expected = whole.breakdown(shape)
    for name in set(expected) - {"host"}:
        assert parts[name] == pytest.approx(expected[name]), name


def test_only_the_ends_embed_and_sample() -> None:
    shape = SHAPES[0]
    first, *middle, last = (stage.breakdown(shape) for stage in pipeline(scenario(pipeline_parallel_size=4))._stages)
    assert "embedding" in first
    assert "lm_head" in last
    assert all("embedding" not in part and "lm_head" not in part for part in middle)


def test_layers_are_dealt_as_the_engine_does_or_as_asked() -> None:
    arch = load_model("meta-llama/Llama-3.1-70B")

    def sizes(**layout: Any) -> list[int]:
        parts = stages(arch, scenario(**layout).layout)
        return [sum(run.count for run in part.runs) for part in parts]

    assert sizes(pipeline_parallel_size=3) == [27, 27, 26]
    assert sizes(pipeline_parallel_size=4, pp_layer_partition=[10, 30, 30, 10]) == [10, 30, 30, 10]


@pytest.mark.parametrize("partition", [[40, 40, 0], [40, 41], [40, 30], [80]])
def test_a_partition_that_does_not_deal_all_layers_is_refused(partition: list[int]) -> None:
    asked = scenario(pipeline_parallel_size=2, pp_layer_partition=partition)
    with pytest.raises(InputError, match=r"for example \[40, 40\]"):
        served_by(asked)


def test_one_request_takes_the_sum_of_the_stages() -> None:
    asked = scenario(n=1, prompt=512, output=2, pipeline_parallel_size=4)
    timer, result = pipeline(asked), simulate(asked)
    prefill = StepShape(0, 0, 0, 1, 512, 512 * 513 // 2, 512 * 513 // 2, 512, 512, 1)
    decode = StepShape(1, 513, 513, sampled_seqs=1)
    for shape, duration in zip((prefill, decode), result.steps["duration_s"], strict=True):
        expected = timer.host(shape) + sum(timer.stages(shape)) + sum(timer.hops(shape))
        assert duration == pytest.approx(expected, rel=1e-12)


def test_a_full_pipeline_runs_at_the_pace_of_its_slowest_stage() -> None:
    """An uneven deal, so that the slowest stage has more to do than the hops can hide."""
    asked = scenario(n=48, output=600, pipeline_parallel_size=4, pp_layer_partition=[10, 50, 10, 10])
    steps = simulate(asked).steps
    decodes = steps[steps["prefill_seqs"] == 0]
    middle = decodes.iloc[len(decodes) // 3 : len(decodes) // 2]
    ends = np.sort(middle["start_s"] + middle["duration_s"])
    timer = pipeline(asked)
    slowest = []
    for row in middle.itertuples():
        shape = StepShape(row.decode_seqs, row.decode_context, row.decode_context, sampled_seqs=row.decode_seqs)
        slowest.append(max(timer.stages(shape)))
    assert np.diff(ends).mean() == pytest.approx(np.mean(slowest), rel=0.01)


def test_hops_grow_with_tokens_and_with_the_distance() -> None:
    served = served_by(scenario())
    layout = scenario().layout
    near, far = (activation_hop(served.hardware, 8192, layout, between) for between in (False, True))
    assert near(1) < near(1000) < far(1000)


def test_exact_gives_the_same_requests() -> None:
    asked = scenario(n=30, pipeline_parallel_size=2)
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    np.testing.assert_allclose(jumped.requests["finish_s"], stepped.requests["finish_s"], rtol=1e-9)
    assert jumped.summary.utilization.busy_fraction is not None
    assert jumped.summary.utilization.busy_fraction <= 1.0 + 1e-9
