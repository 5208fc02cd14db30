"""One direction of a link that copies blocks, one copy after the other."""

from __future__ import annotations

import math

from sim.engine.request import Tick


class CopyQueue:
    """Copies in the order in which they were asked for; each has the whole bandwidth while it runs.

    So the copy streams of engines work (vllm/v1/kv_offload/worker: transfers of one direction run in order), and the
    end of a copy is known when it is asked for. The two directions of PCIe and NVLink-C2C do not slow each other.

    Args:
        block_ticks: of one block.
        whole_ticks: copies end on whole ticks, where the clock counts microseconds.

    Attributes:
        blocks: copied so far, those under way included.
    """

    def __init__(self, block_ticks: float, *, whole_ticks: bool = False) -> None:
        self.blocks = 0
        self._block_ticks = block_ticks
        self._whole = whole_ticks
        self._free_from: Tick = 0

    def duration(self, blocks: int) -> float:
        """Ticks that ``blocks`` blocks take alone."""
        return blocks * self._block_ticks

    def copy(self, blocks: int, earliest: Tick) -> Tick:
        """Ask for ``blocks`` blocks at ``earliest`` or later; return when they will all be there."""
        end = max(earliest, self._free_from) + self.duration(blocks)
        self._free_from = math.ceil(end) if self._whole else end
        self.blocks += blocks
        return self._free_from
