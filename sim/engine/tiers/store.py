"""A tier of prefix blocks outside the GPU: runs of blocks with an LRU order of their own."""

from __future__ import annotations

from itertools import pairwise

from sim.engine.kv.segments import IdleList, Segment
from sim.engine.request import Tick
from sim.engine.tiers.copies import CopyQueue
from sim.engine.tiers.plan import TierPlan


class TierStore:
    """Evicted blocks, named as in the prefix cache: the text of their last token, and their place in the request.

    A block that is found stays here and counts as just used, as does one that is evicted into the tier again (it is not
    written twice). What falls out goes to the next tier.

    Args:
        plan: name, room, speed.
        below: where evicted blocks go; None: they are gone.

    Attributes:
        stored: blocks written.
        found: blocks loaded.
        held: blocks in it.
    """

    def __init__(self, plan: TierPlan, below: TierStore | None, *, whole_ticks: bool) -> None:
        self.plan = plan
        self.below = below
        self.stored = self.found = self.held = 0
        self._loads = CopyQueue(plan.block_ticks, whole_ticks=whole_ticks)
        self._index: dict[int, list[Segment]] = {}
        self._order = IdleList()

    def find(self, node: int, block: int) -> int:
        """The block of ``node`` up to which everything from ``block`` on lies here; ``block`` where it does not."""
        found = True
        while found:
            found = False
            for segment in self._index.get(node, ()):
                if segment.lo <= block < segment.hi:
                    block, found = segment.hi, True
        return block

    def load(self, runs: list[tuple[int, int, int]], now: Tick) -> Tick:
        """Load the blocks of ``runs``, (node, first, end); return when they are in the GPU."""
        blocks = 0
        for node, lo, hi in reversed(runs):
            self._cut_out(node, lo, hi)
            self._append(node, lo, hi)
            blocks += hi - lo
        self.found += blocks
        return self._loads.copy(blocks, now)

    def put(self, node: int, lo: int, hi: int) -> None:
        """Take in blocks ``lo`` to ``hi`` of ``node``, the last one first; in how many calls changes nothing."""
        there = self._here(node, lo, hi)
        if 0 < there < hi - lo:  # whether one is still here when its turn comes depends on those before it
            for block in reversed(range(lo, hi)):
                self.put(node, block, block + 1)
            return
        self._cut_out(node, lo, hi)
        self.stored += hi - lo - there
        while self.held and self.held + hi - lo > self.plan.blocks:
            self._evict(self.held + hi - lo - self.plan.blocks)
        kept = min(hi, lo + self.plan.blocks)
        if kept < hi and self.below is not None:
            self.below.put(node, kept, hi)
        self._append(node, lo, kept)

    # -- the order ----------------------------------------------------------------------------------------------------

    def _append(self, node: int, lo: int, hi: int) -> None:
        self.held += hi - lo
        newest = self._order.newest()
        if newest is not None and newest.node == node and newest.lo == hi:
            newest.lo = lo
            self._order.blocks += hi - lo
            return
        segment = Segment(node, lo, hi, 0)
        self._index.setdefault(node, []).append(segment)
        self._order.append(segment)

    def _here(self, node: int, lo: int, hi: int) -> int:
        """How many of the blocks ``lo`` to ``hi`` of ``node`` are here."""
        runs = self._index.get(node, ())
        return sum(max(0, min(hi, segment.hi) - max(lo, segment.lo)) for segment in runs)

    def _evict(self, blocks: int) -> None:
        """Let up to ``blocks`` blocks of the least recently used run go, its tail first."""
        oldest = self._order.oldest()
        cut = max(oldest.lo, oldest.hi - blocks)
        node, end = oldest.node, oldest.hi
        self._shorten(oldest, cut)
        if self.below is not None:
            self.below.put(node, cut, end)

    def _shorten(self, segment: Segment, hi: int) -> None:
        gone = segment.hi - hi
        segment.hi = hi
        self.held -= gone
        self._order.blocks -= gone
        if segment.lo == hi:
            self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        self._order.remove(segment)
        runs = self._index[segment.node]
        runs.remove(segment)
        if not runs:
            del self._index[segment.node]

    def _cut_out(self, node: int, lo: int, hi: int) -> None:
        """Remove what is here of the blocks ``lo`` to ``hi`` of ``node``."""
        for segment in list(self._index.get(node, ())):
            start, end = max(lo, segment.lo), min(hi, segment.hi)
            if start >= end:
                continue
            if segment.hi > end:
                self._split(segment, end)
            self._shorten(segment, start)

    def _split(self, low: Segment, at: int) -> None:
        """Cut a run at block ``at``, both parts in its place of the order."""
        high = Segment(low.node, at, low.hi, 0)
        low.hi = at
        self._index[low.node].append(high)
        self._order.split_off(high, low)

    def check(self) -> None:
        """Raise `AssertionError` unless runs are disjoint and their blocks add up."""
        runs = [segment for copies in self._index.values() for segment in copies]
        total = sum(segment.hi - segment.lo for segment in runs)
        if total != self.held or total != self._order.blocks or total > self.plan.blocks:
            raise AssertionError(f"{total} blocks in {self.plan.name}, {self.held} counted, room {self.plan.blocks}")
        for node, copies in self._index.items():
            ordered = sorted(copies, key=lambda segment: segment.lo)
            if any(a.hi > b.lo for a, b in pairwise(ordered)):
                raise AssertionError(f"blocks of {node} lie twice in {self.plan.name}")
