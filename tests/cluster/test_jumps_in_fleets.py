"""Fleets in which a request once came out otherwise by jumps than step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate

BURSTS = {"process": "gamma", "rate_per_s": 20.0, "cv": 3.0}
FLEETS: dict[str, dict[str, Any]] = {
    "a rank of SGLang falls idle: those that ended leave its seats, and its estimate begins anew": {
        "model": "Qwen/Qwen3-30B-A3B",
        "engine": {
            "preset": "sglang",
            "max_num_seqs": 2,
            "max_new_tokens": 300,
            "step_time": {"base_us": 5000, "per_token_us": 0, "per_seq_us": 0},
        },
        "layout": {"data_parallel_size": 2, "enable_expert_parallel": True},
    },
    "the same over stages": {
        "model": "deepseek-ai/DeepSeek-V2-Lite",
        "engine": {"preset": "sglang", "max_num_seqs": 4, "num_gpu_blocks_override": 1125},
        "layout": {"data_parallel_size": 4, "pipeline_parallel_size": 2},
    },
    "rows of a static batch that are done weigh on the router as long as they are computed": {
        "model": "meta-llama/Llama-3.2-1B",
        "engine": {"preset": "static", "max_num_seqs": 8},
        "layout": {"replicas": 3},
        "cluster": {"router": "least_loaded", "router_load": "tokens"},
    },
}


@pytest.mark.parametrize("name", FLEETS)
@pytest.mark.parametrize("seed", [0, 1, 3])
def test_jumps_change_no_request(name: str, seed: int) -> None:
    document = {
        "hardware": "h100-sxm",
        "seed": seed,
        "workload": {
            "num_requests": 80,
            "arrivals": BURSTS,
            "prompt_tokens": {"distribution": "uniform", "min": 4, "max": 200},
            "output_tokens": {"distribution": "uniform", "min": 1, "max": 100},
        },
        **FLEETS[name],
    }
    document["engine"] = {"max_model_len": 1024, **document["engine"]}
    scenario = Scenario.from_dict(document)
    jumped, stepped = simulate(scenario), simulate(scenario, exact=True)
    np.testing.assert_array_equal(jumped.requests["replica"], stepped.requests["replica"])
    for column in ("scheduled_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(jumped.requests[column], stepped.requests[column], rtol=1e-9)


@pytest.mark.parametrize("seed", [0, 15])
def test_a_fleet_that_is_there_all_the_time_has_no_gpu_more(seed: int) -> None:
    document = {
        "model": "meta-llama/Llama-3.2-1B",
        "hardware": "h100-sxm",
        "seed": seed,
        "engine": {"max_model_len": 1024},
        "layout": {"replicas": 3, "tensor_parallel_size": 4},
        "cluster": {
            "load_time_s": 0.1,
            "events": [{"at_s": 0.2, "action": "fail", "replica": 0}, {"at_s": 0.3, "action": "recover", "replica": 0}],
        },
        "workload": {"num_requests": 30, "arrivals": BURSTS, "prompt_tokens": 100, "output_tokens": 5},
    }
    assert simulate(Scenario.from_dict(document)).summary.cost.gpus == 12
