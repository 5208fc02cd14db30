"""A small scenario whose runs take milliseconds."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sim import Scenario

SMALL: dict[str, Any] = {
    "name": "small",
    "model": "meta-llama/Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": {
        "num_gpu_blocks_override": 2000,
        "max_model_len": 4096,
        "step_time": {"base_us": 8000, "per_token_us": 40, "per_seq_us": 20},
    },
    "workload": {
        "num_requests": 60,
        "arrivals": {"process": "poisson", "rate_per_s": 5.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 600},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": 80},
    },
    "slo": {"ttft_p99_s": 1.0},
}


@pytest.fixture
def small() -> Scenario:
    return Scenario.from_dict(copy.deepcopy(SMALL))
