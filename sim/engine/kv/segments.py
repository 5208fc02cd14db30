"""Runs of cached blocks that share one fate, and the list of those that no one holds."""

from __future__ import annotations

from collections.abc import Iterator


class Segment:
    """Blocks ``lo`` to ``hi`` of text ``node``, one physical copy, held by ``refs`` requests.

    A request's table names the segment it started with and the block where its part ends; a split leaves the low part
    in place and hangs the high part behind it (``rest``), so that tables stay true without being visited.
    """

    __slots__ = ("hi", "lo", "newer", "node", "older", "refs", "rest")

    def __init__(self, node: int, lo: int, hi: int, refs: int) -> None:
        self.node = node
        self.lo = lo
        self.hi = hi
        self.refs = refs
        self.rest: Segment | None = None
        self.older: Segment | None = None
        self.newer: Segment | None = None

    def parts(self, end: int) -> list[Segment]:
        """This segment and what was split off it, up to block ``end``."""
        found = [self]
        while found[-1].hi < end:
            rest = found[-1].rest
            assert rest is not None, "a split lost its rest"
            found.append(rest)
        return found

    def __repr__(self) -> str:
        return f"Segment(node={self.node}, {self.lo}..{self.hi}, refs={self.refs})"


class IdleList:
    """Segments that no one holds, least recently released first (an intrusive linked list).

    Inside a segment the last block counts as released first: requests free their blocks tail first.
    """

    def __init__(self) -> None:
        self._ends = Segment(0, 0, 0, 0)  # sentinel: newer = the oldest, older = the newest
        self._ends.newer = self._ends.older = self._ends
        self.blocks = 0

    def append(self, segment: Segment) -> None:
        """Add as the most recently released."""
        self._insert_before(segment, self._ends)
        self.blocks += segment.hi - segment.lo

    def remove(self, segment: Segment) -> None:
        """Take a segment out: someone holds it again, or its last block is gone."""
        older, newer = segment.older, segment.newer
        assert older is not None
        assert newer is not None
        older.newer, newer.older = newer, older
        segment.older = segment.newer = None
        self.blocks -= segment.hi - segment.lo

    def split_off(self, high: Segment, low: Segment) -> None:
        """Place ``high``, just split off the idle ``low``, before it; the number of blocks stays."""
        self._insert_before(high, low)

    def oldest(self) -> Segment:
        """The segment to evict from; the list must not be empty."""
        oldest = self._ends.newer
        assert oldest is not None
        return oldest

    def newest(self) -> Segment | None:
        """The most recently released segment, if there is any."""
        newest = self._ends.older
        return None if newest is self._ends else newest

    def _insert_before(self, segment: Segment, place: Segment) -> None:
        older = place.older
        assert older is not None
        segment.older, segment.newer = older, place
        older.newer = place.older = segment

    def __iter__(self) -> Iterator[Segment]:
        segment = self._ends.newer
        while segment is not None and segment is not self._ends:
            yield segment
            segment = segment.newer
