from __future__ import annotations

import itertools

import numpy as np
import pytest

from hardware_profiles import load_engine_overheads, load_hardware
from sim.cost import CostModel, StepShape
from sim.layout import Layout
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.quantization import resolve_weight_format

MODELS = (
    ("meta-llama/Llama-3.1-8B", "h100-sxm", 1),
    ("meta-llama/Llama-3.1-70B", "a100-sxm-80gb", 4),
    ("mistralai/Mixtral-8x7B-v0.1", "h100-sxm", 2),
    ("mistralai/Mistral-7B-v0.1", "l40s", 1),
    ("deepseek-ai/DeepSeek-V3", "h200-sxm", 8),
    ("Qwen/Qwen3-30B-A3B", "mi300x", 1),
)


def model(name: str, hardware: str = "h100-sxm", tensor: int = 1, **given: object) -> CostModel:
    arch, device = load_model(name), load_hardware(hardware)
    layout = Layout.parse({"tensor_parallel_size": tensor} | given.pop("layout", {}))  # type: ignore[operator]
    weights = resolve_weight_format(arch, given.pop("quantization", None))  # type: ignore[arg-type]
    kv = resolve_kv_format(arch, given.pop("kv", "auto"))  # type: ignore[arg-type]
    return CostModel(arch, weights, kv, device, layout, load_engine_overheads("vllm"), **given)  # type: ignore[arg-type]


def decode(cost: CostModel, seqs: int, context: int) -> StepShape:
    seen = min(context, cost.window) if cost.window else context
    return StepShape(
        decode_seqs=seqs, decode_context=seqs * context, decode_context_windowed=seqs * seen, sampled_seqs=seqs
    )


def prefill(cost: CostModel, new: int, before: int = 0, chunks: int = 1) -> StepShape:
    shape = StepShape(sampled_seqs=chunks)
    for _ in range(chunks):
        shape.add_prefill(new, before, cost.window)
    return shape


def mixed(cost: CostModel, seqs: int, context: int, new: int) -> StepShape:
    shape = decode(cost, seqs, context)
    shape.add_prefill(new, 0, cost.window)
    return shape


@pytest.mark.parametrize(("name", "hardware", "tensor"), MODELS)
def test_the_breakdown_sums_to_the_step(name: str, hardware: str, tensor: int) -> None:
    cost = model(name, hardware, tensor)
    for shape in (decode(cost, 1, 10), decode(cost, 33, 5000), prefill(cost, 700), mixed(cost, 20, 900, 512)):
        parts = cost.breakdown(shape)
        assert sum(parts.values()) == pytest.approx(cost.step(shape), rel=1e-12)
        assert all(value >= 0.0 for value in parts.values())


def test_a_step_without_tokens_takes_no_time() -> None:
    cost = model("meta-llama/Llama-3.1-8B")
    assert cost.step(StepShape()) == 0.0
    assert cost.breakdown(StepShape()) == {}


@pytest.mark.parametrize(("name", "hardware", "tensor"), MODELS)
def test_a_run_of_decode_steps_is_the_steps_one_by_one(name: str, hardware: str, tensor: int) -> None:
    cost = model(name, hardware, tensor)
    for seqs, context in ((1, 60), (17, 900), (64, 4000)):
        shape = decode(cost, seqs, context)
        growing = 0 if cost.window and context >= cost.window else seqs
        run = cost.decode_run(shape, growing)
        for step in itertools.islice(itertools.count(), int(min(run.steps, 300))):
            later = decode(cost, seqs, context)
            later.decode_context += step * seqs
            later.decode_context_windowed += step * growing
            assert run.first + step * run.increment == pytest.approx(cost.step(later), rel=1e-12)


@pytest.mark.parametrize(("name", "hardware", "tensor"), MODELS)
def test_many_contexts_at_once_equal_step(name: str, hardware: str, tensor: int) -> None:
    cost = model(name, hardware, tensor)
    shape = decode(cost, 12, 500)
    contexts = np.array([12 * 500, 12 * 501, 12 * 9000])
    for context, seconds in zip(contexts.tolist(), cost.decode_times(shape, contexts, contexts).tolist(), strict=True):
        shape.decode_context = shape.decode_context_windowed = context
        assert cost.step(shape) == seconds


