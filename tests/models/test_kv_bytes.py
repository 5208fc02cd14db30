"""KV bytes of a token, and tokens of a given pool: arithmetic that must be exact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim.errors import InputError
from sim.models.architecture import Architecture, LayerRun
from sim.models.kv_cache import KvPool, layer_caches, pool_of
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model

GIB = 1 << 30


def _per_token(arch: Architecture, kv: str | dict[str, str] = "bf16", tp: int = 1) -> float:
    caches = layer_caches(arch, arch.layers, resolve_kv_format(arch, kv), tp)
    return sum(cache.layers * cache.bytes_per_token for cache in caches)


def _pool(model: str, kv: str = "bf16", tp: int = 1, block_size: int = 16, blocks_per_state: int = 1) -> KvPool:
    arch = load_model(model)
    caches = layer_caches(arch, arch.layers, resolve_kv_format(arch, kv), tp)
    return pool_of(caches, block_size, blocks_per_state)


def _with_kv_heads(arch: Architecture, kv_heads: int) -> Architecture:
    (run,) = arch.layers
    assert run.attention is not None
    return replace(arch, layers=(replace(run, attention=replace(run.attention, num_kv_heads=kv_heads)),))


def test_llama_70b_takes_320_kib_a_token_and_250_gib_for_100_users_at_8k() -> None:
    per_token = _per_token(load_model("Llama-3-70B"))
    assert per_token == 2 * 80 * 8 * 128 * 2 == 327_680
    assert per_token * 8192 / GIB == 2.5
    assert 100 * per_token * 8192 / GIB == 250


def test_mqa_is_64_times_and_gqa_8_times_under_mha_with_64_heads() -> None:
    arch = load_model("Llama-3-70B")
    mha, gqa, mqa = (_per_token(_with_kv_heads(arch, heads)) for heads in (64, 8, 1))
    assert (mha / gqa, mha / mqa) == (8, 64)


def test_deepseek_caches_one_latent_whatever_the_number_of_heads() -> None:
    assert _per_token(load_model("DeepSeek-V3")) == 61 * (512 + 64) * 2 == 70_272


def test_the_latent_is_whole_on_every_tensor_parallel_rank() -> None:
    arch = load_model("DeepSeek-V3")
    assert _per_token(arch, tp=8) == _per_token(arch)


@pytest.mark.parametrize(("tp", "heads"), [(1, 8), (4, 2), (8, 1), (16, 1), (32, 1)])
def test_kv_heads_split_over_tp_and_replicate_where_there_are_fewer(tp: int, heads: int) -> None:
    assert _per_token(load_model("Llama-3-70B"), tp=tp) == 80 * 2 * heads * 128 * 2


@pytest.mark.parametrize(
    ("kv", "bits_of_a_head"),
    [
        ("fp8", 2 * 128 * 8),
        ("int8", 2 * (128 * 8 + 32)),
        ("int4", 2 * 128 * (4 + 20 / 64)),
        ("kivi2", 2 * 128 * (2 + 32 / 32)),
        ("kvquant3", 2 * 128 * (3 + 0.01 * 48)),
        ({"key": "fp8", "value": "int4"}, 128 * 8 + 128 * (4 + 20 / 64)),
    ],
)
def test_scales_zero_points_and_outliers_are_counted(kv: str | dict[str, str], bits_of_a_head: float) -> None:
    assert _per_token(load_model("Llama-3-70B"), kv) == pytest.approx(80 * 8 * bits_of_a_head / 8)


def test_sparse_attention_adds_the_indexers_key() -> None:
    # sglang#11309 (A15): 61 x 656 bytes were booked, 61 x (656 + 132) used.
    assert _per_token(load_model("DeepSeek-V3.2"), "fp8") == 61 * (656 + 132)


def test_a_latent_has_no_separate_values() -> None:
    with pytest.raises(InputError, match="latent attention caches one vector"):
        _per_token(load_model("DeepSeek-V3"), {"key": "fp8", "value": "bf16"})


def _materialised() -> Architecture:
    """DeepSeek-V2-Lite with latent attention switched off: 16 heads, padded to 256 elements."""
    arch = load_model("DeepSeek-V2-Lite")
    runs = tuple(
        LayerRun(run.count, replace(run.attention, kind="full", num_kv_heads=16, head_dim=256, v_head_dim=256), run.mlp)
        for run in arch.layers
        if run.attention is not None
    )
    return replace(arch, layers=runs)


def test_blocks_of_a_pool_with_latent_attention_off() -> None:
    # vllm#10927 (A13): 35.42 GiB hold 5,373 blocks.
    caches = layer_caches(_materialised(), _materialised().layers, resolve_kv_format(_materialised(), "bf16"), 1)
    assert int(35.42 * GIB) // pool_of(caches, 16).block_bytes == pytest.approx(5373, rel=0.003)


@pytest.mark.parametrize(
    ("source", "model", "kv", "tp", "pool_gib", "tokens"),
    [
        ("vllm#12569 (A04)", "Llama-3.1-70B", "bf16", 1, 6.743, 22_096),
        ("vllm#21348 (A05), smallest rank", "Qwen3-235B-A22B", "bf16", 4, 8.018, 178_880),
        ("vllm#21348 (A06)", "Qwen3-235B-A22B", "bf16", 4, 2 * 8.233, 367_404),
        ("vllm#25350 (A08)", "Qwen3-30B-A3B", "fp8", 1, 10.12, 221_000),
        ("vllm#25350 (A08)", "Qwen3-30B-A3B", "fp8", 1, 5.59, 122_080),
        ("vllm#34076 (A09), all layers", "Qwen3-Coder-30B-A3B-Instruct", "bf16", 1, 24.0, 262_144),
        ("vllm#34076 (A09), all layers", "Qwen3-Coder-30B-A3B-Instruct", "bf16", 1, 3.18, 34_736),
        ("vllm#57047 (A21)", "Qwen3-4B", "bf16", 1, 36.88, 268_560),
        ("pegainfer#422 (A22)", "Qwen3-4B", "bf16", 1, 12116 / 1024, 86_144),
        ("llm-d-benchmark", "Mistral-Small-24B", "bf16", 1, 28.20, 184_832),
    ],
)
def test_tokens_of_a_given_pool(source: str, model: str, kv: str, tp: int, pool_gib: float, tokens: int) -> None:
    blocks = int(pool_gib * GIB) // _pool(model, kv, tp).block_bytes
    assert blocks * 16 == pytest.approx(tokens, rel=0.003), source


def test_gpt_oss_is_printed_with_all_layers_charged() -> None:
    # hf-mem#60 (A11): 5.38 GiB, 78,384 tokens, 73,728 bytes a token.
    pool = _pool("gpt-oss-120b")
    assert sorted((group.kind, group.layers) for group in pool.groups) == [("full", 18), ("sliding", 18)]
    printed = int(5.38 * GIB) // pool.block_bytes // len(pool.groups) * 16
    assert printed == pytest.approx(78_384, rel=0.003)


def test_recurrent_states_set_the_block_and_the_concurrency() -> None:
    # club-3090#612 (A33): 5.98 GiB, 4.33 requests of 131,072 tokens, 567,978 tokens.
    pool = _pool("Qwen3.6-35B-A3B-NVFP4", "fp8", blocks_per_state=2)
    concurrency = int(5.98 * GIB) // pool.block_bytes / pool.blocks(131_072, 8192)
    assert concurrency == pytest.approx(4.33, abs=0.005)
    assert int(concurrency * 131_072) == pytest.approx(567_978, rel=0.003)


def test_gemma_groups_are_cut_to_the_rarer_kind() -> None:
    pool = _pool("gemma-3-27b")
    assert sorted(group.layers for group in pool.groups) == [8, 8, 9, 9, 9, 9, 10]
    assert pool.block_bytes == 10 * 16 * 2 * 16 * 128 * 2


def test_a_sliding_window_stops_growing() -> None:
    pool = _pool("Mistral-7B")
    short, long = pool.blocks(4096, 512), pool.blocks(32_768, 512)
    assert short == 4096 // 16
    assert long == (4096 - 1 + 512) // 16 + 1 + 1


def test_chunked_attention_is_kept_whole() -> None:
    (group,) = _pool("Llama-4-Scout").groups
    assert (group.kind, group.layers) == ("full", 48)
