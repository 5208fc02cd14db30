"""What is missing where a model does not fit, and which layouts hold it."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import InputError
from sim.layout import Layout
from sim.models.budget import MemoryBudget, Question, budget_of
from sim.models.engine_memory import GIB
from sim.models.sharding import check_layout

_TP_SIZES = (1, 2, 4, 8, 16, 32)
_PP_SIZES = (1, 2, 3, 4, 6, 8)
_MOST_GPUS = 64


def missing_bytes(budget: MemoryBudget, question: Question) -> int:
    """Bytes that one GPU is short of; 0 or less where it fits.

    It fits when the pool holds one request of ``max_model_len``, as the engine demands at its start; with the blocks
    given by hand, when they and everything else lie within the memory of the device.
    """
    if question.override is not None:
        used = budget.weights_bytes + budget.activation_bytes + budget.overhead_bytes + budget.kv_bytes
        return used - budget.total_bytes
    needed = budget.pool.blocks(budget.max_model_len, budget.max_num_batched_tokens)
    return needed * budget.pool.block_bytes - budget.kv_bytes


def does_not_fit(question: Question, budget: MemoryBudget) -> InputError:
    """The refusal: how many bytes are missing, where they went, and what would help."""
    missing = missing_bytes(budget, question)
    spent = budget.weights_bytes + budget.activation_bytes + budget.overhead_bytes
    problem = (
        f"{question.arch.name} does not fit: {_gib(missing)} ({missing} bytes) are missing on {budget.binding_rank}; "
        f"of {_gib(budget.usable_bytes)} usable, weights take {_gib(budget.weights_bytes)}, activations and overhead "
        f"{_gib(spent - budget.weights_bytes)}, and one request of {budget.max_model_len} tokens needs "
        f"{_gib(missing + budget.kv_bytes)} of KV cache"
    )
    return InputError("layout", problem, _remedies(question, budget))


def _remedies(question: Question, budget: MemoryBudget) -> str:
    found = layouts_that_fit(question, budget.layout)
    options = ["use " + " or ".join(describe(layout) for layout in found)] if found else []
    if not found:
        options.append(f"no layout of up to {_MOST_GPUS} such GPUs holds it; use a larger GPU or a smaller format")
    longest = longest_request(budget)
    if longest > 0:
        options.append(f"set engine.max_model_len to {longest} or less")
    return "; ".join(options)


def longest_request(budget: MemoryBudget) -> int:
    """The longest request that the pool holds alone, in whole blocks; 0 where it holds none."""
    low, high = 0, budget.max_model_len // budget.block_size
    while low < high:
        middle = (low + high + 1) // 2
        fits = budget.pool.blocks(middle * budget.block_size, budget.max_num_batched_tokens) <= budget.pool_blocks
        low, high = (middle, high) if fits else (low, middle - 1)
    return low * budget.block_size


def layouts_that_fit(question: Question, asked: Layout, *, most: int = 3) -> list[Layout]:
    """The smallest layouts that hold the model: those of the fewest GPUs, plain TP first, and plain TP of any size."""
    found: list[Layout] = []
    for layout in _candidates(asked):
        plain = layout.pipeline_parallel_size == 1 and not any(one.pipeline_parallel_size == 1 for one in found)
        if len(found) == most:
            break
        if found and layout.gpus_per_replica > found[0].gpus_per_replica and not plain:
            continue
        try:
            check_layout(question.arch, layout)
        except InputError:
            continue
        if missing_bytes(budget_of(question, layout), question) <= 0:
            found.append(layout)
    return found


def _candidates(asked: Layout) -> Iterator[Layout]:
    dp = asked.data_parallel_size
    sizes = [(tp, pp) for tp in _TP_SIZES for pp in _PP_SIZES if tp * pp * dp <= _MOST_GPUS]
    for tp, pp in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
        yield asked.model_copy(update={"tensor_parallel_size": tp, "pipeline_parallel_size": pp})
    if dp > 1:
        yield from _candidates(asked.model_copy(update={"data_parallel_size": 1, "enable_expert_parallel": False}))


def describe(layout: Layout) -> str:
    """TP, PP and DP in words, those above 1."""
    named = {
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "data_parallel_size": layout.data_parallel_size,
    }
    parts = [f"{name} {size}" for name, size in named.items() if size > 1 or name == "tensor_parallel_size"]
    return " with ".join(parts)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