def test_an_8k_prompt_takes_at_least_its_flops_at_peak() -> None:
    cost = model("meta-llama/Llama-3.1-8B")
    flops = 2 * 6.98e9 * 8192 + 32 * 4 * 4096 * 8192 * 8193 / 2
    assert cost.step(prefill(cost, 8192)) > flops / 989.4e12


@pytest.mark.parametrize(("name", "hardware", "tensor"), MODELS[:4])
def test_a_decode_step_takes_at_least_the_reading_of_weights_and_cache(name: str, hardware: str, tensor: int) -> None:
    cost = model(name, hardware, tensor)
    arch, device = load_model(name), load_hardware(hardware)
    run = arch.layers[0]
    assert run.attention is not None
    per_token = 2.0 * run.attention.num_kv_heads * (run.attention.head_dim + run.attention.v_head_dim)
    cached = 200 * 2000 * per_token * arch.num_layers / tensor
    seen = cached if cost.window is None else cached * min(1.0, cost.window / 2000)
    assert cost.breakdown(decode(cost, 200, 2000))["decode_attention"] >= seen / device.memory_bandwidth_bytes_per_s


@pytest.mark.parametrize(("name", "hardware", "tensor"), MODELS)
def test_more_of_anything_never_takes_less_time(name: str, hardware: str, tensor: int) -> None:
    cost = model(name, hardware, tensor)
    batches = [cost.step(decode(cost, seqs, 1000)) for seqs in (1, 2, 7, 8, 32, 100, 256, 512)]
    contexts = [cost.step(decode(cost, 16, context)) for context in (1, 100, 1000, 10_000, 131_072)]
    prompts = [cost.step(prefill(cost, new)) for new in (1, 128, 512, 1000, 8192, 32_768, 131_072)]
    for series in (batches, contexts, prompts):
        assert series == sorted(series)


def test_twice_the_prompt_takes_about_twice_the_time_and_more_when_attention_rules() -> None:
    cost = model("meta-llama/Llama-3.1-8B")
    short, double = cost.step(prefill(cost, 2048)), cost.step(prefill(cost, 4096))
    assert 1.85 < double / short < 2.2
    long, twice = cost.step(prefill(cost, 65_536)), cost.step(prefill(cost, 131_072))
    assert 2.5 < twice / long < 4.1


def test_a_small_batch_decodes_in_the_time_of_one() -> None:
    cost = model("meta-llama/Llama-3.1-70B", tensor=4)
    assert cost.step(decode(cost, 8, 500)) < 1.15 * cost.step(decode(cost, 1, 500))


def test_more_ranks_are_faster_but_not_in_proportion() -> None:
    one, four = (model("Qwen/Qwen3-32B", tensor=tensor) for tensor in (1, 4))
    ratio = one.step(decode(one, 16, 1000)) / four.step(decode(four, 16, 1000))
    assert 2.0 < ratio < 4.0


def test_a_chunk_after_a_long_prefix_costs_more_than_the_first() -> None:
    cost = model("meta-llama/Llama-3.1-8B")
    assert cost.step(prefill(cost, 2048, before=30_000)) > 1.3 * cost.step(prefill(cost, 2048))


def test_attention_stops_growing_at_the_window() -> None:
    cost = model("mistralai/Mistral-7B-v0.1")
    assert cost.window == 4096
    inside, outside = (cost.step(decode(cost, 32, context)) for context in (4096, 32_000))
    assert outside == inside


def test_narrow_formats_speed_up_decoding() -> None:
    wide = model("meta-llama/Llama-3.1-70B", tensor=4)
    narrow = model("meta-llama/Llama-3.1-70B", tensor=4, quantization="fp8")
    narrower = model("meta-llama/Llama-3.1-70B", tensor=4, quantization="awq")
    steps = [cost.step(decode(cost, 4, 500)) for cost in (wide, narrow, narrower)]
    assert steps == sorted(steps, reverse=True)
    cached = model("meta-llama/Llama-3.1-70B", tensor=4, kv="fp8")
    assert cached.step(decode(cached, 64, 8000)) < wide.step(decode(wide, 64, 8000))


