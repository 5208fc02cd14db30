"""Prefill and decode apart, as scenarios."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from reports.sweep_plots import short_key
from reports.terminal import print_summary
from sim import Scenario, simulate
from sim.errors import InputError
from sim.scenario.pools import gpus_of

WORKLOAD = {
    "num_requests": 200,
    "arrivals": {"process": "poisson", "rate_per_s": 8.0},
    "prompt_tokens": {"distribution": "lognormal", "mean": 1500, "cv": 0.7, "min": 16, "max": 6000},
    "output_tokens": {"distribution": "lognormal", "mean": 150, "cv": 0.7, "min": 1, "max": 1000},
}


def scenario(prefill: Any = None, decode: Any = None, rate: float = 8.0, **split: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "engine": {"max_model_len": 8192},
            "cluster": {
                "disaggregation": {
                    "prefill": {"replicas": 1, "layout": {}, **(prefill or {})},
                    "decode": {"replicas": 1, "layout": {}, **(decode or {})},
                    "transfer_gb_per_s": 50.0,
                    **split,
                }
            },
            "workload": {**WORKLOAD, "arrivals": {"process": "poisson", "rate_per_s": rate}},
        }
    )


@pytest.mark.parametrize("receive_us", [0.0, 7.0])
@pytest.mark.parametrize("overlap", ["none", "layerwise"])
def test_one_event_a_step_gives_the_same_requests(overlap: str, receive_us: float) -> None:
    asked = scenario(overlap=overlap, decode={"replicas": 2}, receive_us_per_token=receive_us)
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    for name in ("first_token_s", "finish_s", "scheduled_s"):
        np.testing.assert_allclose(jumped.requests[name], stepped.requests[name], rtol=1e-9)
    assert jumped.summary.simulation.events < stepped.summary.simulation.events


def test_each_pool_has_its_own_layout_hardware_and_memory() -> None:
    asked = scenario(
        prefill={"replicas": 2, "hardware": "l40s"}, decode={"layout": {"tensor_parallel_size": 2}}, rate=2.0
    )
    summary = simulate(asked).summary
    assert gpus_of(asked) == summary.cost.gpus == 4
    assert summary.pools["prefill"].gpus == summary.pools["decode"].gpus == 2
    assert summary.pools["prefill"].memory.total_bytes != summary.pools["decode"].memory.total_bytes
    assert summary.kv == summary.pools["decode"].kv.model_copy(update={"prefix_hit_rate": summary.kv.prefix_hit_rate})
    assert summary.cost.usd_per_hour is not None


@pytest.mark.parametrize("load", ["requests", "tokens", "kv"])
@pytest.mark.parametrize("overlap", ["none", "layerwise"])
def test_a_router_counts_requests_whose_cache_is_under_way(overlap: str, load: str) -> None:
    asked = scenario({"replicas": 2}, {"replicas": 2}, rate=200.0, overlap=overlap, transfer_gb_per_s=1.0)
    asked = asked.with_overrides(["cluster.router=least_loaded", f"cluster.router_load={load}"])
    by_replica = simulate(asked).requests["replica"].value_counts()
    assert max(by_replica[2], by_replica[3]) < 0.56 * 200


@pytest.mark.parametrize("preset", ["vllm", "sglang", "tensorrt-llm"])
def test_caches_under_way_are_not_taken_for_shared_ones(preset: str) -> None:
    asked = scenario(overlap="layerwise", transfer_gb_per_s=2.0).with_overrides([f"engine.preset={preset}"])
    assert (simulate(asked).steps["shared_tokens"] == 0).all()


def test_decode_steps_are_not_disturbed_by_prefills() -> None:
    apart = simulate(scenario(rate=12.0)).summary
    together = simulate(
        Scenario.from_dict(
            {
                "model": "meta-llama/Llama-3.1-8B",
                "hardware": "h100-sxm",
                "engine": {"max_model_len": 8192},
                "layout": {"replicas": 2},
                "workload": {**WORKLOAD, "arrivals": {"process": "poisson", "rate_per_s": 12.0}},
            }
        )
    ).summary
    assert apart.itl_s.p99 is not None
    assert together.itl_s.p99 is not None
    assert apart.itl_s.p99 < 0.5 * together.itl_s.p99


def test_host_work_for_what_comes_in_is_between_tokens() -> None:
    """100 us a token, prompts of 100 tokens and more: at least 10 ms stand between two tokens now and then."""
    before, after = (
        simulate(scenario(rate=12.0, receive_us_per_token=each)).summary.itl_s.p99 for each in (0.0, 100.0)
    )
    assert before is not None
    assert after is not None
    assert after > before + 0.01


def test_host_work_over_pipeline_stages_is_refused() -> None:
    staged = {"layout": {"pipeline_parallel_size": 2}}
    with pytest.raises(InputError, match="over pipeline stages is not supported"):
        simulate(scenario(decode=staged, receive_us_per_token=3.0))


def test_a_slower_link_only_delays() -> None:
    times = [simulate(scenario(transfer_gb_per_s=speed)).summary.ttft_s.mean for speed in (200.0, 20.0, 5.0)]
    assert times[0] is not None
    assert times[1] is not None
    assert times[2] is not None
    assert times[0] < times[1] < times[2]


def test_the_pool_that_is_too_small_saturates() -> None:
    """More of the busy pool helps, more of the other does not."""
    base = simulate(scenario(rate=40.0)).summary
    more_prefill = simulate(scenario(prefill={"replicas": 3}, rate=40.0)).summary
    more_decode = simulate(scenario(decode={"replicas": 3}, rate=40.0)).summary
    assert base.ttft_s.mean is not None
    assert more_prefill.ttft_s.mean is not None
    assert more_decode.ttft_s.mean is not None
    assert more_prefill.ttft_s.mean < 0.3 * base.ttft_s.mean
    assert more_decode.ttft_s.mean == pytest.approx(base.ttft_s.mean, rel=0.1)


@pytest.mark.parametrize(
    ("decode", "field"),
    [
        ({"engine": {"kv_cache_dtype": "fp8"}}, "decode.engine.kv_cache_dtype"),
        ({"engine": {"quantization": "fp8"}}, "decode.engine.quantization"),
        ({"engine": {"block_size": 32}}, "decode.engine.block_size"),
        ({"engine": {"preset": "vllm"}}, "decode.engine.preset"),
        ({"engine": {"max_num_sequences": 3}}, "decode.engine.max_num_sequences"),
        ({"layout": {"replicas": 2}}, "decode.layout.replicas"),
        ({"layout": {"tensor_parallel_size": 3}}, "decode.layout.tensor_parallel_size"),
    ],
)
def test_pools_that_cannot_work_together_are_refused(decode: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        simulate(scenario(decode=decode))
    assert refusal.value.field == f"cluster.disaggregation.{field}"
    assert refusal.value.remedy


def test_a_layout_beside_the_pools_is_refused() -> None:
    with pytest.raises(InputError, match="each pool its own"):
        simulate(scenario().with_overrides(["layout.tensor_parallel_size=2"]))


def test_requests_that_no_decode_engine_can_hold_are_rejected_by_name() -> None:
    result = simulate(scenario(decode={"engine": {"num_gpu_blocks_override": 40}}))
    assert set(result.summary.requests.reject_reasons) == {"prompt and output exceed the KV cache of the decode pool"}


@pytest.mark.parametrize("staleness_s", [0.5, 1e-9])
def test_reports_of_two_pools_do_not_keep_each_other_going(staleness_s: float) -> None:
    document = scenario().model_dump(mode="json", exclude_unset=True)
    document["engine"]["step_time"] = {"base_us": 1000, "per_token_us": 0, "per_seq_us": 0}
    document["workload"] = {**WORKLOAD, "num_requests": 5, "arrivals": {"process": "constant", "rate_per_s": 2e4}}
    document["workload"]["output_tokens"] = 2
    document["cluster"] |= {
        "router": "least_loaded",
        "router_staleness_s": staleness_s,
        "events": [{"at_s": 0.001, "action": "fail", "replica": 0, "pool": "prefill"}],
    }
    assert simulate(Scenario.from_dict(document)).summary.requests.unfinished == 5


@pytest.mark.parametrize("overlap", ["none", "layerwise"])
@pytest.mark.parametrize("fail_at_s", [{"decode": 0.029, "prefill": 0.1}, {"prefill": 0.029, "decode": 0.1}])
@pytest.mark.parametrize("exact", [False, True])
def test_requests_survive_that_both_pools_are_gone(fail_at_s: dict[str, float], overlap: str, exact: bool) -> None:
    document = scenario(overlap=overlap).model_dump(mode="json", exclude_unset=True)
    document["engine"]["step_time"] = {"base_us": 3000, "per_token_us": 7, "per_seq_us": 3}
    document["workload"] = {**WORKLOAD, "num_requests": 50, "arrivals": {"process": "constant", "rate_per_s": 100.0}}
    document["cluster"] |= {
        "load_time_s": 0,
        "events": [
            *({"at_s": at_s, "action": "fail", "replica": 0, "pool": pool} for pool, at_s in fail_at_s.items()),
            {"at_s": 0.5, "action": "recover", "replica": 0, "pool": "decode"},
            {"at_s": 1, "action": "recover", "replica": 0, "pool": "prefill"},
        ],
    }
    summary = simulate(Scenario.from_dict(document), exact=exact).summary
    assert summary.requests.completed == 50


@pytest.mark.parametrize("action", ["stop", "fail"])
def test_a_decode_pool_that_will_never_admit_again_is_named(action: str) -> None:
    document = scenario().model_dump(mode="json", exclude_unset=True)
    document["cluster"]["events"] = [{"at_s": 5, "action": action, "replica": 0, "pool": "decode"}]
    summary = simulate(Scenario.from_dict(document)).summary
    assert summary.requests.unfinished > 100
    note = next(note for note in summary.notes if "can never end" in note)
    assert "the decode pool has no replica that accepts requests any more" in note
    assert f"prefill pool: {summary.requests.unfinished} done and keeping their KV cache" in note
    assert summary.utilization.busy_fraction is not None
    assert summary.utilization.busy_fraction <= 1


def test_the_summary_says_what_each_pool_did() -> None:
    asked = scenario(prefill={"replicas": 2})
    console = Console(record=True, width=200, file=io.StringIO())
    print_summary(simulate(asked).summary, asked, console=console)
    text = console.export_text()
    assert "prefill 2 x TP1 on 2 x h100-sxm, decode 1 x TP1 on 1 x h100-sxm" in text
    assert "prefill pool" in text
    assert "decode pool" in text


def test_a_sweep_of_ratios_tells_the_pools_apart() -> None:
    keys = ["cluster.disaggregation.prefill.replicas", "cluster.disaggregation.decode.replicas", "engine.max_num_seqs"]
    assert [short_key(key, keys) for key in keys] == ["prefill.replicas", "decode.replicas", "max_num_seqs"]


def test_a_decode_pool_that_falls_behind_is_an_overload() -> None:
    keeps_up = simulate(scenario()).summary
    falls_behind = simulate(scenario(decode={"hardware": "l4"})).summary
    assert not keeps_up.load.overloaded
    assert falls_behind.load.overloaded
    note = next(note for note in falls_behind.notes if note.startswith("Overloaded"))
    assert "of them for prefill" in note
