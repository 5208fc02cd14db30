"""Bytes of the KV cache of one rank, and how the engine groups unlike layers over one pool of blocks."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from sim.errors import InputError
from sim.models.architecture import Architecture, Attention, LayerRun
from sim.models.kv_format import KvFormat

_STATE_BYTES = 4  # recurrent states of Mamba-2 and gated delta nets are kept in fp32 by default
_CONV_BYTES = 2
# DeepSeek-V3.2 in fp8: 512 latent bytes, 4 fp32 scales, 64 RoPE elements in 16 bit; its indexer adds 128 + 4 bytes.
_SPARSE_FP8_SCALES_BYTES = 16
_INDEX_SCALE_BYTES = 4


@dataclass(frozen=True, slots=True)
class LayerCache:
    """The cache of like layers on one rank.

    Attributes:
        kind: full | sliding | chunked | mla | linear.
        layers: how many there are on this rank.
        bytes_per_token: of one layer; 0 for linear.
        window: tokens kept, None where all are.
        bytes_per_sequence: of one layer, whatever the length (linear state, full-precision residual window).
    """

    kind: str
    layers: int
    bytes_per_token: float
    window: int | None = None
    bytes_per_sequence: float = 0.0


def layer_caches(
    arch: Architecture, runs: tuple[LayerRun, ...], kv: KvFormat, tensor_parallel_size: int
) -> tuple[LayerCache, ...]:
    """The caches of the layers in ``runs`` on one TP rank; like layers are merged.

    KV heads split over TP and replicate where there are fewer than ranks; the MLA latent is whole on every rank.
    """
    merged: dict[tuple[str, float, int | None, float], int] = {}
    for run in runs:
        if run.attention is None:
            continue
        key = _cache_of(run.attention, kv, tensor_parallel_size)
        merged[key] = merged.get(key, 0) + run.count
    return tuple(
        LayerCache(kind, layers, per_token, window, per_sequence)
        for (kind, per_token, window, per_sequence), layers in merged.items()
    )


def _cache_of(attention: Attention, kv: KvFormat, tp: int) -> tuple[str, float, int | None, float]:
    if attention.kind == "linear":
        state = attention.state_elements * _STATE_BYTES + attention.conv_state_elements * _CONV_BYTES
        return "linear", 0.0, None, state / tp
    if attention.kind == "mla":
        per_token = _latent_bytes(attention, kv)
        return "mla", per_token, None, 0.0
    heads = max(1, attention.num_kv_heads // tp)
    bits = heads * (attention.head_dim * kv.key.bits + kv.key.bits_per_head)
    bits += heads * (attention.v_head_dim * kv.value.bits + kv.value.bits_per_head)
    residual = heads * (
        kv.key.residual_tokens * attention.head_dim * 16 + kv.value.residual_tokens * attention.v_head_dim * 16
    )
    return attention.kind, bits / 8, attention.window, residual / 8


def _latent_bytes(attention: Attention, kv: KvFormat) -> float:
    """One latent and one RoPE key a token, whatever the number of heads."""
    if kv.key != kv.value:
        raise InputError(
            "engine.kv_cache_dtype",
            f"keys in {kv.key.name} and values in {kv.value.name}, but latent attention caches one vector for both",
            "give one format",
        )
    latent, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
    if attention.index_head_dim and kv.kernel_dtype == "fp8":
        cached: float = latent + _SPARSE_FP8_SCALES_BYTES + 2 * rope
    else:
        cached = ((latent + rope) * kv.key.bits + kv.key.bits_per_head) / 8
    return cached + (attention.index_head_dim + _INDEX_SCALE_BYTES if attention.index_head_dim else 0)


@dataclass(frozen=True, slots=True)
class KvGroup:
    """Layers that share a block table.

    Attributes:
        kind: full | sliding | linear.
        layers: of the group.
        block_tokens: of one block.
        window: tokens kept, None where all are.
        blocks_per_sequence: what a sequence holds whatever its length (linear).
    """

    kind: str
    layers: int
    block_tokens: int
    window: int | None = None
    blocks_per_sequence: int = 0

    def blocks(self, tokens: int, batched_tokens: int) -> int:
        """Most blocks a sequence of ``tokens`` holds while up to ``batched_tokens`` of it are computed in a step."""
        if self.kind == "linear":
            return self.blocks_per_sequence
        whole = -(-tokens // self.block_tokens)
        if self.window is None:
            return whole
        # One more, since a window need not begin at a block's edge.
        return min(whole, -(-min(tokens, self.window - 1 + batched_tokens) // self.block_tokens) + 1)


@dataclass(frozen=True, slots=True)
class KvPool:
    """Groups over one pool of equal blocks.

    Attributes:
        block_bytes: of one block, all its layers together.
    """

    groups: tuple[KvGroup, ...]
    block_bytes: int

    def blocks(self, tokens: int, batched_tokens: int) -> int:
        """Most blocks that one sequence of ``tokens`` holds over all groups."""
        return sum(group.blocks(tokens, batched_tokens) for group in self.groups)


def pool_of(caches: tuple[LayerCache, ...], block_size: int, blocks_per_state: int = 1) -> KvPool:
    """Group the layers of a rank as vLLM's hybrid allocator does (vllm/v1/core/kv_cache_utils.py).

    Like layers form one group. Unlike ones are cut into groups of equally many layers (the smallest kind's count, or
    the largest's where that is within a quarter), which draw blocks of one size from one pool. Chunked attention is
    kept whole, as vLLM does by default. Where layers carry a state, the attention block grows until a page holds it.
    """
    kept = [cache for cache in caches if cache.kind != "linear" and (cache.kind != "sliding" or cache.window is None)]
    kept += [cache for cache in caches if cache.kind == "sliding" and cache.window is not None]
    states = [cache for cache in caches if cache.kind == "linear"]
    kinds = {cache.window if cache.kind == "sliding" else None for cache in kept}
    if not states and len(kinds) <= 1:
        window = kinds.pop() if kinds else None
        layers = sum(cache.layers for cache in kept)
        block_bytes = ceil(block_size * sum(cache.layers * cache.bytes_per_token for cache in kept))
        return KvPool((KvGroup("sliding" if window else "full", layers, block_size, window),), block_bytes)
    return _hybrid(kept, states, block_size, blocks_per_state)


def _hybrid(kept: list[LayerCache], states: list[LayerCache], block_size: int, blocks_per_state: int) -> KvPool:
    widest = max((cache.bytes_per_token for cache in kept), default=0.0)
    state_bytes = max((cache.bytes_per_sequence for cache in states), default=0.0)
    if widest and state_bytes:
        block_size = max(block_size, 16 * ceil(state_bytes / (16 * widest)))
    page_bytes = max(block_size * widest, state_bytes)
    counts: dict[tuple[str, int, int | None], int] = {}
    for cache in kept:
        window = cache.window if cache.kind == "sliding" else None
        tokens = int(page_bytes // cache.bytes_per_token)
        key = ("sliding" if window else "full", tokens, window)
        counts[key] = counts.get(key, 0) + cache.layers
    for cache in states:
        key = ("linear", block_size, None)
        counts[key] = counts.get(key, 0) + cache.layers
    fewest, most = min(counts.values()), max(counts.values())
    size = most if most < 1.25 * fewest else fewest
    groups = [
        KvGroup(kind, layers // parts + (index < layers % parts), tokens, window, _held(kind, blocks_per_state))
        for (kind, tokens, window), layers in counts.items()
        for parts in [-(-layers // size)]
        for index in range(parts)
    ]
    return KvPool(tuple(groups), ceil(size * page_bytes))


def _held(kind: str, blocks_per_state: int) -> int:
    return blocks_per_state if kind == "linear" else 0
