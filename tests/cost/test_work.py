from __future__ import annotations

import numpy as np
import pytest

from sim.cost.work import ModelWork
from sim.layout import Layout
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.quantization import resolve_weight_format

NAMES = ("decode_seqs", "decode_context", "decode_context_windowed", "prefill_tokens", "prefill_pairs",
         "prefill_pairs_windowed", "prefill_context", "prefill_context_windowed", "sampled_seqs")  # fmt: skip


def shape(**given: float) -> dict[str, np.ndarray]:
    return {name: np.array([given.get(name, 0.0)]) for name in NAMES}


def work(model: str, tensor: int = 1) -> ModelWork:
    arch = load_model(model)
    layout = Layout.parse({"tensor_parallel_size": tensor})
    return ModelWork(arch, resolve_weight_format(arch, None), resolve_kv_format(arch, "auto"), layout)


def test_a_decoded_token_costs_two_flops_a_weight_and_reads_them_all() -> None:
    # Llama-3.1-8B: 8.03e9 parameters less the 0.525e9 of the embedding, which is looked up
    one = shape(decode_seqs=1, sampled_seqs=1)
    assert work("Llama-3.1-8B").flops(one)[0] == pytest.approx(2 * 7.505e9, rel=1e-3)
    assert work("Llama-3.1-8B").bytes_moved(one)[0] == pytest.approx(2 * 7.505e9, rel=1e-3)


def test_context_is_read_at_the_size_of_its_cache() -> None:
    # 32 layers x 8 KV heads x 128 x (K and V) x 2 bytes = 131072 bytes a token
    empty, full = shape(decode_seqs=1), shape(decode_seqs=1, decode_context=1000, decode_context_windowed=1000)
    model = work("Llama-3.1-8B")
    assert model.bytes_moved(full)[0] - model.bytes_moved(empty)[0] == 131072 * 1000
    assert model.flops(full)[0] - model.flops(empty)[0] == 4 * 32 * 32 * 128 * 1000


def test_splitting_a_model_over_gpus_changes_neither() -> None:
    step = shape(decode_seqs=8, decode_context=9000, decode_context_windowed=9000, sampled_seqs=8)
    alone, split = work("Llama-3.1-70B"), work("Llama-3.1-70B", tensor=4)
    assert split.flops(step)[0] == pytest.approx(alone.flops(step)[0], rel=1e-6)
    assert split.bytes_moved(step)[0] == pytest.approx(alone.bytes_moved(step)[0], rel=1e-6)


def test_a_lone_token_reads_only_the_experts_it_visits() -> None:
    # Mixtral-8x7B: 46.7e9 parameters of which 12.9e9 serve a token
    model = work("Mixtral-8x7B-v0.1")
    assert model.flops(shape(decode_seqs=1, sampled_seqs=1))[0] == pytest.approx(2 * 12.75e9, rel=1e-2)
    few, many = (model.bytes_moved(shape(decode_seqs=n))[0] for n in (1, 200))
    assert few < 0.3 * many
    assert many == pytest.approx(2 * 46.4e9, rel=1e-2)
