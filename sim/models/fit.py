"""What is missing where a model does not fit, and which layouts hold it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sim.errors import InputError
from sim.layout import Layout
from sim.models.budget import MemoryBudget, Question, budget_of
from sim.models.engine_memory import GIB
from sim.models.sharding import check_layout

_TP_SIZES = (1, 2, 4, 8, 16, 32, 64)
_PP_SIZES = (2, 3, 4, 6, 8)
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


class DoesNotFit(InputError):
    """A legal layout whose GPUs are too small.

    Attributes:
        budget: of the binding GPU; its blocks may be none.
        missing_bytes: that this GPU is short of.
    """

    def __init__(self, field: str, problem: str, remedy: str, budget: MemoryBudget, missing_bytes: int) -> None:
        super().__init__(field, problem, remedy)
        self.budget = budget
        self.missing_bytes = missing_bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.problem, self.remedy, self.budget, self.missing_bytes)


def does_not_fit(question: Question, budget: MemoryBudget) -> DoesNotFit:
    """The refusal: how many bytes are missing, where they went, and what would help."""
    missing = missing_bytes(budget, question)
    if question.override is not None:
        return _too_many_blocks(budget, missing)
    charged = budget.charges.total
    problem = (
        f"{question.arch.name} does not fit: {_gib(missing)} ({missing} bytes) are missing on {budget.binding_rank}; "
        f"of {_gib(budget.usable_bytes)} usable, weights take {_gib(budget.weights_bytes)}, activations and overhead "
        f"{_gib(charged)}, and one request of {budget.max_model_len} tokens needs "
        f"{_gib(missing + budget.kv_bytes)} of KV cache"
    )
    return DoesNotFit("layout", problem, _remedies(question, budget), budget, missing)


def _too_many_blocks(budget: MemoryBudget, missing: int) -> DoesNotFit:
    most = (budget.kv_bytes - missing) // budget.pool.block_bytes
    return DoesNotFit(
        "engine.num_gpu_blocks_override",
        f"{budget.pool_blocks} blocks need {_gib(budget.kv_bytes)}; {_gib(missing)} ({missing} bytes) are missing on "
        f"{budget.binding_rank} of {_gib(budget.total_bytes)}",
        f"give at most {most} blocks" if most > 1 else "the weights alone do not fit: use more GPUs",
        budget,
        missing,
    )


def _remedies(question: Question, budget: MemoryBudget) -> str:
    found = layouts_that_fit(question, budget.layout)
    options = ["use " + ", or ".join(describe(layout) for layout in found)] if found else []
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
    """The smallest plain TP that holds the model, then the layouts with pipeline stages that need no more GPUs."""
    plain = next((layout for layout in _candidates(asked, (1,)) if _holds(question, layout)), None)
    found = [plain] if plain else []
    for layout in _candidates(asked, _PP_SIZES):
        bound = found[-1].gpus_per_replica if found else _MOST_GPUS
        if len(found) == most or layout.gpus_per_replica > bound:
            break
        if _holds(question, layout):
            found.append(layout)
    return found


def _holds(question: Question, layout: Layout) -> bool:
    try:
        check_layout(question.arch, layout)
    except InputError:
        return False
    return missing_bytes(budget_of(question, layout), question) <= 0


def _candidates(asked: Layout, stages: tuple[int, ...]) -> Iterator[Layout]:
    """Layouts of the asked DP size by number of GPUs, then the same without data parallelism."""
    dp = asked.data_parallel_size
    sizes = [(tp, pp) for tp in _TP_SIZES for pp in stages if tp * pp * dp <= _MOST_GPUS]
    for tp, pp in sorted(sizes, key=lambda size: (size[0] * size[1], size[1])):
        yield asked.model_copy(update={"tensor_parallel_size": tp, "pipeline_parallel_size": pp})
    if dp > 1:
        yield from _candidates(
            asked.model_copy(update={"data_parallel_size": 1, "enable_expert_parallel": False}), stages
        )


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
