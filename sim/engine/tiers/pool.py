"""A prefix cache that says what it evicts."""

from __future__ import annotations

from sim.engine.kv.prefix import PrefixBlockPool
from sim.engine.kv.segments import Segment
from sim.engine.tiers.store import TierStore


class SpillingPool(PrefixBlockPool):
    """A prefix cache whose evicted blocks go to a tier, unless the GPU has another copy of them.

    Attributes:
        tier: the first one.
    """

    tier: TierStore | None = None

    def _evict(self, segment: Segment, blocks: int) -> None:
        node, lo, hi = segment.node, segment.hi - blocks, segment.hi
        super()._evict(segment, blocks)
        if self.tier is None:
            return
        for copy in sorted(self._index.get(node, ()), key=lambda other: other.hi, reverse=True):
            if copy.lo < hi and copy.hi > lo:
                if copy.hi < hi:
                    self.tier.put(node, copy.hi, hi)
                hi = max(lo, copy.lo)
        if lo < hi:
            self.tier.put(node, lo, hi)
