"""Slower and faster machines: one factor on the step, whatever steps are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hardware_profiles.profile import StepTimeError
from sim import Scenario
from sim.assemble import assemble
from sim.cost.shape import StepShape

SHAPES = [
    StepShape(48, 48_000, 48_000, sampled_seqs=48),
    StepShape(0, 0, 0, 2, 4000, 4_002_000, 4_002_000, 4000, 4000, 2),
    StepShape(32, 9000, 9000, 1, 1000, 500_500, 500_500, 1000, 1000, 33),
]
EAGLE = {"method": "eagle", "head_layers": 1, "num_speculative_tokens": 3, "acceptance_rate": 0.7}
KINDS: dict[str, dict[str, Any]] = {
    "one GPU": {},
    "drafts": {"engine": {"max_model_len": 8192, "speculative": EAGLE}},
    "pipeline": {"layout": {"pipeline_parallel_size": 2}},
    "ranks together": {
        "model": "deepseek-ai/DeepSeek-V3",
        "hardware": "h200-sxm",
        "layout": {"data_parallel_size": 8, "enable_expert_parallel": True},
    },
    "stages of ranks": {
        "model": "deepseek-ai/DeepSeek-V3",
        "hardware": "h200-sxm",
        "layout": {"data_parallel_size": 8, "pipeline_parallel_size": 2, "enable_expert_parallel": True},
    },
}


def scenario(**changes: Any) -> Scenario:
    asked = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"max_model_len": 8192},
        "workload": {
            "num_requests": 1,
            "arrivals": {"process": "constant", "rate_per_s": 1},
            "prompt_tokens": {"distribution": "constant", "value": 1},
            "output_tokens": {"distribution": "constant", "value": 1},
        },
    }
    return Scenario.from_dict({**asked, **changes})


def slower(error: StepTimeError) -> float:
    return 1.5


@pytest.mark.parametrize("kind", KINDS)
def test_every_time_of_a_step_is_stretched_alike(kind: str) -> None:
    plain, paced = (assemble(scenario(**KINDS[kind]), *pace).timer for pace in ((), (slower,)))
    assert paced.window == plain.window
    for shape in SHAPES:
        assert paced.step(shape) == pytest.approx(1.5 * plain.step(shape), rel=1e-12)
        assert sum(paced.breakdown(shape).values()) == pytest.approx(1.5 * sum(plain.breakdown(shape).values()))
    first, increment, steps = plain.decode_run(SHAPES[0], 48)
    assert paced.decode_run(SHAPES[0], 48) == (1.5 * first, 1.5 * increment, steps)
    context = np.arange(48_000, 60_000, 4800)
    expected = 1.5 * plain.decode_times(SHAPES[0], context, context)
    np.testing.assert_allclose(paced.decode_times(SHAPES[0], context, context), expected)


def test_ranks_and_stages_keep_what_is_theirs() -> None:
    plain, paced = (assemble(scenario(**KINDS["ranks together"]), *pace).timer for pace in ((), (slower,)))
    uneven = [SHAPES[0], SHAPES[2]]
    assert paced.joint(uneven) == pytest.approx(1.5 * plain.joint(uneven))  # type: ignore[attr-defined]
    lines = [timer.joint_run([SHAPES[0]], [48]) for timer in (plain, paced)]  # type: ignore[attr-defined]
    assert lines[1] == (1.5 * lines[0].first, 1.5 * lines[0].increment, lines[0].steps)
    plain, paced = (assemble(scenario(**KINDS["pipeline"]), *pace).timer for pace in ((), (slower,)))
    for part in ("stages", "hops", "host"):
        found, expected = (np.asarray(getattr(timer, part)(SHAPES[2])) for timer in (paced, plain))
        np.testing.assert_allclose(found, 1.5 * expected)
    plain, paced = (assemble(scenario(**KINDS["stages of ranks"]), *pace).timer for pace in ((), (slower,)))
    assert paced.dummies_block == plain.dummies_block  # type: ignore[attr-defined]
    assert paced.joint(uneven) == pytest.approx(1.5 * plain.joint(uneven))  # type: ignore[attr-defined]
    for part in ("joint_stages", "joint_hops", "joint_host"):
        found, expected = (np.asarray(getattr(timer, part)(uneven)) for timer in (paced, plain))
        np.testing.assert_allclose(found, 1.5 * expected)


def test_given_step_times_are_exact() -> None:
    given = scenario(engine={"step_time": {"base_us": 1000, "per_token_us": 10, "per_seq_us": 5}})
    assert assemble(given, slower).timer.step(SHAPES[0]) == assemble(given).timer.step(SHAPES[0])