def test_host_time_hides_behind_the_gpu_only_with_async_scheduling() -> None:
    hidden, exposed = (model("meta-llama/Llama-3.1-8B", async_scheduling=flag) for flag in (True, False))
    shape = decode(hidden, 16, 1000)
    host = hidden.overheads.step_host_s.value + 16 * hidden.overheads.seq_host_s.value
    assert exposed.step(shape) == pytest.approx(hidden.step(shape) + host)
    assert hidden.breakdown(shape)["host"] == pytest.approx(0.0)
    assert exposed.breakdown(shape)["host"] == pytest.approx(host)


def test_a_batch_past_the_captured_graphs_waits_for_its_launches() -> None:
    cost = model("Qwen/Qwen3-30B-A3B", "gb300", 8)
    captured, eager = decode(cost, cost.overheads.max_cudagraph_tokens, 10), decode(cost, 520, 10)
    assert cost.step(eager) > cost.step(captured) + 1e-3
    assert cost.breakdown(eager)["host"] > 0.0


def test_a_small_model_on_a_fast_gpu_waits_for_the_host() -> None:
    cost = model("Qwen/Qwen3-30B-A3B", "gb300", 8)
    shape = decode(cost, 1, 100)
    host = cost.overheads.step_host_s.value + cost.overheads.seq_host_s.value
    assert cost.step(shape) >= host


def test_truncated_sampling_sorts_the_vocabulary() -> None:
    greedy, truncated = (model("meta-llama/Llama-3.1-8B", sampler=kind) for kind in ("greedy", "truncated"))
    extra = truncated.step(decode(truncated, 8, 500)) - greedy.step(decode(greedy, 8, 500))
    assert 0.3e-3 < extra < 1e-3


def test_decoding_beside_prefill_costs_whole_tiles_where_the_kernel_says_so() -> None:
    cost = model("Qwen/Qwen3-14B", "a100-sxm-80gb")
    alone, beside = decode(cost, 40, 700), mixed(cost, 40, 700, 16)
    grown = cost.breakdown(beside)["decode_attention"] / cost.breakdown(alone)["decode_attention"]
    assert grown > 1.5


def test_experts_spread_over_ranks_wait_for_the_busiest() -> None:
    sharded = model("Qwen/Qwen3-30B-A3B", "h100-sxm", 4)
    spread = model("Qwen/Qwen3-30B-A3B", "h100-sxm", 4, layout={"enable_expert_parallel": True})
    shape = prefill(sharded, 4096)
    assert spread.step(shape) != sharded.step(shape)


@pytest.mark.parametrize(("gpu", "least", "most"), [("h100-sxm", 1.4, 1.8), ("h200-sxm", 1.2, 1.6)])
def test_fp8_cache_halves_the_bytes_but_not_the_time_on_hopper(gpu: str, least: float, most: float) -> None:
    # The tables of measured kernels say so: the FP8 kernel reaches a smaller part of the bandwidth.
    plain, narrow = (model("meta-llama/Llama-3.1-8B", gpu, kv=kv) for kv in ("auto", "fp8"))
    shape = decode(plain, 64, 8192)
    gain = plain.breakdown(shape)["decode_attention"] / narrow.breakdown(shape)["decode_attention"]
    assert least < gain < most


def test_a_cache_that_is_widened_in_the_kernel_gains_no_more_than_its_bytes() -> None:
    times = {}
    for kv in ("auto", "fp8", "int8", "int4"):
        cost = model("meta-llama/Llama-3.1-8B", kv=kv)
        times[kv] = cost.breakdown(decode(cost, 64, 8192))["decode_attention"]
    assert times["auto"] > times["fp8"] >= 0.99 * times["int8"] > times["int4"] > times["auto"] / 4
