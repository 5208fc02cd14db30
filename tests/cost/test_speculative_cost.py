"""Drafting and verifying in seconds: what they are made of, and what a published run measured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.assemble import cost_model, served_by
from sim.cost.pipeline import PipelineTimer
from sim.cost.shape import StepShape
from sim.cost.step import CostModel
from sim.scenario import Scenario

LLAMA_8B = "meta-llama/Llama-3.1-8B"
LLAMA_70B = "meta-llama/Llama-3.1-70B"


def model(
    speculative: dict[str, Any] | None, name: str = LLAMA_8B, tensor: int = 1, stages: int = 1, **engine: Any
) -> Any:
    scenario = Scenario.from_dict(
        {
            "model": name,
            "hardware": "h100-sxm",
            "layout": {"tensor_parallel_size": tensor, "pipeline_parallel_size": stages},
            "engine": {"speculative": speculative, **engine},
            "workload": {
                "num_requests": 1,
                "arrivals": {"process": "constant", "rate_per_s": 1.0},
                "prompt_tokens": {"distribution": "constant", "value": 1},
                "output_tokens": {"distribution": "constant", "value": 1},
            },
        }
    )
    return cost_model(scenario, served_by(scenario))


def drafts(method: str, k: int, **more: Any) -> dict[str, Any]:
    return {"method": method, "num_speculative_tokens": k, "acceptance_rate": 0.7, **more}


def verify(seqs: int, context: int, k: int) -> StepShape:
    total = seqs * (context + k)
    return StepShape(seqs, total, total, sampled_seqs=seqs, draft_tokens=seqs * k)


# Llama-3.1-8B-Instruct with its EAGLE head on one H100, MT-Bench, one request at a time: drafts -> (mean acceptance
# length, TPOT in ms), https://github.com/vllm-project/vllm/issues/20780; 7.07 ms without. That release schedules
# synchronously, so its steps are longer with drafts and without; what drafts gain is what can be compared.
MEASURED_EAGLE = {
    2: (2.1, 4.37),
    3: (2.29, 4.29),
    4: (2.39, 4.48),
    5: (2.43, 4.71),
    6: (2.45, 4.94),
    7: (2.47, 5.2),
}
MEASURED_PLAIN_MS = 7.07


@pytest.mark.parametrize("k", MEASURED_EAGLE)
def test_an_eagle_head_gains_what_was_measured(k: int) -> None:
    length, tpot_ms = MEASURED_EAGLE[k]
    plain_s = model(None, sampling="greedy").step(verify(1, 350, 0))
    step_s = model(drafts("eagle", k, head_layers=1), sampling="greedy").step(verify(1, 350, k))
    assert plain_s * length / step_s == pytest.approx(MEASURED_PLAIN_MS / tpot_ms, rel=0.06)


def test_each_further_draft_costs_what_was_measured() -> None:
    steps = {k: length * tpot for k, (length, tpot) in MEASURED_EAGLE.items()}
    measured_ms = (steps[7] - steps[2]) / 5
    few, many = (model(drafts("eagle", k, head_layers=1)).step(verify(1, 350, k)) for k in (2, 7))
    assert (many - few) / 5 * 1e3 == pytest.approx(measured_ms, rel=0.1)


METHODS: list[dict[str, Any]] = [
    drafts("eagle", 4, head_layers=1),
    drafts("eagle", 12, head_layers=1, tree_depth=4),
    drafts("eagle3", 4, head_layers=1),
    drafts("draft_model", 3, draft_model="meta-llama/Llama-3.2-1B"),
    drafts("medusa", 4),
    drafts("ngram", 3),
    drafts("lookahead", 4, window_size=5),
]


@pytest.mark.parametrize("speculative", METHODS, ids=lambda spec: f"{spec['method']}-{spec['num_speculative_tokens']}")
@pytest.mark.parametrize("seqs", [1, 7, 64])
def test_many_contexts_at_once_cost_what_each_costs(speculative: dict[str, Any], seqs: int) -> None:
    cost, k = model(speculative), int(speculative["num_speculative_tokens"])
    contexts = np.sort(np.random.default_rng(0).integers(20, 4000, 40))
    shapes = [verify(seqs, int(context), k) for context in contexts]
    totals = np.array([shape.decode_context for shape in shapes])
    np.testing.assert_allclose(
        cost.decode_times(shapes[0], totals, totals), [cost.step(shape) for shape in shapes], rtol=1e-12
    )


@pytest.mark.parametrize("speculative", METHODS, ids=lambda spec: f"{spec['method']}-{spec['num_speculative_tokens']}")
def test_the_parts_sum_to_the_step(speculative: dict[str, Any]) -> None:
    cost = model(speculative)
    shape = verify(5, 700, int(speculative["num_speculative_tokens"]))
    shape.add_prefill(300, 0, None)
    shape.sampled_seqs += 1
    assert sum(cost.breakdown(shape).values()) == pytest.approx(cost.step(shape), rel=1e-12)


def test_verifying_is_free_while_weights_are_read_and_dear_when_compute_is_bound() -> None:
    plain, drafted = model(None, LLAMA_70B, 4), model(drafts("ngram", 4), LLAMA_70B, 4)

    def gpu_s(cost: CostModel, shape: StepShape) -> float:
        parts = cost.breakdown(shape)
        return sum(parts.values()) - parts["host"]

    few = gpu_s(drafted, verify(1, 500, 4)) / gpu_s(plain, verify(1, 500, 0))
    many = gpu_s(drafted, verify(512, 500, 4)) / gpu_s(plain, verify(512, 500, 0))
    assert few < 1.1
    assert many > 2.5


def test_a_step_that_decodes_without_drafts_drafts_nothing() -> None:
    plain, drafted = model(None), model(drafts("eagle", 4, head_layers=1))
    assert drafted.step(verify(8, 500, 0)) == plain.step(verify(8, 500, 0))
    prefill = StepShape(sampled_seqs=1)
    prefill.add_prefill(500, 0, None)
    assert drafted.step(prefill) > plain.step(prefill)  # the head reads the prompt too, and proposes


def test_a_larger_drafter_costs_more() -> None:
    shape = verify(1, 500, 4)
    drafting = [
        model(spec, LLAMA_70B, 4).breakdown(shape)["drafting"]
        for spec in (
            drafts("eagle3", 4, head_layers=1),
            drafts("eagle", 4, head_layers=1),
            drafts("draft_model", 4, draft_model="meta-llama/Llama-3.2-1B"),
            drafts("draft_model", 4, draft_model=LLAMA_8B),
        )
    ]
    assert drafting == sorted(drafting)


def test_a_tree_runs_fewer_passes_than_a_chain_of_as_many_drafts() -> None:
    chain, tree = (model(drafts("eagle", 12, head_layers=1, tree_depth=depth)) for depth in (12, 4))
    shape = verify(1, 500, 12)
    assert tree.breakdown(shape)["drafting"] < 0.5 * chain.breakdown(shape)["drafting"]


def test_lookahead_decoding_computes_its_guesses_in_the_step() -> None:
    small, large = (model(drafts("lookahead", 4, window_size=size)) for size in (2, 15))
    shape = verify(16, 500, 4)
    assert large.step(shape) > small.step(shape) > model(drafts("ngram", 4)).step(verify(16, 500, 0))


def test_latent_attention_computes_for_every_draft() -> None:
    attention = {}
    for tensor in (1, 8):  # 128 query heads on a GPU, or 16
        cost = model(drafts("mtp", 2), "deepseek-ai/DeepSeek-V3", tensor)
        single, triple = (cost.breakdown(verify(64, 4000, k))["decode_attention"] for k in (0, 2))
        attention[tensor] = triple / single
    assert attention[1] > 1.6 > 1.2 > attention[8] >= 1


@pytest.mark.parametrize("method", ["eagle", "lookahead"])
def test_the_last_stage_of_a_pipeline_drafts(method: str) -> None:
    """Stages add up to the whole model; what drafting takes is the last one's."""
    spec = drafts("eagle", 3, head_layers=1) if method == "eagle" else drafts("lookahead", 3, window_size=5)
    whole, parts = model(spec), model(spec, stages=4)
    assert isinstance(parts, PipelineTimer)
    shape = verify(32, 1000, 3)
    expected, found = whole.breakdown(shape), parts.breakdown(shape)
    for name in set(expected) - {"host"}:
        assert found[name] == pytest.approx(expected[name]), name
    drafting = [stage.breakdown(shape)["drafting"] for stage in parts._stages]
    assert [seconds > 0 for seconds in drafting] == [False, False, False, method == "eagle"]
    assert parts.decode_times(shape, np.array([shape.decode_context]), np.array([0]))[0] == pytest.approx(
        parts.step(shape)
    )
