"""The budget adds up, the smallest rank decides, and a refusal says what would help."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import InputError
from sim.layout import Layout
from sim.models.engine_memory import engine_memory
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.memory import MemoryBudget, memory_budget
from sim.models.quantization import resolve_weight_format
from sim.models.sharding import stages

Ask = Callable[..., MemoryBudget]
GIB = 1 << 30
H200_BYTES = 150_108_897_280


def test_parts_sum_to_the_usable_share(ask: Ask) -> None:
    budget = ask("Llama-3.1-70B", tp=4)
    spent = budget.weights_bytes + budget.activation_bytes + budget.overhead_bytes + budget.kv_bytes
    assert spent == budget.usable_bytes
    assert budget.num_gpu_blocks == budget.kv_bytes // budget.pool.block_bytes


def test_blocks_given_by_hand_replace_the_computed_ones(ask: Ask) -> None:
    budget = ask("Llama-3.1-8B", num_gpu_blocks_override=1000)
    assert (budget.num_gpu_blocks, budget.capacity_tokens) == (1000, 16_000)
    assert budget.kv_bytes == 1000 * 16 * 131_072


def test_fewer_blocks_than_all_kinds_of_layers_need_are_refused_with_the_fewest_that_are_enough(ask: Ask) -> None:
    with pytest.raises(InputError, match="num_gpu_blocks_override: 2 blocks hold next to nothing") as refused:
        ask("gemma-3-4b-it", num_gpu_blocks_override=2)
    least = int(re.findall(r"at least (\d+) blocks", str(refused.value))[0])
    assert ask("gemma-3-4b-it", num_gpu_blocks_override=least).num_gpu_blocks == 2
    with pytest.raises(InputError):
        ask("gemma-3-4b-it", num_gpu_blocks_override=least - 1)


def test_what_does_not_fit_names_the_missing_bytes_and_the_smallest_layouts(ask: Ask) -> None:
    with pytest.raises(InputError) as refused:
        ask("Llama-3.1-70B")
    text = str(refused.value)
    found = re.search(r"\((\d+) bytes\) are missing", text)
    assert found is not None
    assert int(found[1]) == pytest.approx(62.25 * GIB, rel=0.01)
    assert "tensor_parallel_size 2" in text
    assert "pipeline_parallel_size 2" in text


def test_blocks_given_by_hand_must_fit_the_device(ask: Ask) -> None:
    with pytest.raises(
        InputError, match=r"(?s)num_gpu_blocks_override: 100000 blocks need .* give at most (\d+) blocks"
    ) as refused:
        ask("Llama-3.1-8B", num_gpu_blocks_override=100_000)
    most = int(refused.value.remedy.split()[3])
    assert ask("Llama-3.1-8B", num_gpu_blocks_override=most)
    with pytest.raises(InputError):
        ask("Llama-3.1-8B", num_gpu_blocks_override=most + 1)


def test_decoding_frees_what_left_the_window(ask: Ask) -> None:
    budget = ask("gemma-3-27b", tp=2, max_num_batched_tokens=8192, max_model_len=32_768)
    assert budget.concurrency(8192) > 3 * budget.concurrency_while_prefilling(8192)
    full = ask("Llama-3.1-8B")
    assert full.concurrency(4096) == full.concurrency_while_prefilling(4096)


def test_the_bytes_said_to_be_missing_are_enough(ask: Ask) -> None:
    visible = 25_394_413_568
    with pytest.raises(InputError) as refused:
        ask("Llama-3.1-8B", visible, max_model_len=131_072, gpu_memory_utilization=1.0)
    found = re.search(r"\((\d+) bytes\)", str(refused.value))
    assert found is not None
    missing = int(found[1])
    assert ask("Llama-3.1-8B", visible + missing, max_model_len=131_072, gpu_memory_utilization=1.0)
    with pytest.raises(InputError):
        ask("Llama-3.1-8B", visible + missing - 1, max_model_len=131_072, gpu_memory_utilization=1.0)


def test_a_shorter_request_is_offered_where_it_would_fit(ask: Ask) -> None:
    with pytest.raises(InputError) as refused:
        ask("Llama-3.1-8B", 25_394_413_568, max_model_len=131_072)
    found = re.search(r"engine\.max_model_len to (\d+) or less", str(refused.value))
    assert found is not None
    assert ask("Llama-3.1-8B", 25_394_413_568, max_model_len=int(found[1]))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"tp": 3}, "3 does not divide the 64 attention heads"),
        ({"pp": 100}, "100 stages are more than the 80 layers"),
        ({"engine": "vlm"}, "unknown engine"),
        ({"engine": "vllm==new"}, "cannot read a version"),
        ({"quantization": "fp9"}, "unknown weight format"),
        ({"kv": "fp7"}, "unknown format"),
    ],
)
def test_bad_input_is_named(ask: Ask, given: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        ask("Llama-3.1-70B", **given)


def test_experts_must_not_be_fewer_than_the_ranks_that_share_them(ask: Ask) -> None:
    with pytest.raises(InputError, match="16 ranks are more than the 8 experts"):
        ask("Mixtral-8x7B", tp=2, dp=8, ep=True)


def test_remainders_of_layers_go_to_the_stages_before_the_last() -> None:
    arch = load_model("DeepSeek-V3")
    split = [sum(run.count for run in stage.runs) for stage in stages(arch, Layout(pipeline_parallel_size=4))]
    assert split == [15, 15, 16, 15]


def test_the_stage_with_the_fewest_blocks_decides(ask: Ask) -> None:
    budget = ask("Llama-3.1-70B", pp=4)
    assert budget.binding_rank.startswith("pipeline stage")
    assert budget.kv_bytes_per_token_per_rank == 20 * 4096
    assert budget.kv_bytes_per_token == 327_680


def test_data_parallel_attention_holds_a_multiple_of_the_latents(ask: Ask) -> None:
    shared = {"memory_bytes": H200_BYTES, "max_model_len": 8192}
    tensor = ask("DeepSeek-V3", tp=8, **shared)
    data = ask("DeepSeek-V3", dp=8, ep=True, **shared)
    ratio = data.concurrency(8192) / tensor.concurrency(8192)
    assert 4 < ratio < 8  # eight pools instead of eight copies, each smaller: attention weights are whole everywhere
    assert data.weights["attention"] > 5 * tensor.weights["attention"]  # down-projections are whole anyway
    assert data.weights["experts"] == tensor.weights["experts"]


def test_kv_bytes_of_the_engine_count_every_copy(ask: Ask) -> None:
    assert ask("DeepSeek-V3", H200_BYTES, tp=8).kv_bytes_per_token == 8 * 70_272
    assert ask("Llama-3.1-8B", tp=4).kv_bytes_per_token == 131_072


def test_expert_parallel_rounds_experts_up_to_whole_ones(ask: Ask) -> None:
    whole = ask("Qwen3-30B-A3B", tp=4, ep=True).weights["experts"]
    split = ask("Qwen3-30B-A3B", tp=4).weights["experts"]
    assert whole == split  # 128 experts over 4 ranks


def test_vocabulary_is_padded_before_it_is_split(ask: Ask) -> None:
    arch = load_model("Phi-3-mini")
    rows = -(-arch.vocab_size // 64) * 64
    assert ask("Phi-3-mini", tp=4).weights["embedding"] == rows // 4 * arch.hidden_size * 2


def test_tied_embeddings_are_held_once(ask: Ask) -> None:
    assert "lm_head" not in ask("Llama-3.2-1B").weights
    assert "lm_head" in ask("Llama-3.1-8B").weights


def test_a_residual_window_is_charged_for_every_sequence_slot(ask: Ask) -> None:
    budget = ask("Llama-3.1-8B", kv="kivi2", max_num_seqs=64)
    assert budget.charges.residual_bytes == 64 * 128 * 131_072


def test_graphs_are_charged_since_they_are_estimated_before_the_pool(ask: Ask) -> None:
    before, after = ask("Llama-3.1-8B", engine="vllm==0.20"), ask("Llama-3.1-8B", engine="vllm==0.21")
    assert before.charges.graph_bytes == 0 < after.charges.graph_bytes


@given(
    tokens=st.integers(128, 16_384),
    seqs=st.integers(128, 1024),
    model=st.sampled_from(["Llama-3.1-8B", "Mixtral-8x7B", "gemma-3-4b", "DeepSeek-V2-Lite", "Qwen3-Next-80B-A3B"]),
)
def test_a_larger_step_never_leaves_more_blocks(tokens: int, seqs: int, model: str) -> None:
    arch = load_model(model)

    def blocks(batched: int, sequences: int) -> int:
        return memory_budget(
            arch,
            200 * GIB,
            Layout(tensor_parallel_size=2),
            weight_format=resolve_weight_format(arch, None),
            kv_format=resolve_kv_format(arch, "auto"),
            max_num_batched_tokens=batched,
            max_num_seqs=sequences,
            max_model_len=4096,
        ).pool_blocks

    assert blocks(2 * tokens, seqs) <= blocks(tokens, seqs)
    assert blocks(tokens, 2 * seqs) <= blocks(tokens, seqs)


@pytest.mark.parametrize("lengths", [(1, 16), (17, 4096), (4096, 32_768)])
def test_longer_requests_mean_fewer_users(ask: Ask, lengths: tuple[int, int]) -> None:
    budget = ask("gpt-oss-20b", max_model_len=32_768)
    assert budget.concurrency(lengths[1]) <= budget.concurrency(lengths[0])
    assert budget.users(lengths[0]) <= budget.max_num_seqs


@pytest.mark.parametrize(
    "spelling", ["0.15.1", "v0.15.1", "0.15.1rc2", "0.15.1.post1", "0.15.1.dev3+g1a2b", "0.15.1+cu129"]
)
def test_a_release_is_read_without_what_marks_its_build(spelling: str) -> None:
    assert engine_memory(f"vllm=={spelling}") == engine_memory("vllm==0.15.1")


@pytest.mark.parametrize("spelling", ["abc", "0.\u00b2", "0..1", "-1", "1" * 5000, "0.15.x"])
def test_what_is_no_release_is_refused(spelling: str) -> None:
    with pytest.raises(InputError) as caught:
        engine_memory(f"vllm=={spelling}")
    assert caught.value.field == "engine.version"
