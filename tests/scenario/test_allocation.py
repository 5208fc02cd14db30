"""How memory is given out, as the scenario says it: what follows from it, and what it cannot go with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import InputError, Scenario, simulate
from sim.engine.policies import POLICIES, add_policy
from sim.engine.vllm import VllmScheduler
from sim.models.waste import expected_waste
from sim.scenario import EngineSpec
from sim.scenario.presets import PRESETS


def spec(**keys: Any) -> EngineSpec:
    return EngineSpec.parse(keys, "engine")


def scenario(layout: dict[str, int] | None = None, **keys: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": layout or {},
            "engine": keys,
            "workload": {
                "num_requests": 20,
                "arrivals": {"process": "constant", "rate_per_s": 10.0},
                "prompt_tokens": {"distribution": "constant", "value": 100},
                "output_tokens": {"distribution": "constant", "value": 20},
            },
        }
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_blocks_of_one_token_are_called_tokens(preset: str) -> None:
    one, many = spec(preset=preset, block_size=1), spec(preset=preset, block_size=16)
    assert (one.kv_allocation, many.kv_allocation) == ("token", "paged")
    assert spec(preset=preset, kv_allocation="token").block_size == 1


def test_tokens_are_pages_of_one_token() -> None:
    token, paged = (
        simulate(scenario(**keys)).summary
        for keys in ({"kv_allocation": "token"}, {"kv_allocation": "paged", "block_size": 1})
    )
    assert token.kv == paged.kv
    assert token.e2e_s == paged.e2e_s
    assert token.kv.waste_fraction == pytest.approx(0, abs=1e-12)


def test_one_request_at_a_time_wastes_what_the_closed_form_says() -> None:
    keys = {"kv_allocation": "contiguous", "enable_prefix_caching": False, "max_model_len": 500, "max_num_seqs": 1}
    steps = {"step_time": {"base_us": 100}, "num_gpu_blocks_override": 10_000}
    found = simulate(scenario(**keys, **steps)).summary.kv.waste_fraction
    assert found == pytest.approx(expected_waste([(100, 20, 1.0)], 1, 500).contiguous_fraction, abs=1e-3)


def test_contiguous_memory_is_counted_in_tokens() -> None:
    given = {"preset": "vllm", "kv_allocation": "contiguous", "enable_prefix_caching": False}
    assert spec(**given).block_size == 1
    assert scenario(**given).resolved().engine.kv_reservation is None


@pytest.mark.parametrize(
    ("keys", "field", "reason"),
    [
        ({"kv_allocation": "token", "block_size": 16}, "block_size", "gives out single tokens"),
        ({"kv_allocation": "contiguous", "block_size": 16}, "block_size", "gives out single tokens"),
        ({"kv_allocation": "contiguous"}, "kv_allocation", "with prefix caching"),
        ({"kv_allocation": "contiguous", "preset": "sglang"}, "kv_allocation", "scheduler of sglang"),
        ({"kv_allocation": "contiguous", "preset": "tgi"}, "kv_allocation", "scheduler of tgi"),
        ({"kv_allocation": "contiguous", "preset": "tensorrt-llm"}, "kv_allocation", "scheduler of tensorrt-llm"),
        ({"kv_reservation": "max"}, "kv_reservation", "reserves nothing"),
        ({"kv_reservation": "max", "preset": "sglang"}, "kv_reservation", "is a knob of vllm, orca and static"),
        (
            {"kv_allocation": "contiguous", "enable_prefix_caching": False, "preemption": "swap"},
            "preemption",
            "never preempted",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(keys: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as problem:
        spec(**keys)
    assert problem.value.field == f"engine.{field}"
    assert problem.value.remedy


@pytest.mark.parametrize("preset", ["vllm", "orca", "static"])
def test_a_longest_length_that_does_not_fit_is_refused(preset: str) -> None:
    keys = {"preset": preset, "kv_allocation": "contiguous", "num_gpu_blocks_override": 5000}
    if preset == "vllm":
        keys["enable_prefix_caching"] = False
    with pytest.raises(InputError, match="131072 tokens are reserved for every request, and the KV cache holds 4999"):
        simulate(scenario(**keys))
    assert simulate(scenario(**keys, max_model_len=4096)).summary.requests.completed == 20
    assert simulate(scenario(**keys, kv_reservation="oracle")).summary.requests.completed == 20


def test_orca_may_reserve_the_longest_length_in_any_place() -> None:
    summary = simulate(scenario(preset="orca", kv_reservation="max", max_model_len=1024)).summary
    assert summary.requests.completed == 20
    assert summary.kv.external_fragmentation == 0
    assert summary.kv.internal_fragmentation == pytest.approx((1024 - 119) / 1024, abs=1e-3)


@pytest.mark.parametrize("layout", [{"pipeline_parallel_size": 2}, {"data_parallel_size": 2}])
def test_contiguous_memory_spreads_over_stages_and_ranks(layout: dict[str, int]) -> None:
    keys = {"kv_allocation": "contiguous", "enable_prefix_caching": False, "kv_reservation": "request"}
    jumped, stepped = (simulate(scenario(layout, **keys), exact=exact) for exact in (False, True))
    assert jumped.summary.requests.completed == 20
    np.testing.assert_allclose(jumped.requests["finish_s"], stepped.requests["finish_s"], rtol=1e-9)


def test_a_policy_of_your_own_that_takes_blocks_as_it_goes_has_no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(VllmScheduler):
        """vLLM by another name."""

    for table in (POLICIES, PRESETS):
        monkeypatch.setitem(table, "mine", None)  # taken away again after the test
    add_policy("mine", Mine, enable_prefix_caching=False)
    assert simulate(scenario(preset="mine")).summary.requests.completed == 20
    with pytest.raises(InputError, match="the policy of 'mine' reserves nothing"):
        simulate(scenario(preset="mine", kv_allocation="contiguous", max_model_len=1024))
