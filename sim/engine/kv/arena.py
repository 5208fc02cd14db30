"""Contiguous allocation: every request lies in one piece, and holes between pieces may be too small for the next."""

from __future__ import annotations

from bisect import bisect_left

from sim.engine.kv.pool import BlockPool
from sim.engine.request import Request


class Arena(BlockPool):
    """A range of slots out of which each request is given one piece, placed first-fit: the lowest hole that holds it.

    Pieces never move, so free slots can be too scattered to be of use (external fragmentation). The allocator of
    FasterTransformer and Orca as Kwon et al. describe them (arXiv 2309.06180, section 3.1); they assume buddies, which
    rounds pieces up to powers of two where first-fit leaves holes.
    """

    def __init__(self, usable_blocks: int, block_size: int) -> None:
        super().__init__(usable_blocks, block_size)
        self._starts = [0]  # of the holes, ascending; two holes never touch
        self._ends = [usable_blocks]
        self._pieces: dict[Request, tuple[int, int]] = {}

    def fits(self, blocks: int) -> bool:
        """Whether a hole holds a piece of ``blocks``."""
        return self._first_hole(blocks) is not None

    def stranded(self, blocks: int) -> int:
        """Free blocks, if none of their holes holds a piece of ``blocks``."""
        return 0 if self.fits(blocks) else self.free

    def place(self, request: Request, blocks: int) -> None:
        """Give ``request`` its piece; the caller has asked `fits`, and takes the blocks."""
        index = self._first_hole(blocks)
        if index is None:
            raise AssertionError(f"no hole of {blocks} slots, {self.free} free in {len(self._starts)} holes")
        start = self._starts[index]
        self._pieces[request] = (start, start + blocks)
        self._starts[index] = start + blocks
        if start + blocks == self._ends[index]:
            del self._starts[index], self._ends[index]

    def _first_hole(self, blocks: int) -> int | None:
        """Index of the lowest hole that holds a piece of ``blocks``."""
        holes = zip(self._starts, self._ends, strict=True)
        return next((index for index, (start, end) in enumerate(holes) if end - start >= blocks), None)

    def release(self, request: Request, held_blocks: int, full_blocks: int) -> None:
        """Give the piece back; the holes on both sides of it become one."""
        super().release(request, held_blocks, full_blocks)
        start, end = self._pieces.pop(request)
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end = self._ends[index]
            del self._starts[index], self._ends[index]
        if index and self._ends[index - 1] == start:
            self._ends[index - 1] = end
        else:
            self._starts.insert(index, start)
            self._ends.insert(index, end)

    def check(self, held: list[tuple[Request, int]]) -> None:
        """Raise `AssertionError` unless pieces and holes tile the arena and every holder has its piece."""
        super().check(held)
        holes = list(zip(self._starts, self._ends, strict=True))
        at, tiles = 0, sorted([*holes, *self._pieces.values()])
        for start, end in tiles:
            if start != at or end < start:
                raise AssertionError(f"a piece or hole begins at {start}, the one before ends at {at}")
            at = end
        if at != self.usable_blocks or sum(end - start for start, end in holes) != self.free:
            raise AssertionError(f"tiles end at {at} of {self.usable_blocks}; holes differ from {self.free} free")
        sizes = {request: end - start for request, (start, end) in self._pieces.items()}
        if sizes != dict(held):
            raise AssertionError(f"pieces {sizes} differ from what is held {dict(held)}")
