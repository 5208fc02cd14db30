"""Stages of ranks that share experts: their parts add up to the whole, and their times to what a pipeline does."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.assemble import assemble, served_by
from sim.cost.joint import JointModel
from sim.cost.joint_pipeline import JointPipeline, joint_pipeline_model
from sim.cost.shape import StepShape

RANKS = {"data_parallel_size": 4, "enable_expert_parallel": True}
PREFILL = StepShape(0, 0, 0, 1, 2048, 2_098_176, 2_098_176, 2048, 2048, 1)


def scenario(
    n: int = 1, prompt: int = 512, output: int = 2, engine: dict[str, Any] | None = None, **layout: Any
) -> Any:
    return Scenario.from_dict(
        {
            "model": "deepseek-ai/DeepSeek-V2-Lite",
            "hardware": "h100-sxm",
            "layout": {**RANKS, **layout},
            "engine": {"max_model_len": 8192, "enable_prefix_caching": False, **(engine or {})},
            "workload": {
                "num_requests": n,
                "arrivals": {"process": "constant", "rate_per_s": 1e6},
                "prompt_tokens": {"distribution": "constant", "value": prompt},
                "output_tokens": {"distribution": "constant", "value": output},
            },
        }
    )


def pipeline(asked: Scenario) -> JointPipeline:
    timer = assemble(asked).timer
    assert isinstance(timer, JointPipeline)
    return timer


def decodes(seqs: int, context: int) -> StepShape:
    return StepShape(seqs, seqs * context, seqs * context, sampled_seqs=seqs)


@pytest.mark.parametrize("shape", [decodes(64, 1000), PREFILL])
@pytest.mark.parametrize("pp", [2, 3])
def test_stages_add_up_to_the_whole_model(shape: StepShape, pp: int) -> None:
    whole = assemble(scenario()).timer
    assert isinstance(whole, JointModel)
    parts, expected = (
        pipeline(scenario(pipeline_parallel_size=pp, gpus_per_node=12)).breakdown(shape),
        whole.breakdown(shape),
    )
    for name in set(expected) - {"host"}:
        assert parts[name] == pytest.approx(expected[name]), name


def test_one_rank_that_prefills_holds_up_all_in_every_stage() -> None:
    timer = pipeline(scenario(pipeline_parallel_size=3))
    calm, held_up = (timer.joint_stages([decodes(64, 2000)] * 3 + [last]) for last in (decodes(64, 2000), PREFILL))
    assert all(slow > 1.5 * fast for slow, fast in zip(held_up, calm, strict=True))
    assert sum(timer.joint_hops([PREFILL, decodes(1, 1)])) == sum(timer.hops(PREFILL))


@pytest.mark.parametrize("seed", range(12))
def test_runs_of_decodes_are_the_rounds_one_by_one(seed: int) -> None:
    rng = Random(seed)
    timer = pipeline(scenario(pipeline_parallel_size=rng.choice([2, 3])))
    shapes = [decodes(rng.choice([1, 8, 40, 200]), rng.randint(10, 6000)) for _ in range(rng.randint(1, 4))]
    run = timer.joint_run(shapes, [0] * len(shapes))
    for step in range(int(min(run.steps, 200))):
        grown = [
            StepShape(s.decode_seqs, s.decode_context + step * s.decode_seqs, 0, sampled_seqs=s.sampled_seqs)
            for s in shapes
        ]
        assert run.first + step * run.increment == pytest.approx(timer.joint(grown), rel=1e-9)


@pytest.mark.parametrize("exact", [True, False])
def test_one_request_takes_the_sum_of_the_stages(exact: bool) -> None:
    asked = scenario(pipeline_parallel_size=3)
    timer, result = pipeline(asked), simulate(asked, exact=exact)
    prefill = StepShape(0, 0, 0, 1, 512, 512 * 513 // 2, 512 * 513 // 2, 512, 512, 1)
    for shape, duration in zip((prefill, decodes(1, 513)), result.steps["duration_s"], strict=True):
        expected = timer.joint_host([shape]) + sum(timer.joint_stages([shape])) + sum(timer.joint_hops([shape]))
        assert duration == pytest.approx(expected, rel=1e-12)


def test_a_full_pipeline_runs_at_the_pace_of_its_slowest_stage() -> None:
    """Three batches on each of four ranks; an uneven deal, so that the slow stage has more to do than hops can hide."""
    asked = scenario(
        n=96,
        output=600,
        engine={"max_num_batched_tokens": 4096, "max_num_seqs": 24},
        pipeline_parallel_size=3,
        pp_layer_partition=[21, 3, 3],
    )
    timer, steps = pipeline(asked), simulate(asked, exact=True).steps
    rounds = [rows for _, rows in steps.groupby("start_s") if len(rows) == 4 and not rows["prefill_seqs"].any()]
    middle = rounds[len(rounds) // 3 : len(rounds) // 2]
    ends = np.sort([(rows["start_s"] + rows["duration_s"]).max() for rows in middle])
    slowest = [
        max(timer.joint_stages([decodes(row.decode_seqs, row.decode_context / row.decode_seqs) for row in batches]))
        for batches in (list(rows.itertuples()) for rows in middle)
    ]
    assert np.diff(ends).mean() == pytest.approx(np.mean(slowest), rel=0.01)


def test_what_lies_between_nodes_depends_on_who_lies_beside_whom() -> None:
    """32 GPUs on four nodes: either a rank's stages share a node, or all ranks of a stage lie on as few as can be."""
    asked = scenario(data_parallel_size=16, pipeline_parallel_size=2)
    served = served_by(asked)
    model = (served.arch, served.weights, served.kv, served.hardware, asked.layout, served.overheads)
    by_rank, by_stage = (joint_pipeline_model(*model, rank_by_rank=way) for way in (True, False))
    assert by_rank.hops(PREFILL)[0] < by_stage.hops(PREFILL)[0]
    shapes = [PREFILL] * 16
    assert sum(by_rank.joint_stages(shapes)) > sum(by_stage.joint_stages(shapes))
    assert by_rank.dummies_block
    assert not by_stage.dummies_block


def test_an_engine_within_a_node_is_the_same_whoever_lies_beside_whom() -> None:
    asked = scenario(pipeline_parallel_size=2)
    served = served_by(asked)
    model = (served.arch, served.weights, served.kv, served.hardware, asked.layout, served.overheads)
    by_rank, by_stage = (joint_pipeline_model(*model, rank_by_rank=way) for way in (True, False))
    assert by_rank.joint([PREFILL] * 4) == by_stage.joint([PREFILL] * 4)


def test_one_gpu_a_node_is_reached_over_the_network_alone() -> None:
    asked = scenario(data_parallel_size=8, pipeline_parallel_size=9)
    assert pipeline(asked).joint([decodes(8, 100)]) > 0
