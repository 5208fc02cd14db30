"""What lies outside the GPU's memory, as an engine sees it: rooms in blocks, and ticks that a block takes to move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class SwapPlan:
    """Host memory for the KV cache of preempted requests.

    Attributes:
        preemption: swap whenever there is room, or the cheaper of swap and recompute for each victim.
        blocks: room.
        block_ticks: to copy one block over the host link, in either direction.
        overlaps: copies run beside the steps; otherwise a step waits for those that were decided with it.
    """

    preemption: Literal["swap", "auto"]
    blocks: int
    block_ticks: float
    overlaps: bool


@dataclass(frozen=True, slots=True)
class TierPlan:
    """A place for prefix blocks that the GPU has evicted.

    Attributes:
        name: in the summary.
        blocks: room.
        block_ticks: to load one block.
    """

    name: str
    blocks: int
    block_ticks: float
