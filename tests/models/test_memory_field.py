"""Pools, weights and block counts that real engines logged, predicted from scratch by one general rule."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import pytest

from sim.models.memory import MemoryBudget

Ask = Callable[..., MemoryBudget]
GIB = 1 << 30

RTX_3090 = 25_318_916_096
RTX_4090 = 25_394_413_568
RTX_5090 = 33_683_406_848
L40S = 47_674_556_416


class Logged(NamedTuple):
    """A number from a log; ``what`` is kv | weights | activation (GiB of one GPU), blocks, or tokens."""

    source: str
    model: str
    what: str
    value: float
    given: dict[str, Any]


def _h100(engine: str, **given: Any) -> dict[str, Any]:
    """Defaults of vLLM's API server on a data-centre GPU other than an A100."""
    return {"engine": engine, "max_num_batched_tokens": 8192, "max_num_seqs": 1024, **given}


# vLLM 0.15.1 on H100: max_num_seqs 128, max_model_len 4096, utilisation 0.9 (inference-sim runs).
_RUNS = "inference-sim sim-to-real and training runs, vLLM 0.15.1"
BLOCKS = (
    Logged(_RUNS, "Llama-2-7B", "blocks", 7463, {}),
    Logged(_RUNS, "Mistral-Nemo", "blocks", 19251, {}),
    Logged(_RUNS, "Mistral-Nemo", "blocks", 48009, {"tp": 2}),
    Logged(_RUNS, "Qwen2.5-7B", "blocks", 65352, {}),
    Logged(_RUNS, "Qwen2.5-7B", "blocks", 65368, {"max_num_batched_tokens": 1024}),
    Logged(_RUNS, "Yi-34B", "blocks", 20793, {"tp": 2}),
    Logged(_RUNS, "CodeLlama-34B", "blocks", 26602, {"tp": 2}),
    Logged(_RUNS, "Llama-2-70B", "blocks", 31356, {"tp": 4}),
    Logged(_RUNS, "Llama-3.1-70B", "blocks", 30425, {"tp": 4}),
    Logged(_RUNS, "Mixtral-8x7B", "blocks", 27510, {"tp": 2}),
    Logged(_RUNS, "Llama-4-Scout-FP8", "blocks", 8253, {"tp": 2}),
    # The pool and the weights exceed 0.9 of the device: the release's default of 0.92 was in force.
    Logged(
        "inference-sim residency runs, vLLM 0.23",
        "Qwen3-14B",
        "blocks",
        18038,
        _h100("vllm==0.23.0", max_num_seqs=256, max_model_len=40960, gpu_memory_utilization=0.92),
    ),
    Logged(
        "LLMServingSim bench, vLLM 0.19",
        "Llama-3.1-8B",
        "blocks",
        2588,
        {
            "memory_bytes": RTX_4090,
            "max_num_seqs": 256,
            "max_model_len": 32768,
            "engine": "vllm==0.19.0",
            "links": "pcie",
        },
    ),
)
_PROFILE = "llm-d-benchmark config_explorer, empirical vLLM memory results, vLLM 0.11 on H100 (79.18 GiB)"
_P = _h100("vllm==0.11.0", memory_bytes=79.18 * GIB, max_model_len=16000)
_LLAMA_FP8 = {**_P, "tp": 2, "quantization": "fp8_channel"}
_OLD = "vllm#10517 (A01-A03)"
_O = {"memory_bytes": RTX_3090, "max_num_seqs": 256, "engine": "vllm==0.6.4", "links": "pcie"}
_TIGHT = {"gpu_memory_utilization": 0.98}
_SGLANG = _h100("sglang", tp=4, max_model_len=40960, gpu_memory_utilization=0.93)
_L40S = {
    "memory_bytes": L40S,
    "max_num_seqs": 1024,
    "max_model_len": 32768,
    "engine": "vllm==0.8.4",
    "links": "pcie",
}
_ADA = {
    "memory_bytes": 47.37 * GIB,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 256,
    "max_model_len": 2048,
    "gpu_memory_utilization": 0.85,
    "engine": "vllm==0.32.0",
    "links": "pcie",
}
_BLACKWELL = {
    "memory_bytes": RTX_5090,
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1,
    "max_model_len": 131_072,
    "kv": "fp8",
    "gpu_memory_utilization": 0.92,
    "engine": "vllm==0.24.0",
    "links": "pcie",
}
_SCOUT = "coderepo/extra (fuhengwu2021), vLLM 0.12.0 on H200"
_H200 = _h100("vllm==0.12.0", memory_bytes=150_108_897_280, tp=8, max_model_len=2_097_152)
LOGS = (
    Logged(_SCOUT, "Llama-4-Scout-17B-16E-Instruct", "weights", 27.8072, _H200),
    Logged(_SCOUT, "Llama-4-Scout-17B-16E-Instruct", "kv", 89.71, {**_H200, "kv": "fp8"}),
    Logged("vllm#15676", "gemma-3-27b-it", "weights", 13.1665, {"tp": 4, "engine": "vllm==0.8.2"}),
    Logged(_PROFILE, "gpt-oss-20b", "weights", 13.47, _P),
    Logged(_PROFILE, "gpt-oss-20b", "activation", 7.38, _P),
    Logged(_PROFILE, "gpt-oss-20b", "kv", 50.28, _P),
    Logged(_PROFILE, "Llama-3.3-70B", "weights", 33.88, _LLAMA_FP8),
    Logged(_PROFILE, "Llama-3.3-70B", "activation", 4.84, _LLAMA_FP8),
    Logged(_PROFILE, "Llama-3.3-70B", "kv", 32.0, _LLAMA_FP8),
    Logged(_PROFILE, "Llama-3.1-8B", "weights", 14.99, _P),
    Logged(_PROFILE, "Llama-3.1-8B", "activation", 4.76, _P),
    Logged(_PROFILE, "Llama-3.1-8B", "kv", 51.38, _P),
    Logged(_PROFILE, "Qwen3-0.6B", "activation", 5.56, _P),
    Logged(_PROFILE, "Qwen3-0.6B", "kv", 64.45, _P),
    Logged(_PROFILE, "Qwen3-32B", "weights", 61.03, _P),
    Logged(_PROFILE, "Qwen3-32B", "kv", 4.45, _P),
    Logged(_PROFILE, "Qwen3-32B", "kv", 34.49, {**_P, "tp": 2}),
    # vllm#10517: eager, the budget is the longest request unless prefill is chunked.
    Logged(_OLD, "Llama-3.1-8B", "activation", 2.07, {**_O, "max_num_batched_tokens": 20_000, "max_model_len": 20_000}),
    Logged(_OLD, "Llama-3.1-8B", "activation", 2.99, {**_O, "max_num_batched_tokens": 29_000, "max_model_len": 20_000}),
    Logged(_OLD, "Llama-3.1-8B", "kv", 5.82, {**_O, "max_num_batched_tokens": 512, "max_model_len": 35_000}),
    Logged("vllm#12569 (A04)", "Llama-3.1-70B", "weights", 67.7229, {**_TIGHT, "quantization": "int8"}),
    Logged("vllm#21348 (A05)", "Qwen3-235B-A22B-FP8", "kv", 8.11, _h100("vllm==0.9.2", tp=4, max_model_len=40960)),
    Logged("vllm#21348 (A06)", "Qwen3-235B-A22B-FP8", "kv", 2 * 8.233, _SGLANG),
    Logged("vllm#10927 (A13)", "DeepSeek-V2-Lite", "weights", 29.301, {"engine": "vllm==0.6.4", "max_model_len": 8192}),
    Logged("vllm#17122", "Llama-3.1-8B", "tokens", 158_656, _L40S),
    Logged("vllm#57047 (A21)", "Qwen3-4B-AWQ", "kv", 36.88, _ADA),
    Logged("vllm#23278 (A30), Marlin", "gpt-oss-120b", "weights", 65.9651, {**_h100("vllm==0.10.1"), **_TIGHT}),
    # 71.20 GiB usable, 65.97 of weights and a pool of -2.14
    Logged("vllm#23278 (A30)", "gpt-oss-120b", "charges", 7.37, {**_h100("vllm==0.10.1"), **_TIGHT}),
    Logged("vllm#33155 (A31), Triton", "gpt-oss-120b", "weights", 64.38, {**_h100("vllm==0.14.1"), **_TIGHT}),
    Logged("club-3090#612 (A33)", "Qwen3.6-35B-A3B-NVFP4", "kv", 5.98, _BLACKWELL),
)


