"""Host memory that keeps the KV cache of preempted requests until they run again."""

from __future__ import annotations

from sim.engine.request import Request, Tick
from sim.engine.tiers.copies import CopyQueue
from sim.engine.tiers.plan import SwapPlan


class SwapSpace:
    """Caches of preempted requests, whole ones only.

    Args:
        plan: room and speed.
        whole_ticks: the clock counts whole microseconds.

    Attributes:
        kept: tokens of each request that are here.
        used: blocks held.
        stores: victims whose cache was copied here.
        refused: victims that found no room.
        peak: most blocks held at a time.
    """

    def __init__(self, plan: SwapPlan, *, whole_ticks: bool) -> None:
        self.plan = plan
        self.kept: dict[Request, int] = {}
        self.used = self.stores = self.refused = self.peak = 0
        self.out = CopyQueue(plan.block_ticks, whole_ticks=whole_ticks)
        self.back = CopyQueue(plan.block_ticks, whole_ticks=whole_ticks)
        self._there: dict[Request, tuple[int, Tick]] = {}  # blocks, and when they are all in the host

    def price(self, blocks: int) -> float:
        """Ticks of both copies of ``blocks`` blocks."""
        return self.out.duration(blocks) + self.back.duration(blocks)

    def fits(self, blocks: int) -> bool:
        """Whether there is room."""
        return self.used + blocks <= self.plan.blocks

    def store(self, request: Request, tokens: int, blocks: int, now: Tick) -> Tick:
        """Copy ``tokens`` tokens of ``request`` in ``blocks`` blocks out; return when they are here."""
        end = self.out.copy(blocks, now)
        self.kept[request] = tokens
        self._there[request] = blocks, end
        self.used += blocks
        self.stores += 1
        self.peak = max(self.peak, self.used)
        return end

    def restore(self, request: Request, missing: int, now: Tick) -> Tick:
        """Copy the ``missing`` blocks that the GPU does not have back, and forget the rest; return when it is done."""
        blocks, there = self._there[request]
        self.forget(request)
        return self.back.copy(min(missing, blocks), max(now, there))

    def forget(self, request: Request) -> None:
        """Give up what is here of ``request``."""
        if self.kept.pop(request, 0):
            self.used -= self._there.pop(request)[0]
