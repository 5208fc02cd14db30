"""The memory budget of one GPU: where its bytes go, and how many KV blocks are left."""

from __future__ import annotations

from sim.errors import InputError
from sim.layout import Layout
from sim.models.activation import Batch
from sim.models.architecture import Architecture
from sim.models.budget import MemoryBudget, Question, budget_of
from sim.models.draft import Draft
from sim.models.engine_memory import engine_memory
from sim.models.fit import does_not_fit, missing_bytes
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat
from sim.models.sharding import check_layout

__all__ = ["MemoryBudget", "check_layout", "memory_budget"]


def memory_budget(
    arch: Architecture,
    memory_visible_bytes: int,
    layout: Layout,
    *,
    weight_format: WeightFormat,
    kv_format: KvFormat,
    block_size: int = 16,
    gpu_memory_utilization: float = 0.9,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len: int,
    num_gpu_blocks_override: int | None = None,
    engine: str = "vllm",
    links: str = "nvlink",
    draft: Draft | None = None,
) -> MemoryBudget:
    """The budget of the rank that holds the fewest blocks, computed as the engine does.

    Args:
        arch: the model.
        memory_visible_bytes: of one GPU, as the driver reports them (not the label).
        layout: TP, PP, DP and EP; replicas do not matter.
        weight_format: of the weights.
        kv_format: of the cache.
        block_size: tokens of a block.
        gpu_memory_utilization: share of the memory the engine may use.
        max_num_batched_tokens: tokens of the largest step.
        max_num_seqs: sequences of the largest step.
        max_model_len: longest request.
        num_gpu_blocks_override: replaces the computed number of blocks.
        engine: preset name, or ``vllm==0.23.0`` for the rules of a release.
        draft: what proposes drafts beside the model; its weights and cache lie on the last pipeline stage.
        links: how the GPUs of a node are joined (``links.kind`` of a hardware profile); sizes communicator buffers.

    Raises:
        InputError: a layout that does not divide the model; a model that does not fit, with the bytes missing and the
            smallest layouts that do.
    """
    check_layout(arch, layout)
    if memory_visible_bytes <= 0:
        raise InputError("memory_visible_bytes", f"must be positive, got {memory_visible_bytes}")
    question = Question(
        arch=arch,
        memory_bytes=memory_visible_bytes,
        weights=weight_format,
        kv=kv_format,
        utilization=gpu_memory_utilization,
        batch=Batch(max_num_batched_tokens, max_num_seqs, max_model_len, block_size),
        override=num_gpu_blocks_override,
        rules=engine_memory(engine),
        links=links,
        draft=draft,
    )
    budget = budget_of(question, layout)
    if missing_bytes(budget, question) > 0:
        raise does_not_fit(question, budget)
    if num_gpu_blocks_override is not None and budget.num_gpu_blocks < 2:
        raise _too_few_blocks(budget)
    return budget


def _too_few_blocks(budget: MemoryBudget) -> InputError:
    """Blocks of all kinds of layers together, of which the engine cannot make two of ``block_size`` tokens."""
    needed = budget.pool.blocks(budget.max_model_len, budget.max_num_batched_tokens)
    return InputError(
        "engine.num_gpu_blocks_override",
        f"{budget.pool_blocks} blocks hold next to nothing: a request of {budget.max_model_len} tokens needs {needed}",
        f"give at least {-(-2 * needed * budget.block_size // budget.max_model_len)} blocks",
    )
