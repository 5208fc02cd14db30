"""Which layouts of one engine a model and a GPU allow, and what each leaves of a GPU's memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sim.assemble import assemble
from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.fit import DoesNotFit
from sim.models.loader import load_model
from sim.models.memory import MemoryBudget
from sim.planner.space import supported
from sim.scenario import Scenario

FITS: Final = "fits"
TOO_SMALL: Final = "does not fit"
REFUSED: Final = "refused"
_MOST_GPUS: Final = 1024


@dataclass(frozen=True, slots=True)
class LayoutCheck:
    """A layout and what becomes of it.

    Attributes:
        verdict: `FITS`; `TOO_SMALL`, legal but short of memory; `REFUSED`.
        budget: of the binding GPU; None where the layout is refused.
        missing_bytes: that this GPU is short of, 0 where it fits.
        refusal: why it cannot be; None where it fits.
    """

    layout: Layout
    verdict: str
    budget: MemoryBudget | None = None
    missing_bytes: int = 0
    refusal: InputError | None = None


def check_layouts(scenario: Scenario, max_gpus: int) -> list[LayoutCheck]:
    """Every layout of one engine of at most ``max_gpus`` GPUs with sizes that are powers of two, by number of GPUs.

    TP and pipeline stages; for models with experts also whole experts on the ranks, and data-parallel ranks that share
    them, over stages or not. Ranks of a dense model are engines of their own and thus no layout to list. What the
    scenario says of the engine holds for all; of its layout only the size of a node.

    Raises:
        InputError: an unknown model or GPU, or sizes that make no sense.
    """
    if not 1 <= max_gpus <= _MOST_GPUS:
        raise InputError("--max-gpus", f"{max_gpus} is not between 1 and {_MOST_GPUS}", "for example 16")
    arch = load_model(scenario.model)
    found = sorted(
        _candidates(arch, max_gpus, scenario.layout.gpus_per_node), key=lambda layout: layout.gpus_per_replica
    )
    return [_check(scenario.model_copy(update={"layout": layout}), layout) for layout in found]


def _check(scenario: Scenario, layout: Layout) -> LayoutCheck:
    refusal = supported(scenario)
    if refusal is not None:
        return LayoutCheck(layout, REFUSED, refusal=refusal)
    try:
        return LayoutCheck(layout, FITS, assemble(scenario).budget)
    except DoesNotFit as error:
        return LayoutCheck(layout, TOO_SMALL, error.budget, error.missing_bytes, error)
    except InputError as error:
        if not error.field.startswith("layout."):
            raise
        return LayoutCheck(layout, REFUSED, refusal=error)


def _candidates(arch: Architecture, most: int, node: int) -> Iterator[Layout]:
    """All splits of powers of two: whole models first, then whole experts."""
    sizes = [1 << power for power in range(most.bit_length())]
    experts = any(run.mlp is not None and run.mlp.num_experts for run in arch.layers)
    for tensor in sizes:
        for stages in sizes:
            if tensor * stages <= most:
                yield _layout(node, tensor, stages=stages)
        for ranks, stages in itertools.product(sizes if experts else (), sizes):
            if tensor * ranks > 1 and tensor * ranks * stages <= most:
                yield _layout(node, tensor, stages=stages, ranks=ranks, expert_parallel=True)


def _layout(node: int, tensor: int, *, stages: int = 1, ranks: int = 1, expert_parallel: bool = False) -> Layout:
    return Layout.parse(
        {
            "tensor_parallel_size": tensor,
            "pipeline_parallel_size": stages,
            "data_parallel_size": ranks,
            "enable_expert_parallel": expert_parallel,
            "gpus_per_node": node,
        }
    )
