"""Prefix caching by a radix tree, as SGLang's RadixAttention does it: shared text is one path, leaves are evicted.

Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs", NeurIPS 2024, section 3. The tree
holds each text once: blocks that turn out to be there already when they are entered are given back. A node is locked
while a request below it runs; of the others, leaves go first that were looked up or entered the longest time ago.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from sim.engine.kv.pool import NO_HIT, BlockPool, Hit, text_rows
from sim.engine.request import Entry, Request

Rows = list[tuple[int, int]]


class RadixNode:
    """Blocks ``lo`` to ``hi`` of the path from the root; ``rows`` are (text, end block) and end at ``hi``.

    ``locks`` counts the running requests that hold it, ``used`` is the time of the last look-up that passed.
    """

    __slots__ = ("children", "hi", "lo", "locks", "parent", "rows", "serial", "used")

    def __init__(self, parent: RadixNode | None, lo: int, rows: Rows, used: int, serial: int) -> None:
        self.parent = parent
        self.lo = lo
        self.hi = rows[-1][1] if rows else lo
        self.rows = rows
        self.children: dict[int, RadixNode] = {}  # by the text of their first block
        self.locks = 0
        self.used = used
        self.serial = serial

    def __repr__(self) -> str:
        return f"RadixNode({self.lo}..{self.hi}, rows={self.rows}, locks={self.locks})"


class RadixPool(BlockPool):
    """A block pool whose cached blocks form a tree.

    Args:
        whole_leaves: evict leaves whole, and as many blocks as are asked for (SGLang); otherwise only as many blocks as
            are missing, from a leaf's end (TGI).
    """

    def __init__(self, usable_blocks: int, block_size: int, *, whole_leaves: bool = True) -> None:
        super().__init__(usable_blocks, block_size)
        self.shares = True
        self.evictable = 0  # blocks of nodes that no request holds; they count as free
        self._whole_leaves = whole_leaves
        self._clock = self._serial = 0
        self._root = RadixNode(None, 0, [], 0, 0)
        self._leaves: dict[RadixNode, None] = {}  # evictable ones
        self._by_age: list[tuple[int, int, RadixNode]] = []  # an entry for each of them, older than it is or true

    # -- finding ------------------------------------------------------------------------------------------------------

    def lookup(self, request: Request, limit_blocks: int) -> Hit:
        """The longest cached prefix; nodes on the way count as just used, and one is split where the prefix ends."""
        node, blocks = self._walk(text_rows(request, self.block_size), limit_blocks)
        if not blocks:
            return NO_HIT
        return Hit(blocks, self._unlocked(node), ((node, 0, blocks),))

    def _walk(self, rows: Rows, limit: int) -> tuple[RadixNode, int]:
        """The node that ends the longest cached prefix of at most ``limit`` blocks, and its length."""
        self._clock += 1
        node, at, row = self._root, 0, 0
        while at < limit:
            while rows[row][1] <= at:
                row += 1
            child = node.children.get(rows[row][0])
            if child is None:
                break
            child.used = self._clock
            at = min(limit, child.hi, _common(child.rows, rows, at))
            node = child if at == child.hi else self._split(child, at)
        return node, at

    def _split(self, low: RadixNode, at: int) -> RadixNode:
        """Cut a node at block ``at``; the lower part keeps its identity, the upper part is returned."""
        above = [(text, end) for text, end in low.rows if end < at]
        below = low.rows[len(above) :]
        high = self._node(low.parent, low.lo, [*above, (below[0][0], at)], low.used)
        high.locks = low.locks
        low.rows = below if below[0][1] > at else below[1:]
        low.lo, low.parent = at, high
        high.children[low.rows[0][0]] = low
        return high

    def _node(self, parent: RadixNode | None, lo: int, rows: Rows, used: int) -> RadixNode:
        self._serial += 1
        node = RadixNode(parent, lo, rows, used, self._serial)
        assert parent is not None
        parent.children[rows[0][0]] = node
        return node

    def _unlocked(self, node: RadixNode) -> int:
        """Blocks from the root to ``node`` that no request holds: once one is locked, all above it are."""
        found, at = 0, node
        while at.parent is not None and not at.locks:
            found += at.hi - at.lo
            at = at.parent
        return found

    # -- holding ------------------------------------------------------------------------------------------------------

    def claim(self, request: Request, hit: Hit) -> None:
        """Hold the blocks of a hit."""
        if not hit.blocks:
            return
        node = hit.pieces[0][0]
        assert isinstance(node, RadixNode)
        self._lock(node)
        request.table = [Entry(node, hit.blocks)]
        request.cached_blocks = hit.blocks

    def take(self, blocks: int) -> None:
        """Take blocks, evicting from the tree where too few are empty."""
        super().take(blocks)
        if self.free < self.evictable:
            self._evict(blocks if self._whole_leaves else self.evictable - self.free)

    def make_room(self, blocks: int) -> None:
        """Evict, if fewer than ``blocks`` are empty, without taking any."""
        if self.free - self.evictable < blocks:
            self._evict(blocks)

    def _lock(self, node: RadixNode) -> None:
        at = node
        while at.parent is not None:
            if not at.locks:
                self._hold(at, at.hi - at.lo)
                self._leaves.pop(at, None)
            at.locks += 1
            at = at.parent

    def _unlock(self, node: RadixNode) -> None:
        at = node
        while at.parent is not None:
            at.locks -= 1
            if not at.locks:
                self._hold(at, at.lo - at.hi)
                if not at.children:
                    self._add_leaf(at)
            at = at.parent

    def _hold(self, node: RadixNode, blocks: int) -> None:
        self.free -= blocks
        self.evictable -= blocks

    def _add_leaf(self, node: RadixNode) -> None:
        self._leaves[node] = None
        heappush(self._by_age, (node.used, node.serial, node))
        if len(self._by_age) > 100 + 4 * len(self._leaves):  # most entries are of nodes that are no leaves any more
            self._by_age = [(leaf.used, leaf.serial, leaf) for leaf in self._leaves]
            heapify(self._by_age)

    def _oldest_leaf(self) -> RadixNode | None:
        """The least recently used leaf; it is out of `_by_age` then."""
        while self._by_age:
            used, _, leaf = heappop(self._by_age)
            if leaf in self._leaves:
                if used == leaf.used:
                    return leaf
                heappush(self._by_age, (leaf.used, leaf.serial, leaf))  # it was looked up since
        return None

    def _evict(self, blocks: int) -> None:
        gone = 0
        while gone < blocks and (leaf := self._oldest_leaf()) is not None:
            part = leaf.hi - leaf.lo
            if part > blocks - gone and not self._whole_leaves:
                part = blocks - gone
                _shorten(leaf, leaf.hi - part)
                self._add_leaf(leaf)
            else:
                self._remove(leaf)
            gone += part
        self.evictable -= gone
        self.cached -= gone

    def _remove(self, leaf: RadixNode) -> None:
        parent = leaf.parent
        assert parent is not None
        del self._leaves[leaf], parent.children[leaf.rows[0][0]]
        if not (parent.children or parent.locks) and parent is not self._root:
            self._add_leaf(parent)

    # -- caching ------------------------------------------------------------------------------------------------------

    def insert(self, request: Request, blocks: int) -> None:
        """Enter the first ``blocks`` blocks of a running request, which goes on holding them."""
        if blocks <= request.cached_blocks:
            return
        node = self._enter(request, blocks)
        held = request.table
        self._lock(node)
        if held:
            self._unlock(held[0].piece)
        request.table = [Entry(node, blocks)]
        request.cached_blocks = blocks

    def _enter(self, request: Request, blocks: int) -> RadixNode:
        """Turn a request's own blocks up to ``blocks`` into cached ones, or free those that are cached already."""
        rows = text_rows(request, self.block_size)
        node, at = self._walk(rows, blocks)
        if at < blocks:
            self._leaves.pop(node, None)
            node = self._node(node, at, _between(rows, at, blocks), self._clock)
            self._add_leaf(node)
            self.evictable += blocks - at
            self.cached += blocks - at
        self.free += blocks - request.cached_blocks
        return node

    def release(self, request: Request, held_blocks: int, full_blocks: int) -> None:
        """Give back all blocks; the first ``full_blocks`` of them stay findable."""
        kept = max(full_blocks, request.cached_blocks)
        self.free += held_blocks - kept
        if kept > request.cached_blocks:
            self._enter(request, kept)
        if request.table:
            self._unlock(request.table[0].piece)
        request.table = []
        request.cached_blocks = 0

    def check(self, held: list[tuple[Request, int]]) -> None:
        """Raise `AssertionError` unless every block is free, in the tree or a request's own, and locks add up."""
        locks: dict[RadixNode, int] = {}
        own = 0
        for request, blocks in held:
            own += blocks - request.cached_blocks
            node = request.table[0].piece if request.table else self._root
            while node.parent is not None:
                locks[node] = locks.get(node, 0) + 1
                node = node.parent
        nodes = self._nodes()
        if any(node.locks != locks.pop(node, 0) for node in nodes) or locks:
            raise AssertionError("a node's locks differ from its holders")
        idle = sum(node.hi - node.lo for node in nodes if not node.locks)
        total = self.free + own + sum(node.hi - node.lo for node in nodes if node.locks)
        leaves = {node for node in nodes if not (node.locks or node.children)}
        if total != self.usable_blocks or idle != self.evictable or idle > self.free or leaves != set(self._leaves):
            raise AssertionError(f"{total} blocks accounted for, {self.usable_blocks} exist; {idle} idle")
        if self.cached != sum(node.hi - node.lo for node in nodes):
            raise AssertionError(f"{self.cached} blocks counted as cached")

    def _nodes(self) -> list[RadixNode]:
        nodes, stack = [], [*self._root.children.values()]
        while stack:
            nodes.append(stack.pop())
            stack += nodes[-1].children.values()
        return nodes


def _common(cached: Rows, asked: Rows, at: int) -> int:
    """The block, from ``at`` on, at which two lists of rows begin to differ."""
    i = j = 0
    while i < len(cached):
        while cached[i][1] <= at:
            i += 1
            if i == len(cached):
                return at
        while asked[j][1] <= at:
            j += 1
        if cached[i][0] != asked[j][0]:
            return at
        at = min(cached[i][1], asked[j][1])
    return at


def _between(rows: Rows, lo: int, hi: int) -> Rows:
    """The rows of blocks ``lo`` to ``hi``."""
    found: Rows = []
    for text, end in rows:
        if end > lo:
            found.append((text, min(end, hi)))
            if end >= hi:
                break
    return [row for index, row in enumerate(found) if not index or row[1] > found[index - 1][1]]


def _shorten(leaf: RadixNode, hi: int) -> None:
    """Cut a leaf's end off at block ``hi``."""
    leaf.rows = _between(leaf.rows, leaf.lo, hi)
    leaf.hi = hi
