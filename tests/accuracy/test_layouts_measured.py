"""Layouts against published measurements: what more stages bring, and which prefill/decode split serves most."""

from __future__ import annotations

import itertools
import statistics
from functools import cache
from typing import Any

import pytest

from sim import Scenario, simulate
from sim.assemble import cost_model, served_by
from sim.cost.shape import StepShape

# Output tokens/s of Llama-3.3-70B in NVFP4 on RTX PRO 6000, all requests at once: {(prompt, answer): {stages: rate}}.
# TensorRT-LLM 1.0, docs/source/performance/perf-overview.md (Apache-2.0). Batch limits are not stated.
STAGES = {
    (128, 2048): {1: 2422, 2: 4993, 4: 7922},
    (128, 4096): {4: 4978, 8: 7352},
    (500, 2000): {1: 1856, 2: 4114, 4: 6939, 8: 9435},
    (1000, 1000): {4: 5961, 8: 8166},
    (2048, 2048): {1: 1074, 2: 2336},
}
# Output tokens/s of gpt-oss-120b on eight H200, engines of TP 2, SGLang of September 2025 (dstackai/benchmarks,
# comparison/pd_ratio, Apache-2.0): {(prefill, decode engines, clients, prompt, longest answer): (mean answer, rate)}.
# run_benchmark.sh sends the same 500 prompts with 128, 64 and 32 clients in turn, after one to try the server with.
SPLITS = {
    (1, 3, 128, 128, 2048): (682.0, 8706),
    (1, 3, 128, 2046, 2048): (732.3, 8775),
    (1, 3, 32, 2046, 128): (62.2, 2810),
    (1, 3, 32, 32784, 2048): (1246.5, 1615),
    (1, 3, 64, 2046, 128): (66.5, 3615),
    (2, 2, 128, 128, 2048): (648.4, 7504),
    (2, 2, 128, 2046, 128): (61.5, 2031),
    (2, 2, 128, 32784, 2048): (1225.7, 2118),
    (2, 2, 32, 128, 2048): (614.6, 3632),
    (2, 2, 32, 2046, 128): (64.8, 2722),
    (2, 2, 32, 32784, 2048): (1270.7, 2183),
    (2, 2, 64, 128, 2048): (670.1, 5629),
    (2, 2, 64, 2046, 128): (65.7, 2663),
    (2, 2, 64, 32784, 2048): (1278.4, 2626),
    (3, 1, 128, 128, 2048): (635.0, 6078),
    (3, 1, 128, 2046, 2048): (814.7, 6656),
    (3, 1, 32, 2046, 128): (62.6, 2250),
    (3, 1, 32, 2046, 2048): (728.6, 3349),
    (3, 1, 64, 128, 2048): (654.0, 4829),
    (3, 1, 64, 32784, 2048): (1268.6, 2057),
}
# Read off the latencies of these runs, not off their throughput: TTFT where next to nothing is to be computed, and the
# 99th percentile of gaps between tokens, 75 to 117 ms with prompts of 32,784 tokens.
HANDSHAKE = {"transfer_latency_s": 0.08, "receive_us_per_token": 3.0}
PROMPTS = 501
RUNS_BEFORE = {128: 0, 64: 1, 32: 2}
# The runs of 1 + 1, whose commands are not published: {(clients, prompt, longest answer): (mean answer, rate)}.
ONE_AND_ONE = {(32, 128, 2048): (695.0, 4309), (64, 128, 2048): (713.8, 6949), (64, 2046, 2048): (469.3, 6396)}
# Median gap between tokens, ms, with prompts of 32,784: {(TP, mean requests in an engine's batch, context): gap}. The
# batch is requests/s x answer x mean time a token; 1 + 1 (TP 4) with 32 and 64 clients, 1 + 3, 2 + 2 twice, 3 + 1.
LONG_CONTEXT_GAPS = {
    (4, 29, 33553): 10.37,
    (4, 52, 33544): 15.54,
    (2, 4, 33407): 6.28,
    (2, 15, 33419): 12.53,
    (2, 21, 33423): 15.42,
    (2, 17, 33397): 15.52,
    (2, 57, 33418): 27.57,
}


def tokens_per_s(document: dict[str, Any]) -> float:
    rate = simulate(Scenario.from_dict(document)).summary.throughput.output_tokens_per_s
    assert rate is not None
    return rate


@cache
def pipeline(stages: int, prompt: int, answer: int) -> float:
    return tokens_per_s(
        {
            "model": "meta-llama/Llama-3.3-70B-Instruct",
            "hardware": "rtx-pro-6000",
            "layout": {"pipeline_parallel_size": stages},
            "engine": {
                "preset": "tensorrt-llm",
                "quantization": "nvfp4",
                "kv_cache_dtype": "fp8",
                "max_num_seqs": 1024,
                "max_model_len": prompt + answer + 16,
            },
            "workload": {
                "num_requests": min(3000, 500 * stages),
                "arrivals": {"process": "constant", "rate_per_s": 1e6},
                "prompt_tokens": prompt,
                "output_tokens": answer,
            },
        }
    )


