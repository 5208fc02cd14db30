"""Prefix caching: vLLM's hash-chained blocks with LRU eviction, kept as runs of blocks instead of single ones."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from sim.engine.kv.pool import ENDLESS, BlockPool, Hit, text_rows
from sim.engine.kv.segments import IdleList, Segment
from sim.engine.request import Entry, Request


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefixBlockPool(BlockPool):
    """A block pool whose full blocks stay findable until they are evicted.

    Blocks are named (node, index): the text that holds their last token, and their place in the request. The free list
    is vLLM's: blocks without a hash in front (only their number counts), then cached ones by time of release.
    """

    def __init__(self, usable_blocks: int, block_size: int) -> None:
        super().__init__(usable_blocks, block_size)
        self.finds_decodes = self.shares = True
        self._index: dict[int, list[Segment]] = {}  # node -> its copies, oldest first
        self._idle = IdleList()

    # -- finding ------------------------------------------------------------------------------------------------------

    def lookup(self, request: Request, limit_blocks: int) -> Hit:
        """The longest cached prefix; the oldest copy of each block is taken, as in vLLM."""
        pieces: list[tuple[Segment, int, int]] = []
        block = idle = 0
        for node, end in text_rows(request, self.block_size):
            last = min(end, limit_blocks)
            while block < last:
                found = self._oldest_copy(node, block)
                if found is None:
                    return Hit(block, idle, tuple(pieces))
                segment, until = found
                until = min(until, last)
                pieces.append((segment, block, until))
                if not segment.refs:
                    idle += until - block
                block = until
        return Hit(block, idle, tuple(pieces))

    def _oldest_copy(self, node: int, block: int) -> tuple[Segment, int] | None:
        """The oldest segment that holds ``block`` of ``node``, and the block up to which it stays the oldest."""
        until = ENDLESS
        for segment in self._index.get(node, ()):
            if segment.lo <= block < segment.hi:
                return segment, min(until, segment.hi)
            if segment.lo > block:
                until = min(until, segment.lo)
        return None

    # -- holding ------------------------------------------------------------------------------------------------------

    def claim(self, request: Request, hit: Hit) -> None:
        """Hold the blocks of a hit, taking those that are idle out of the free list."""
        for piece, lo, hi in hit.pieces:
            assert isinstance(piece, Segment)
            segment = piece.parts(lo + 1)[-1]
            if segment.lo < lo:
                segment = self._split(segment, lo)
            if segment.hi > hi:
                self._split(segment, hi)
            if not segment.refs:
                self._idle.remove(segment)
                self.free -= hi - lo
            segment.refs += 1
            request.table.append(Entry(segment, hi))
        request.cached_blocks = hit.blocks

    def _split(self, low: Segment, at: int) -> Segment:
        """Cut a segment at block ``at``; the low part keeps its identity, the high part is returned."""
        high = Segment(low.node, at, low.hi, low.refs)
        high.rest, low.rest, low.hi = low.rest, high, at
        copies = self._index[low.node]
        copies.insert(copies.index(low) + 1, high)
        if not low.refs:
            self._idle.split_off(high, low)
        return high

    def take(self, blocks: int) -> None:
        """Take blocks from the front of the free list, evicting the least recently released cached ones."""
        super().take(blocks)
        while (short := self._idle.blocks - self.free) > 0:
            oldest = self._idle.oldest()
            self._evict(oldest, min(short, oldest.hi - oldest.lo))

    def _evict(self, segment: Segment, blocks: int) -> None:
        copies = self._index[segment.node]
        cut = segment.hi - blocks
        self.cached -= blocks if len(copies) == 1 else blocks - _covered(copies, segment, cut, segment.hi)
        self._idle.blocks -= blocks
        segment.hi = cut
        if segment.lo == cut:
            self._idle.remove(segment)
            copies.remove(segment)
            if not copies:
                del self._index[segment.node]

    # -- caching ------------------------------------------------------------------------------------------------------

    def cache(self, request: Request, full_blocks: int) -> None:
        """Enter blocks into the cache as the tokens that fill them are scheduled."""
        self._extend(request, full_blocks, counted=False)

    def fill(self, blocks: int) -> None:
        """Count blocks filled by decodes; their place in the index is written when someone could look."""
        self.cached += blocks

    def settle(self, request: Request, full_blocks: int) -> None:
        """Write into the index what `fill` counted for ``request``, so that lookups see it."""
        self._extend(request, full_blocks, counted=True)

    def _extend(self, request: Request, full_blocks: int, *, counted: bool) -> None:
        """Lengthen the request's table to ``full_blocks``; ``counted`` blocks are already in `cached`."""
        lo = request.cached_blocks
        if full_blocks <= lo:
            return
        for node, end in text_rows(request, self.block_size):
            hi = min(end, full_blocks)
            if hi > lo:
                self._add(request, node, lo, hi, counted)
                lo = hi
        request.cached_blocks = full_blocks

    def _add(self, request: Request, node: int, lo: int, hi: int, counted: bool) -> None:
        copies = self._index.get(node)
        if copies is None:
            copies = self._index[node] = []
        covered = _covered(copies, None, lo, hi) if copies else 0
        self.cached -= covered if counted else covered - (hi - lo)
        entry = request.table[-1] if request.table else None
        if entry and not covered and node == ~request.id == entry.piece.node and entry.piece.hi == entry.end == lo:
            entry.piece.hi = entry.end = hi  # private text grows in place: nobody else holds it
            return
        segment = Segment(node, lo, hi, 1)
        copies.append(segment)
        request.table.append(Entry(segment, hi))

    # -- releasing ----------------------------------------------------------------------------------------------------

    def release(self, request: Request, held_blocks: int, full_blocks: int) -> None:
        """Give blocks back tail first: those without a hash to the front, cached ones that fall idle to the back."""
        self._extend(request, full_blocks, counted=True)
        self.free += held_blocks - request.cached_blocks
        for entry in reversed(request.table):
            held: Segment = entry.piece
            for part in reversed(held.parts(entry.end)):
                part.refs -= 1
                if not part.refs:
                    self._idle.append(part)
                    self.free += part.hi - part.lo
        request.table = []
        request.cached_blocks = 0

    def check(self, held: list[tuple[Request, int]]) -> None:
        """Raise `AssertionError` unless every block is free or held, and every reference is accounted for."""
        parts: dict[int, tuple[Segment, int]] = {}
        unnamed = 0
        for request, blocks in held:
            unnamed += blocks - request.cached_blocks
            for entry in request.table:
                piece: Segment = entry.piece
                for part in piece.parts(entry.end):
                    parts[id(part)] = (part, parts.get(id(part), (part, 0))[1] + 1)
        if any(part.refs != holders for part, holders in parts.values()):
            raise AssertionError("a segment's references differ from its holders")
        idle = sum(segment.hi - segment.lo for segment in self._idle)
        total = self.free + unnamed + sum(part.hi - part.lo for part, _ in parts.values())
        if total != self.usable_blocks or idle != self._idle.blocks or idle > self.free or unnamed < 0:
            raise AssertionError(f"{total} blocks accounted for, {self.usable_blocks} exist; {idle} idle")


def _covered(copies: list[Segment], skip: Segment | None, lo: int, hi: int) -> int:
    """Blocks of ``lo..hi`` that some copy other than ``skip`` holds."""
    covered = 0
    for segment in sorted((s for s in copies if s is not skip), key=lambda s: s.lo):
        start, end = max(lo, segment.lo), min(hi, segment.hi)
        if end > start:
            covered += end - start
            lo = end
    return covered
