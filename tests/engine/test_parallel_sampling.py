"""Samples of one prompt hold its full blocks once, and what sharing saves is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.result import Result


def sampled(n: int, prompt: int, output: int, *, requests: int = 1, exact: bool = False, **engine: Any) -> Result:
    document = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {
            "num_gpu_blocks_override": 10_001,
            "max_model_len": 4096,
            "step_time": {"base_us": 100},
            **engine,
        },
        "workload": {
            "num_requests": requests,
            "arrivals": {"process": "poisson", "rate_per_s": 100.0},
            "prompt_tokens": {"distribution": "constant", "value": prompt},
            "output_tokens": {"distribution": "constant", "value": output},
            "n": n,
        },
    }
    return simulate(Scenario.from_dict(document), exact=exact)


def peak_blocks(result: Result) -> int:
    return int(result.steps[["used_blocks", "used_blocks_end"]].to_numpy().max())


def test_full_blocks_of_the_prompt_are_held_once() -> None:
    # 100 tokens are 6 full blocks, and 4 tokens in a seventh, which each sample computes in a block of its own: as many
    # blocks as copies on the first write would take. Each ends with 100 + 20 - 1 tokens in 8 blocks.
    result = sampled(4, 100, 20)
    assert peak_blocks(result) == 6 + 4 * 2
    assert result.steps["prefill_tokens"].sum() == 100 + 3 * 4
    assert result.requests["cached_tokens"].tolist() == [0, 96, 96, 96]
    assert peak_blocks(sampled(4, 100, 20, enable_prefix_caching=False)) == 4 * 8


def test_a_prompt_of_full_blocks_is_computed_from_its_last_one() -> None:
    # vLLM computes at least the last token anew, and with it the last block: a copy of a full block for each sample.
    result = sampled(4, 96, 20)
    assert result.requests["cached_tokens"].tolist() == [0, 80, 80, 80]
    assert peak_blocks(result) == 5 + 4 * 3


def test_blocks_of_a_prompt_are_free_when_its_last_sample_ends() -> None:
    result = sampled(8, 100, 200, requests=30)
    assert result.summary.requests.completed == 8 * 30
    last = result.steps.sort_values("start_s").iloc[-1]
    assert last["used_blocks_end"] < 8 * 19


@pytest.mark.parametrize("exact", [False, True])
def test_what_sharing_saves_is_the_tokens_that_are_held_once(exact: bool) -> None:
    kv = sampled(4, 100, 20, exact=exact).summary.kv
    # One step of 100 + 3 x 4 tokens computed, 19 more of one token each; all share 96.
    lengths = np.arange(100, 120)
    assert kv.shared_fraction == pytest.approx(3 * 96 / (4 * lengths.mean()))
    assert sampled(1, 100, 20, exact=exact).summary.kv.shared_fraction == 0
    assert sampled(4, 100, 20, exact=exact, enable_prefix_caching=False).summary.kv.shared_fraction == 0


def test_smaller_blocks_share_more() -> None:
    shares = [sampled(4, 100, 20, block_size=size).summary.kv.shared_fraction for size in (1, 16, 64, 128)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0


@pytest.mark.parametrize("preset", ["sglang", "tensorrt-llm", "tgi", "orca", "static"])
def test_every_engine_serves_samples(preset: str) -> None:
    result = sampled(3, 100, 20, requests=10, preset=preset)
    assert result.summary.requests.completed == 30
    shared = result.summary.kv.shared_fraction
    assert shared is not None
    assert shared > 0.3 if preset == "tensorrt-llm" else shared >= 0
