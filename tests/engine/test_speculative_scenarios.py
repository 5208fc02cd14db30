"""Speculative decoding as a user meets it: what is refused, what it takes, what a run reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sim import InputError, Scenario, simulate
from sim.assemble import assemble
from sim.result import Result
from sim.scenario.support import require_supported

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("speculative-*.yaml"))
EAGLE: dict[str, Any] = {"method": "eagle", "head_layers": 1, "num_speculative_tokens": 3, "acceptance_rate": 0.7}
DRAFT: dict[str, Any] = {"method": "draft_model", "num_speculative_tokens": 3, "acceptance_rate": 0.7}


def scenario(speculative: dict[str, Any] | None, model: str = "meta-llama/Llama-3.1-8B", **more: Any) -> Scenario:
    engine = {"max_model_len": 8192, "speculative": speculative, **more.pop("engine", {})}
    workload = {
        "num_requests": 60,
        "arrivals": {"process": "poisson", "rate_per_s": 6.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 900},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": 300},
        **more.pop("workload", {}),
    }
    return Scenario.from_dict({"model": model, "hardware": "h100-sxm", "engine": engine, "workload": workload, **more})


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"num_speculative_tokens": 0}, "num_speculative_tokens", "drafts nothing"),
    ({"head_layers": None}, "head_layers", "size of its head"),
    ({"acceptance_rate": None}, "acceptance_rate", "neither"),
    ({"accepted_tokens": [1, 2]}, "acceptance_rate", "given twice"),
    ({"acceptance_rate": 1.2}, "acceptance_rate", "from 0 to 1"),
    ({"acceptance_rate": [0.8, 0.7]}, "acceptance_rate", "2 rates for 3 positions"),
    ({"acceptance_rate": None, "accepted_tokens": [1, 4]}, "accepted_tokens", "4 accepted of 3"),
    ({"acceptance_concentration": 4.0, "acceptance_rate": 1.0}, "acceptance_concentration", "between 0 and 1"),
    ({"tree_depth": 4}, "tree_depth", "do not fit"),
    ({"window_size": 5}, "window_size", "no such thing"),
    ({"method": "ngram"}, "head_layers", "no such thing"),
    ({"method": "draft_model", "head_layers": None}, "draft_model", "required"),
    ({"method": "eagel"}, "method", "eagle"),
    ({"num_spec": 3}, "num_spec", "num_speculative_tokens"),
    ({"disable_by_batch_size": 1}, "disable_by_batch_size", "greater than or equal to 2"),
]


@pytest.mark.parametrize(("change", "field", "said"), REFUSED)
def test_bad_keys_are_refused_with_field_and_remedy(change: dict[str, Any], field: str, said: str) -> None:
    spec = {key: value for key, value in {**EAGLE, **change}.items() if value is not None}
    with pytest.raises(InputError) as refused:
        scenario(spec)
    assert refused.value.field == f"engine.speculative.{field}"
    assert said in str(refused.value)


MISFITS: list[tuple[dict[str, Any], str, str]] = [
    ({**DRAFT, "draft_model": "Qwen/Qwen3-0.6B"}, "draft_model", "vocabulary of 151936"),
    ({**DRAFT, "draft_model": "meta-llama/Llama-3.2-2B"}, "draft_model", "unknown model"),
    ({**DRAFT, "draft_model": "meta-llama/Llama-3.2-1B", "draft_tensor_parallel_size": 2}, "tensor", "2 GPUs"),
    ({**EAGLE, "head_layers": None, "draft_model": "meta-llama/Llama-3.2-1B"}, "draft_model", "2048 elements"),
    ({"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.8}, "method", "no multi-token-prediction"),
]


@pytest.mark.parametrize(("spec", "field", "said"), MISFITS)
def test_drafters_that_do_not_fit_the_model_are_refused(spec: dict[str, Any], field: str, said: str) -> None:
    given = {key: value for key, value in spec.items() if value is not None}
    with pytest.raises(InputError) as refused:
        assemble(scenario(given))
    assert field in refused.value.field
    assert said in str(refused.value)


def test_drafts_under_another_scheduler_are_refused() -> None:
    with pytest.raises(InputError, match=r"'sglang' is not supported yet"):
        require_supported(scenario(EAGLE, engine={"preset": "sglang"}))


def test_what_a_pool_cannot_do_is_refused_by_its_name() -> None:
    halves = {"replicas": 1, "layout": {**RANKS, "enable_dbo": True}}
    pools = {"prefill": {"replicas": 1, "layout": {}}, "decode": halves, "transfer_gb_per_s": 50}
    with pytest.raises(InputError, match="half-batches with speculation") as refused:
        require_supported(scenario(EAGLE, "deepseek-ai/DeepSeek-V2-Lite", cluster={"disaggregation": pools}))
    assert refused.value.field == "cluster.disaggregation.decode.layout.enable_dbo"


RANKS = {"data_parallel_size": 4, "enable_expert_parallel": True}
DRAFTERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ranks of a dense model": ("meta-llama/Llama-3.1-8B", EAGLE, {"data_parallel_size": 2}),
    "experts on ranks": ("deepseek-ai/DeepSeek-V2-Lite", EAGLE, RANKS),
    "experts in slices, from the prompt": (
        "deepseek-ai/DeepSeek-V2-Lite",
        {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5},
        {"data_parallel_size": 2},
    ),
    "stages": ("meta-llama/Llama-3.1-8B", EAGLE, {"pipeline_parallel_size": 2}),
    "ranks over stages": ("deepseek-ai/DeepSeek-V2-Lite", EAGLE, {**RANKS, "pipeline_parallel_size": 3}),
    "rows for guesses over stages": (
        "meta-llama/Llama-3.1-8B",
        {"method": "lookahead", "num_speculative_tokens": 4, "acceptance_rate": 0.5, "window_size": 5},
        {"pipeline_parallel_size": 4},
    ),
    "rows for guesses": (
        "deepseek-ai/DeepSeek-V2-Lite",
        {"method": "lookahead", "num_speculative_tokens": 4, "acceptance_rate": 0.5, "window_size": 5},
        RANKS,
    ),
}


@pytest.mark.parametrize("name", DRAFTERS)
def test_ranks_and_stages_verify_drafts(name: str) -> None:
    model, spec, layout = DRAFTERS[name]
    asked = scenario(spec, model, layout=layout)
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    for column in ("first_token_s", "finish_s"):
        np.testing.assert_allclose(jumped.requests[column], stepped.requests[column], rtol=1e-9)
    assert jumped.summary.drafting == stepped.summary.drafting
    assert jumped.summary.simulation.events < stepped.summary.simulation.events


def test_half_batches_with_drafts_are_refused() -> None:
    asked = scenario(EAGLE, "deepseek-ai/DeepSeek-V2-Lite", layout={**RANKS, "enable_dbo": True})
    with pytest.raises(InputError, match="half-batches with speculation"):
        simulate(asked)


def test_the_experts_of_a_prediction_layer_are_spread_as_the_models() -> None:
    """DeepSeek-V3 on 32 ranks: a layer of 256 experts would be 11 GB on each, not spread."""
    spec = {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.85}

    def weights(drafting: dict[str, Any] | None) -> int:
        layout = {"data_parallel_size": 32, "enable_expert_parallel": True}
        budget = assemble(scenario(drafting, "deepseek-ai/DeepSeek-V3", hardware="h200-sxm", layout=layout)).budget
        assert budget is not None
        return budget.weights_bytes

    assert 0 < weights(spec) - weights(None) < 2e9


def test_a_threshold_that_cuts_every_verify_step_is_refused() -> None:
    with pytest.raises(InputError, match="would cut the 4 tokens"):
        scenario(EAGLE, engine={"long_prefill_token_threshold": 3})


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_jumps_give_the_run_of_single_steps(path: Path) -> None:
    asked = Scenario.from_file(path).with_overrides(["workload.num_requests=60"])
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    for name in ("first_token_s", "finish_s", "scheduled_s", "ttft_s", "tpot_s"):
        np.testing.assert_allclose(jumped.requests[name], stepped.requests[name], rtol=1e-9, err_msg=name)
    assert jumped.summary.drafting == stepped.summary.drafting
    for metric in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        fast, slow = getattr(jumped.summary, metric), getattr(stepped.summary, metric)
        assert fast.model_dump() == pytest.approx(slow.model_dump(), rel=1e-9)
    assert jumped.summary.simulation.engine_steps == stepped.summary.simulation.engine_steps
    assert jumped.summary.simulation.events < stepped.summary.simulation.events


def test_every_method_has_an_example() -> None:
    shown = {yaml.safe_load(path.read_text())["engine"]["speculative"]["method"] for path in EXAMPLES}
    assert shown == {"draft_model", "eagle", "eagle3", "medusa", "mtp", "ngram", "lookahead"}


def test_the_drafter_takes_memory_from_the_cache() -> None:
    def blocks(spec: dict[str, Any] | None) -> int:
        budget = assemble(scenario(spec)).budget
        assert budget is not None
        return budget.num_gpu_blocks

    plain = blocks(None)
    assert blocks({"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}) == plain
    head, small = blocks(EAGLE), blocks({**DRAFT, "draft_model": "meta-llama/Llama-3.2-1B"})
    assert plain > head > small
    # one layer of 33 in every block, and its weights
    assert head * 33 / 32 < plain
    assert blocks({**EAGLE, "head_layers": 2}) < head


def test_a_run_reports_what_came_of_the_drafts() -> None:
    drafting = simulate(scenario({**EAGLE, "acceptance_rate": 1.0})).summary.drafting
    assert drafting is not None
    assert drafting.draft_tokens == 3 * drafting.verify_steps
    assert drafting.tokens_per_step == pytest.approx(4, abs=0.1)  # what lies past the end of an answer does not count
    assert simulate(scenario(None)).summary.drafting is None


def test_itl_counts_steps_and_tpot_counts_tokens() -> None:
    alone = {"num_requests": 30, "arrivals": {"process": "closed_loop", "concurrency": 1}}
    output = {"output_tokens": {"distribution": "constant", "value": 401}}
    summary = simulate(scenario(EAGLE, workload={**alone, **output})).summary
    assert summary.itl_s.mean is not None
    assert summary.tpot_s.mean is not None
    assert summary.drafting is not None
    assert summary.itl_s.mean / summary.tpot_s.mean == pytest.approx(summary.drafting.tokens_per_step, rel=0.01)
    expected = (1 - 0.7**4) / (1 - 0.7)
    assert summary.drafting.tokens_per_step == pytest.approx(expected, rel=0.03)


def test_a_seed_is_a_run_and_another_is_another() -> None:
    first, again, other = (simulate(scenario(EAGLE, seed=seed)) for seed in (1, 1, 2))

    def finishes(result: Result) -> list[float]:
        return list(result.requests["finish_s"])

    assert finishes(first) == finishes(again)
    assert finishes(first) != finishes(other)


def test_drafting_stops_at_a_batch_size_and_starts_again() -> None:
    crowd = {"workload": {"num_requests": 200, "arrivals": {"process": "poisson", "rate_per_s": 30.0}}}
    always, limited = (simulate(scenario({**EAGLE, "disable_by_batch_size": limit}, **crowd)) for limit in (None, 16))
    steps = limited.steps
    crowded = steps[(steps["running"] > 16 + steps["prefill_seqs"]) & (steps["decode_seqs"] > 0)]
    assert len(crowded) > 20
    assert (crowded["draft_tokens"] == 0).all()
    alone = steps[(steps["running"] < 16) & (steps["prefill_seqs"] == 0)]
    assert (alone["draft_tokens"] == 3 * alone["decode_seqs"]).mean() > 0.9
    assert limited.summary.drafting is not None
    assert always.summary.drafting is not None
    assert 0 < limited.summary.drafting.draft_tokens < always.summary.drafting.draft_tokens


def test_drafts_do_not_change_who_is_served() -> None:
    plain, drafted = simulate(scenario(None)), simulate(scenario(EAGLE))
    assert drafted.summary.requests == plain.summary.requests
    assert list(drafted.requests["output_tokens"]) == list(plain.requests["output_tokens"])


def test_a_scenario_with_drafts_reads_back_the_same() -> None:
    for path in EXAMPLES:
        asked = Scenario.from_file(path)
        again = Scenario.from_dict(yaml.safe_load(asked.to_yaml()))
        assert again.scenario_hash == asked.scenario_hash