def test_what_twice_the_stages_bring() -> None:
    errors = []
    for (prompt, answer), measured in STAGES.items():
        for few, many in itertools.pairwise(measured):
            predicted = pipeline(many, prompt, answer) / pipeline(few, prompt, answer)
            errors.append(predicted / (measured[many] / measured[few]) - 1)
    assert len(errors) == 8
    assert statistics.median(map(abs, errors)) < 0.15


def disaggregated(
    prefill: int, decode: int, clients: int, prompt: int, longest: int, mean: float, *, tensor: int = 2
) -> float:
    """Answers are spread evenly, as far to both sides of their mean as their longest allows (not published)."""
    low = max(1, round(2 * mean) - longest)
    pool = {"layout": {"tensor_parallel_size": tensor}}
    workload: dict[str, Any] = {
        "num_requests": PROMPTS,
        "arrivals": {"process": "closed_loop", "concurrency": clients, "queue": "shared"},
        "prompt_tokens": prompt,
        "output_tokens": {"distribution": "uniform", "min": low, "max": round(2 * mean) - low},
        "prefixes": {"groups": 1, "prefix_tokens": 1, "prompts_per_group": PROMPTS},
    }
    if RUNS_BEFORE[clients]:
        workload["warmup_requests"] = PROMPTS * RUNS_BEFORE[clients]
    return tokens_per_s(
        {
            "model": "openai/gpt-oss-120b",
            "hardware": "h200-sxm",
            "engine": {"preset": "sglang", "max_model_len": 36000, "attention_backend": "fa3"},
            "cluster": {
                "disaggregation": {
                    "prefill": {"replicas": prefill, **pool},
                    "decode": {"replicas": decode, **pool},
                    "transfer_gb_per_s": 50,
                    **HANDSHAKE,
                    "overlap": "layerwise",
                }
            },
            "workload": workload,
        }
    )


@cache
def split(prefill: int, decode: int, clients: int, prompt: int, longest: int) -> float:
    key = (prefill, decode, clients, prompt, longest)
    return disaggregated(*key, SPLITS[key][0])


def test_throughput_of_splits() -> None:
    errors = [split(*key) / measured - 1 for key, (_, measured) in SPLITS.items()]
    assert statistics.median(map(abs, errors)) < 0.15


@pytest.mark.parametrize(("short", "pairs"), [(True, 4), (False, 7)])
def test_which_split_of_eight_gpus_serves_most(short: bool, pairs: int) -> None:
    right = [
        (SPLITS[one][1] > SPLITS[other][1]) == (split(*one) > split(*other))
        for one, other in itertools.combinations(SPLITS, 2)
        if one[2:] == other[2:] and (one[4] == 128) is short
    ]
    assert right == [True] * pairs


@pytest.mark.parametrize("key", ONE_AND_ONE)
def test_one_and_one_are_as_fast_as_four_gpus_each_make_them(key: tuple[int, int, int]) -> None:
    mean, measured = ONE_AND_ONE[key]
    assert disaggregated(1, 1, *key, mean, tensor=4) == pytest.approx(measured, rel=0.10)
    assert disaggregated(1, 1, *key, mean, tensor=2) < 0.70 * measured


def gap_errors(backend: str | None) -> list[float]:
    errors = []
    for (tensor, seqs, context), measured_ms in LONG_CONTEXT_GAPS.items():
        scenario = Scenario.from_dict(
            {
                "model": "openai/gpt-oss-120b",
                "hardware": "h200-sxm",
                "layout": {"tensor_parallel_size": tensor},
                "engine": {"preset": "sglang", "max_model_len": 36000, "attention_backend": backend},
                "workload": {
                    "num_requests": 1,
                    "arrivals": {"process": "closed_loop", "concurrency": 1},
                    "prompt_tokens": 1,
                    "output_tokens": 1,
                },
            }
        ).resolved()
        shape = StepShape(
            decode_seqs=seqs,
            decode_context=seqs * context,
            decode_context_windowed=seqs * 128,
            sampled_seqs=seqs,
        )
        errors.append(1e3 * cost_model(scenario, served_by(scenario)).step(shape) / measured_ms - 1)
    return errors


def test_decodes_over_long_contexts_read_pages_of_one_token() -> None:
    """With the figures of another measurement; by the tables of larger pages every step is too short."""
    assert statistics.median(map(abs, gap_errors("fa3"))) < 0.07
    assert max(gap_errors(None)) < -0.15