def _predicted(ask: Ask, case: Logged) -> float:
    budget = ask(case.model, **case.given)
    return {
        "kv": budget.kv_bytes / GIB,
        "weights": budget.weights_bytes / GIB,
        "activation": budget.activation_bytes / GIB,
        "charges": (budget.activation_bytes + budget.overhead_bytes) / GIB,
        "blocks": budget.num_gpu_blocks,
        "tokens": budget.capacity_tokens,
    }[case.what]


@pytest.mark.parametrize("case", BLOCKS, ids=lambda case: f"{case.model}-{case.given}")
def test_block_counts_of_real_runs_are_within_two_percent(ask: Ask, case: Logged) -> None:
    assert _predicted(ask, case) == pytest.approx(case.value, rel=0.02)


@pytest.mark.parametrize("case", LOGS, ids=lambda case: f"{case.source}-{case.model}-{case.what}")
def test_logged_pools_weights_and_peaks_are_within_three_percent(ask: Ask, case: Logged) -> None:
    assert _predicted(ask, case) == pytest.approx(case.value, rel=0.03)


def test_the_median_error_over_all_cases_is_below_half_a_percent(ask: Ask) -> None:
    errors = [abs(_predicted(ask, case) / case.value - 1) for case in (*BLOCKS, *LOGS)]
    assert median(errors) < 0.005


def test_a_long_rotary_table_is_held_twice_while_its_kernels_are_timed(ask: Ask) -> None:
    """Ten million positions are 2.5 GiB; without the second copy 9,374 blocks would be computed."""
    held = ask("Llama-4-Scout-FP8", tp=2)
    assert held.activation_bytes > held.weights["rope"]
    assert ask("Llama-4-Scout-FP8", tp=2, engine="vllm==0.11.0").activation_bytes < held.weights["rope"] / 2
