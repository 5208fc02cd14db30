"""Blocks of the paged KV cache, counted. Identities matter only to the prefix cache, which extends this pool."""

from __future__ import annotations

from typing import NamedTuple

from mypy_extensions import mypyc_attr

from sim.engine.request import Request


class Hit(NamedTuple):
    """What a prefix lookup found: whole blocks from the start of the request."""

    blocks: int
    idle_blocks: int  # of those, blocks that no request holds: taking them shrinks the free count
    pieces: tuple[tuple[object, int, int], ...]  # (segment, first block, end block)


NO_HIT = Hit(0, 0, ())
ENDLESS = 1 << 60


def text_rows(request: Request, block_size: int) -> list[tuple[int, int]]:
    """(text, end block) rows of a request, its private text last. A block belongs to the text of its last token."""
    if not request.spans:
        return [(~request.id, ENDLESS)]
    rows = [(text, end // block_size) for text, end in request.spans]
    rows.append((~request.id, ENDLESS))
    return rows


@mypyc_attr(allow_interpreted_subclasses=True)
class BlockPool:
    """Free and held blocks of one engine, without prefix caching.

    The scheduler asks `free` before it takes; taking more than is free is a bug and raises `AssertionError`.
    ``finds_decodes`` says whether text is found while it is still being decoded, ``shares`` whether any is found.
    """

    def __init__(self, usable_blocks: int, block_size: int) -> None:
        self.usable_blocks = usable_blocks
        self.block_size = block_size
        self.finds_decodes = False
        self.shares = False
        self.free = usable_blocks  # blocks that can be taken, cached ones that no one holds included
        self.cached = 0  # distinct block hashes in the cache

    def lookup(self, request: Request, limit_blocks: int) -> Hit:
        """The longest cached prefix of ``request``, at most ``limit_blocks`` blocks."""
        return NO_HIT

    def claim(self, request: Request, hit: Hit) -> None:
        """Hold the blocks of a hit."""

    def fits(self, blocks: int) -> bool:
        """Whether one request could take ``blocks`` now."""
        return blocks <= self.free

    def stranded(self, blocks: int) -> int:
        """Free blocks in gaps too small for a request of ``blocks``: none, since blocks may lie anywhere."""
        return 0

    def place(self, request: Request, blocks: int) -> None:
        """Decide where the ``blocks`` lie that ``request`` is about to take; blocks of a page table lie anywhere."""

    def take(self, blocks: int) -> None:
        """Take new blocks from the front of the free list."""
        if blocks > self.free:
            raise AssertionError(f"{blocks} blocks asked, {self.free} free")
        self.free -= blocks

    def cache(self, request: Request, full_blocks: int) -> None:
        """Enter the first ``full_blocks`` blocks of ``request`` into the prefix cache."""

    def fill(self, blocks: int) -> None:
        """Count ``blocks`` that decodes filled; `settle` or `release` says later which they were."""

    def settle(self, request: Request, full_blocks: int) -> None:
        """Write into the index what `fill` counted for ``request``, so that lookups see it."""

    def release(self, request: Request, held_blocks: int, full_blocks: int) -> None:
        """Give back all ``held_blocks``; the first ``full_blocks`` of them hold full, known tokens."""
        self.free += held_blocks

    def check(self, held: list[tuple[Request, int]]) -> None:
        """Raise `AssertionError` unless every block is free or held by the (request, blocks) given."""
        total = self.free + sum(blocks for _, blocks in held)
        if total != self.usable_blocks:
            raise AssertionError(f"{total} blocks accounted for, {self.usable_blocks} exist")
