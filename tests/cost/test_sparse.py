"""Sparse attention: what is picked is attended, what is scored is all, and kernels compute whole blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hardware_profiles import HardwareProfile, load_engine_overheads, load_hardware
from sim import Scenario, simulate
from sim.cost.shape import COUNTS, StepShape
from sim.cost.sparse import Picks
from sim.cost.step import CostModel
from sim.cost.work import ModelWork
from sim.layout import Layout
from sim.models.architecture import Architecture, LayerRun
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.quantization import resolve_weight_format
from sim.release import picks_of

SPARSE = load_model("deepseek-ai/DeepSeek-V3.2")
DENSE = load_model("deepseek-ai/DeepSeek-V3")
TOPK = 2048
# Milliseconds of one attention module of DeepSeek-V3.2 on H200, vLLM 0.24 (aiconfigurator-core 0.12.0, Apache-2.0,
# NVIDIA, h200_sxm/sparse_attention/vllm/0.24.0): (heads, cache, sequences, prompt or context, decode): time.
MODULES = {
    (16, "bf16", 64, 128, False): 3.2677,
    (16, "bf16", 4, 2048, False): 4.9092,
    (16, "bf16", 1, 8192, False): 6.7496,
    (128, "bf16", 8, 1024, False): 8.6921,
    (16, "fp8", 64, 128, False): 9.3681,
    (16, "fp8", 4, 2048, False): 9.4837,
    (16, "fp8", 1, 8192, False): 10.3086,
    (128, "fp8", 2, 4096, False): 12.8339,
    (16, "bf16", 1, 2, True): 0.1704,
    (16, "bf16", 256, 2048, True): 0.4087,
    (16, "bf16", 512, 8192, True): 0.8016,
    (128, "bf16", 64, 512, True): 0.2591,
    (16, "fp8", 64, 128, True): 0.2517,
    (16, "fp8", 1024, 2048, True): 1.4225,
    (128, "fp8", 256, 32768, True): 1.0699,
}  # fmt: skip


def timing_loop() -> HardwareProfile:
    """An H200 at the clocks of isolated kernels, as the table was taken."""
    served = load_hardware("h200-sxm")
    return served.model_copy(update={"compute": served.compute.model_copy(update={"sustained_fraction": None})})


def model(
    arch: Architecture = SPARSE,
    *,
    kv: str = "bf16",
    tensor: int = 8,
    picks: Picks | None = None,
    hardware: HardwareProfile | None = None,
) -> CostModel:
    return CostModel(
        arch,
        resolve_weight_format(arch, None),
        resolve_kv_format(arch, kv),
        hardware or load_hardware("h200-sxm"),
        Layout(tensor_parallel_size=tensor),
        load_engine_overheads("vllm"),
        picks=picks,
    )


def prompts(count: int, length: int, before: int = 0) -> StepShape:
    shape = StepShape()
    for _ in range(count):
        shape.add_prefill(length, before, TOPK)
    return shape


def decodes(seqs: int, context: int) -> StepShape:
    return StepShape(
        decode_seqs=seqs,
        decode_context=seqs * context,
        decode_context_windowed=seqs * min(context, TOPK),
        sampled_seqs=seqs,
    )


def attention_s(timer: CostModel, shape: StepShape) -> float:
    parts = timer.breakdown(shape)
    return parts.get("prefill_attention", 0.0) + parts.get("decode_attention", 0.0)


@pytest.mark.parametrize("case", MODULES, ids=str)
def test_a_module_takes_as_long_as_measured(case: tuple[int, str, int, int, bool]) -> None:
    heads, kv, seqs, length, decode = case
    one_layer = replace(SPARSE, layers=(LayerRun(1, SPARSE.layers[0].attention, None),), layer_order=(0,))
    timer = model(one_layer, kv=kv, tensor=128 // heads, hardware=timing_loop())
    parts = timer.breakdown(decodes(seqs, length) if decode else prompts(seqs, length))
    beside = ("host", "embedding", "lm_head", "sampling", "all_reduce", "all_gather")
    module_s = sum(seconds for name, seconds in parts.items() if name not in beside)
    assert module_s * 1e3 == pytest.approx(MODULES[case], rel=0.15)


def test_a_padded_kernel_takes_as_long_for_short_prompts_as_for_long() -> None:
    timer = model(picks=Picks(padded=True))
    assert attention_s(timer, prompts(64, 128)) == pytest.approx(attention_s(timer, prompts(4, 2048)), rel=0.05)


def test_a_kernel_that_stops_at_the_context_is_faster_on_short_prompts() -> None:
    assert attention_s(model(), prompts(64, 128)) < 0.7 * attention_s(model(), prompts(4, 2048))


def test_few_heads_cost_as_much_as_a_block() -> None:
    shape = prompts(4, 2048)
    eight, sixteen = (attention_s(model(tensor=tensor, picks=Picks(padded=True)), shape) for tensor in (16, 8))
    assert sixteen == pytest.approx(eight, rel=0.1)


def test_short_prompts_that_are_expanded_are_those_of_the_model_without_an_indexer() -> None:
    shape = prompts(8, 1024)
    expanded, dense = model(picks=Picks(expands_short=True)).breakdown(shape), model(DENSE).breakdown(shape)
    assert expanded["prefill_attention"] == pytest.approx(dense["prefill_attention"] + dense["kv_up_proj"], rel=0.02)


def test_one_long_prompt_takes_all_into_the_latent_space() -> None:
    timer, shape = model(picks=Picks(expands_short=True)), prompts(3, 2048)
    before = attention_s(timer, shape)
    shape.add_prefill(2049, 0, TOPK)
    assert attention_s(timer, shape) > 3.0 * before


def test_a_prompt_without_keys_yet_is_priced() -> None:
    timer = model(picks=Picks(expands_short=True))
    assert timer.step(StepShape(prefill_seqs=1, prefill_tokens=64)) > 0.0


def test_past_what_is_picked_only_scores_grow() -> None:
    timer = model()
    short, long, longer = (attention_s(timer, decodes(64, context)) for context in (1024, 32768, 65536))
    dense = [attention_s(model(DENSE), decodes(64, context)) for context in (32768, 65536)]
    assert short < long < longer < long + 0.25 * (dense[1] - dense[0])


@pytest.mark.parametrize("context", [100, 2040, 5000])
def test_a_line_of_decode_steps_is_the_steps_one_by_one(context: int) -> None:
    timer, seqs = model(), 32
    first, increment, steps = timer.decode_run(decodes(seqs, context), seqs if context < TOPK else 0)
    for step in range(min(int(steps), 8)):
        assert timer.step(decodes(seqs, context + step)) == pytest.approx(first + step * increment, rel=1e-12)


def scenario(**keys: str) -> Scenario:
    """Twenty requests that grow past what is picked while they are answered."""
    return Scenario.from_dict(
        {
            "model": "deepseek-ai/DeepSeek-V3.2",
            "hardware": "h200-sxm",
            "layout": {"tensor_parallel_size": 8},
            "engine": {"max_model_len": 8192, **keys},
            "workload": {
                "num_requests": 20,
                "arrivals": {"process": "poisson", "rate_per_s": 4.0},
                "prompt_tokens": {"distribution": "uniform", "min": 1800, "max": 2200},
                "output_tokens": {"distribution": "uniform", "min": 50, "max": 300},
            },
        }
    )


def engine(**keys: str) -> Picks:
    return picks_of(scenario(**keys).engine)


@pytest.mark.parametrize("preset", ["vllm", "sglang"])
def test_a_run_in_jumps_is_the_run_step_by_step(preset: str) -> None:
    jumps, steps = (simulate(scenario(preset=preset), exact=exact).summary.e2e_s for exact in (False, True))
    assert jumps.mean == pytest.approx(steps.mean, rel=1e-9)


def test_bytes_of_a_step_are_those_of_what_is_picked_and_of_all_index_keys() -> None:
    weights, kv = resolve_weight_format(SPARSE, None), resolve_kv_format(SPARSE, "bf16")
    work = ModelWork(SPARSE, weights, kv, Layout(tensor_parallel_size=8))
    shapes = [decodes(1, context) for context in (TOPK, TOPK + 1000)]
    table = {name: np.array([float(getattr(shape, name)) for shape in shapes]) for name in COUNTS}
    less, more = work.bytes_moved(table)
    assert more - less == pytest.approx(1000 * 128 * 61 * 8)


def test_what_engines_do_with_short_contexts() -> None:
    assert engine(preset="vllm", version="0.13.0") == Picks(padded=True)
    assert engine(preset="vllm", version="0.24.0") == Picks()
    assert engine(preset="sglang") == Picks(expands_short=True)
    assert engine(preset="tensorrt-llm") == Picks(padded=True)
