"""FlashAttention 3 over a cache in pages of one token, as SGLang has it by default."""

from __future__ import annotations

from typing import Any

import pytest

from sim import Scenario, simulate
from sim.assemble import cost_model, served_by
from sim.cost.shape import StepShape, StepTimer
from sim.errors import InputError


def timer(model: str = "meta-llama/Llama-3.1-8B", hardware: str = "h100-sxm", **engine: Any) -> StepTimer:
    document = {
        "model": model,
        "hardware": hardware,
        "engine": {"preset": "sglang", "max_model_len": 8192, **engine},
        "workload": {"num_requests": 1, "arrivals": {"process": "closed_loop", "concurrency": 1}}
        | dict.fromkeys(("prompt_tokens", "output_tokens"), 1),
    }
    scenario = Scenario.from_dict(document).resolved()
    return cost_model(scenario, served_by(scenario))


def decode(seqs: int = 16, context: int = 1280) -> StepShape:
    return StepShape(
        decode_seqs=seqs, decode_context=seqs * context, decode_context_windowed=seqs * context, sampled_seqs=seqs
    )


def prefill(seqs: int = 16, tokens: int = 1024) -> StepShape:
    shape = StepShape(sampled_seqs=seqs)
    for _ in range(seqs):
        shape.add_prefill(tokens, 0, None)
    return shape


def test_a_step_takes_what_sglang_measured_over_pages_of_one_token() -> None:
    """sgl-project/sglang#4832: 8.96 and 7.71 ms, 376.8 and 370.0 ms; the differences are what the figures come from."""
    plain, gathered = timer(), timer(attention_backend="fa3")
    assert gathered.step(decode()) == pytest.approx(8.96e-3, rel=0.05)
    assert plain.step(decode()) == pytest.approx(7.71e-3, rel=0.05)
    assert gathered.step(prefill()) - plain.step(prefill()) == pytest.approx(
        (376.8 - (370.0 + 374.7) / 2) / 1e3, rel=0.15
    )


@pytest.mark.parametrize(("part", "shape", "times"), [("decode", decode(), 1.9), ("prefill", prefill(), 1.3)])
def test_attention_alone_takes_longer(part: str, shape: StepShape, times: float) -> None:
    plain, gathered = (timer(attention_backend=name).breakdown(shape) for name in (None, "fa3"))
    assert gathered.pop(f"{part}_attention") == pytest.approx(times * plain.pop(f"{part}_attention"))
    assert gathered == pytest.approx(plain)


def test_larger_pages_are_those_of_the_tables() -> None:
    paged = {"block_size": 64, "kv_allocation": "paged"}
    assert timer(attention_backend="fa3", **paged).step(decode()) == timer(**paged).step(decode())


def test_latents_are_read_by_other_kernels() -> None:
    plain, gathered = (timer("deepseek-ai/DeepSeek-V2-Lite", attention_backend=name) for name in (None, "fa3"))
    assert gathered.step(decode()) == plain.step(decode())


def test_jumps_change_nothing() -> None:
    document = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h200-sxm",
        "engine": {"preset": "sglang", "max_model_len": 8192, "attention_backend": "fa3"},
        "workload": {
            "num_requests": 40,
            "arrivals": {"process": "poisson", "rate_per_s": 20.0},
            "prompt_tokens": {"distribution": "uniform", "min": 10, "max": 3000},
            "output_tokens": {"distribution": "uniform", "min": 1, "max": 200},
        },
    }
    jumped, stepped = (simulate(Scenario.from_dict(document), exact=exact).requests for exact in (False, True))
    assert jumped["finish_s"].to_numpy() == pytest.approx(stepped["finish_s"].to_numpy(), abs=1e-9)


def test_other_generations_have_other_kernels() -> None:
    with pytest.raises(InputError, match="known of Hopper alone"):
        timer(hardware="b200", attention_backend="fa3")


def test_it_is_a_knob_of_sglang() -> None:
    with pytest.raises(InputError, match="knob of sglang"):
        timer(preset="vllm", attention_backend="fa3")
