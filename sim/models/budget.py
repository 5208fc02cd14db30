"""Where the bytes of one GPU go, rank by rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Final

from sim.layout import Layout
from sim.models.activation import Batch, activation_bytes, layer_activation_bytes
from sim.models.architecture import Architecture
from sim.models.draft import Draft
from sim.models.engine_memory import CONTEXT_BYTES, MIB, RUNTIME_BYTES, EngineMemory, communicator_bytes
from sim.models.kv_cache import KvPool, LayerCache, layer_caches, pool_of
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat
from sim.models.sharding import Stage, stages, weight_bytes

_MAX_GRAPH_TOKENS: Final = 512


@dataclass(frozen=True, slots=True)
class Charges:
    """Bytes that one GPU spends beside weights and KV blocks, as far as the engine charges them to its share.

    Attributes:
        activation_bytes: peak of the profiling pass.
        graph_bytes: estimate for CUDA graphs.
        context_bytes: CUDA context.
        communicator_bytes: NCCL channels and all-reduce buffers.
        runtime_bytes: kernels and handles.
        residual_bytes: full-precision windows of a quantised cache, one a sequence slot.
    """

    activation_bytes: int = 0
    graph_bytes: int = 0
    context_bytes: int = 0
    communicator_bytes: int = 0
    runtime_bytes: int = 0
    residual_bytes: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return (
            self.activation_bytes
            + self.graph_bytes
            + self.context_bytes
            + self.communicator_bytes
            + self.runtime_bytes
            + self.residual_bytes
        )


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """Where the bytes of the binding GPU go. All bytes are of one GPU unless said otherwise.

    Attributes:
        total_bytes: what the driver reports.
        usable_bytes: the share the engine may use.
        weights_bytes: by component, rotary tables included.
        charges: everything else that is taken before the blocks.
        kv_bytes: left for blocks.
        caches: the cache of each kind of layer on this rank.
        pool: how those layers share blocks.
        pool_blocks: blocks in the pool (the engine's own ``num_gpu_blocks``).
        num_gpu_blocks: the same in whole tokens of context: blocks of `block_size` that requests of ``max_model_len``
            find. Equal to `pool_blocks` where all layers are alike.
        binding_rank: the rank that has the fewest blocks, in words.
        kv_bytes_per_token: KV bytes of one token over all GPUs of the engine.
        kv_bytes_per_token_per_rank: on the binding GPU.
        rules: of the engine.
    """

    arch: Architecture
    layout: Layout
    total_bytes: int
    usable_bytes: int
    weights: dict[str, int]
    charges: Charges
    kv_bytes: int
    caches: tuple[LayerCache, ...]
    pool: KvPool
    pool_blocks: int
    num_gpu_blocks: int
    block_size: int
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    binding_rank: str
    kv_bytes_per_token: int
    kv_bytes_per_token_per_rank: int
    rules: EngineMemory

    @property
    def weights_bytes(self) -> int:
        """All weights of the rank."""
        return sum(self.weights.values())

    @property
    def activation_bytes(self) -> int:
        """Peak of the profiling pass."""
        return self.charges.activation_bytes

    @property
    def overhead_bytes(self) -> int:
        """CUDA graphs, context, communicators, kernels and handles, residual windows."""
        return self.charges.total - self.charges.activation_bytes

    @property
    def capacity_tokens(self) -> int:
        """Tokens that one pool (one data-parallel rank) holds for requests of ``max_model_len``."""
        return self.num_gpu_blocks * self.block_size

    @property
    def capacity_tokens_all_layers(self) -> int:
        """The lower bound: every layer charged for every token, as vLLM printed it before 0.21."""
        return self.pool_blocks // len(self.pool.groups) * min(group.block_tokens for group in self.pool.groups)

    def concurrency(self, tokens: int) -> float:
        """Requests of ``tokens`` tokens each that the engine holds while they decode, over its data-parallel ranks."""
        return self.pool_blocks / self.pool.blocks(tokens, 1) * self.layout.data_parallel_size

    def concurrency_while_prefilling(self, tokens: int) -> float:
        """The same where each has a whole step of its prompt in flight, as the engine reports it.

        Less than `concurrency` only where layers keep a window: a step's tokens are held until it ends.
        """
        blocks = self.pool.blocks(tokens, self.max_num_batched_tokens)
        return self.pool_blocks / blocks * self.layout.data_parallel_size

    def users(self, tokens: int) -> int:
        """Whole requests of ``tokens`` tokens at once: what memory holds, cut to ``max_num_seqs`` a rank."""
        held = self.pool_blocks // self.pool.blocks(tokens, 1)
        return min(held, self.max_num_seqs) * self.layout.data_parallel_size


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a budget depends on, but the layout."""

    arch: Architecture
    memory_bytes: int
    weights: WeightFormat
    kv: KvFormat
    utilization: float
    batch: Batch
    override: int | None
    rules: EngineMemory
    links: str
    draft: Draft | None = None


def budget_of(question: Question, layout: Layout) -> MemoryBudget:
    """The budget of the rank with the fewest blocks, whether or not it fits (``kv_bytes`` may be negative)."""
    ranks = [_rank(question, layout, stage) for stage in stages(question.arch, layout)]
    binding = min(ranks, key=lambda rank: (rank.pool_blocks / rank.pool.blocks(rank.max_model_len, 1), rank.kv_bytes))
    over_all_gpus = layout.tensor_parallel_size * sum(rank.kv_bytes_per_token_per_rank for rank in ranks)
    return replace(binding, kv_bytes_per_token=over_all_gpus)


def _rank(question: Question, layout: Layout, stage: Stage) -> MemoryBudget:
    arch, batch, rules = question.arch, question.batch, question.rules
    weights = weight_bytes(arch, layout, question.weights, stage, rules)
    caches = layer_caches(arch, stage.runs, question.kv, layout.tensor_parallel_size)
    if question.draft is not None and stage.last:
        weights["draft"] = question.draft.rank_bytes(rules)
        caches += question.draft.caches(question.kv)
    pool = pool_of(caches, batch.block_size, rules.blocks_per_state)
    charges = _charges(question, layout, stage, caches)
    usable = _usable_bytes(question, layout, sum(weights.values()) + charges.total)
    kv_bytes = usable - sum(weights.values()) - charges.total
    blocks = max(0, kv_bytes // max(1, pool.block_bytes))  # a stage may hold no cache at all
    if question.override is not None:
        blocks, kv_bytes = question.override, question.override * pool.block_bytes
    per_token = ceil(sum(cache.layers * cache.bytes_per_token for cache in caches))
    return MemoryBudget(
        arch=arch,
        layout=layout,
        total_bytes=question.memory_bytes,
        usable_bytes=usable,
        weights=weights,
        charges=charges,
        kv_bytes=kv_bytes,
        caches=caches,
        pool=pool,
        pool_blocks=blocks,
        num_gpu_blocks=_whole_blocks(pool, blocks, batch),
        block_size=batch.block_size,
        max_model_len=batch.max_model_len,
        max_num_batched_tokens=batch.max_num_batched_tokens,
        max_num_seqs=batch.max_num_seqs,
        binding_rank=_name(layout, stage),
        kv_bytes_per_token=per_token,
        kv_bytes_per_token_per_rank=per_token,
        rules=rules,
    )


def _charges(question: Question, layout: Layout, stage: Stage, caches: tuple[LayerCache, ...]) -> Charges:
    """What the engine charges to its share beside weights and blocks."""
    arch, batch, rules = question.arch, question.batch, question.rules
    eager, lazy = communicator_bytes(layout, question.links)
    residual = _residual_bytes(caches, batch.max_num_seqs)
    if not rules.profiles:
        return Charges(residual_bytes=residual)
    return Charges(
        activation_bytes=activation_bytes(arch, layout, batch, rules, stage.last),
        graph_bytes=_graph_bytes(arch, layout, batch) if rules.counts_graphs else 0,
        context_bytes=CONTEXT_BYTES if rules.counts_context else 0,
        communicator_bytes=lazy + (eager if rules.counts_eager_communicator else 0),
        runtime_bytes=RUNTIME_BYTES,
        residual_bytes=residual,
    )


def _usable_bytes(question: Question, layout: Layout, charged: int) -> int:
    """The bytes that weights, charges and blocks together may fill."""
    total, share = question.memory_bytes, question.utilization
    if question.rules.pool == "share_of_total":
        return ceil(total * share)
    if question.rules.pool == "share_of_free_start":
        return floor((total - CONTEXT_BYTES - communicator_bytes(layout, question.links)[0]) * share)
    return charged + floor(max(0, total - charged) * share)


def _graph_bytes(arch: Architecture, layout: Layout, batch: Batch) -> int:
    """What the engine estimates for its CUDA graphs: the largest piecewise and the largest full graph with their
    activations, and 1 MiB for every other (vllm/v1/worker/gpu_model_runner.py, profile_cudagraph_memory)."""
    piecewise = min(2 * batch.max_num_seqs, _MAX_GRAPH_TOKENS)
    full = min(batch.max_num_seqs, _MAX_GRAPH_TOKENS)
    held = sum(
        layer_activation_bytes(arch, layout, replace(batch, max_num_batched_tokens=size)) for size in (piecewise, full)
    )
    return held + MIB * (_captured_sizes(piecewise) + _captured_sizes(full))


def _captured_sizes(largest: int) -> int:
    """1, 2, 4, then steps of 8 to 256 and of 16 beyond."""
    return 3 + min(largest, 256) // 8 + max(0, largest - 256) // 16


def _residual_bytes(caches: tuple[LayerCache, ...], max_num_seqs: int) -> int:
    """Full-precision windows of a quantised cache, one for each sequence slot (recurrent states live in the pool)."""
    per_sequence = sum(cache.layers * cache.bytes_per_sequence for cache in caches if cache.kind != "linear")
    return ceil(per_sequence * max_num_seqs)


def _whole_blocks(pool: KvPool, blocks: int, batch: Batch) -> int:
    """Blocks of ``block_size`` tokens of context that requests of the longest length find in the pool."""
    if len(pool.groups) == 1 and pool.groups[0].block_tokens == batch.block_size:
        return blocks
    needed = pool.blocks(batch.max_model_len, batch.max_num_batched_tokens)
    return blocks * batch.max_model_len // (needed * batch.block_size)


def _name(layout: Layout, stage: Stage) -> str:
    """The rank in words."""
    if layout.pipeline_parallel_size == 1:
        return "each GPU (all alike)" if layout.gpus_per_replica > 1 else "the one GPU"
    held = "the embedding" if stage.first else "the LM head" if stage.last else "neither embedding nor LM head"
    layers = sum(run.count for run in stage.runs)
    return f"pipeline stage {stage.index + 1} of {layout.pipeline_parallel_size} ({layers} layers and {held})"
