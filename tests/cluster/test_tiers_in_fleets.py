"""Swap and offload in fleets of every kind: one event a step gives the same requests as time by change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate

FLEETS: dict[str, dict[str, Any]] = {
    "alone": {},
    "synchronous": {"engine": {"async_scheduling": False}},
    "dense ranks": {"layout": {"data_parallel_size": 2}},
    "ranks with experts": {
        "model": "Qwen/Qwen3-30B-A3B",
        "layout": {"data_parallel_size": 2, "enable_expert_parallel": True},
    },
    "apart": {
        "cluster": {
            "disaggregation": {
                "prefill": {"replicas": 1, "layout": {}},
                "decode": {"replicas": 1, "layout": {}},
                "transfer_gb_per_s": 50,
            }
        }
    },
    "failing": {
        "layout": {"replicas": 2},
        "cluster": {
            "events": [
                {"at_s": 4, "action": "fail", "replica": 0},
                {"at_s": 7, "action": "recover", "replica": 0},
            ],
            "load_time_s": 1,
        },
    },
}
ENGINE = {
    "num_gpu_blocks_override": 400,
    "max_model_len": 4096,
    "preemption": "swap",
    "swap_space_gib": 1,
    "kv_offload": [
        {"name": "host", "memory_gib": 1, "bandwidth_gb_per_s": 20},
        {"name": "nvme", "memory_gib": 3, "bandwidth_gb_per_s": 5},
    ],
}


def scenario(**changes: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "workload": {
                "num_requests": 90,
                "arrivals": {"process": "poisson", "rate_per_s": 10},
                "prompt_tokens": {"distribution": "lognormal", "mean": 400, "cv": 1, "max": 1500},
                "output_tokens": {"distribution": "lognormal", "mean": 200, "cv": 1, "max": 900},
                "sessions": {"turns": 3, "think_s": 2.0},
            },
            **changes,
            "engine": {**ENGINE, **changes.get("engine", {})},
        }
    )


@pytest.mark.parametrize("name", FLEETS)
def test_jumps_change_no_request(name: str) -> None:
    asked = scenario(**FLEETS[name])
    jumped, stepped = (simulate(asked, exact=exact) for exact in (False, True))
    for column in jumped.requests.columns.drop("reason"):
        got, expected = jumped.requests[column], stepped.requests[column]
        if column.endswith("_s"):
            np.testing.assert_allclose(got, expected, rtol=1e-9, err_msg=column)
        else:
            assert (got.astype(str) == expected.astype(str)).all(), column
    assert jumped.summary.tiers == stepped.summary.tiers
    assert jumped.summary.simulation.events < stepped.summary.simulation.events
    tiers = [jumped.summary.tiers, *(pool.tiers for pool in jumped.summary.pools.values())]
    assert any(each is not None and each.swap is not None and each.swap.swapped for each in tiers)
    if name != "apart":  # where decode engines have no prompts of their own, and one prefill engine evicts little
        assert any(each is not None and sum(tier.hit_tokens for tier in each.prefix[1:]) for each in tiers)
