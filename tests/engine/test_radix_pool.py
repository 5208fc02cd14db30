"""The radix tree against a tree of single blocks written the obvious way, and its rules one by one."""

from __future__ import annotations

from random import Random

import pytest

from sim.engine.kv.radix import RadixPool
from sim.engine.request import Request

BLOCK = 4


def request(id: int, *spans: tuple[int, int]) -> Request:
    return Request(id, 1000, 8, spans=list(spans))


def run(pool: RadixPool, request: Request, blocks: int) -> int:
    """Admit a request and compute ``blocks`` blocks; the number found in the tree."""
    hit = pool.lookup(request, blocks)
    if hit.blocks:
        pool.claim(request, hit)
    pool.take(blocks - hit.blocks)
    pool.insert(request, blocks)
    return hit.blocks


def end(pool: RadixPool, request: Request, blocks: int) -> None:
    pool.release(request, blocks, blocks)


def test_a_block_belongs_to_the_text_of_its_last_token() -> None:
    pool = RadixPool(10, BLOCK)
    run(pool, request(0, (7, 6), (8, 12)), 3)
    assert pool.lookup(request(1, (7, 6), (9, 12)), 3).blocks == 1
    assert pool.lookup(request(2, (7, 6), (8, 12)), 3).blocks == 3


def test_text_computed_twice_is_given_back() -> None:
    pool = RadixPool(20, BLOCK)
    first, second = request(0, (7, 12)), request(1, (7, 12))
    pool.take(8)  # both are computed side by side
    pool.insert(first, 4)
    assert pool.free == 12
    pool.insert(second, 4)  # three blocks of the shared text, and one of its own
    assert (pool.free, pool.cached) == (15, 5)
    pool.check([(first, 4), (second, 4)])


def test_what_a_running_request_holds_is_not_evicted() -> None:
    pool = RadixPool(8, BLOCK)
    first, second = request(0, (7, 8)), request(1, (8, 8))
    run(pool, first, 3)
    run(pool, second, 2)
    end(pool, second, 2)
    with pytest.raises(AssertionError, match="6 blocks asked, 5 free"):
        pool.take(6)
    pool.take(5)
    assert pool.lookup(request(2, (8, 8)), 2).blocks == 0
    assert pool.lookup(request(3, (7, 8)), 2).blocks == 2


def test_a_parent_goes_after_its_last_child() -> None:
    pool = RadixPool(8, BLOCK)
    for id, spans in enumerate([((7, 8), (8, 12)), ((7, 8), (9, 12))]):
        each = request(id, *spans)
        run(pool, each, 3)
        end(pool, each, 3)
    pool.take(5)  # 4 empty; asked for 5, the tree gives up both leaves and then their parent
    assert pool.cached == 0
    pool = RadixPool(8, BLOCK)
    for id, spans in enumerate([((7, 8), (8, 12)), ((7, 8), (9, 12))]):
        each = request(id, *spans)
        run(pool, each, 3)
        end(pool, each, 3)
    pool.take(4)
    pool.make_room(1)
    assert pool.lookup(request(5, (7, 8), (8, 12)), 3).blocks == 2  # only the older leaf has gone
    assert pool.lookup(request(6, (7, 8), (9, 12)), 3).blocks == 3


def test_leaves_can_be_shortened_instead() -> None:
    pool = RadixPool(8, BLOCK, whole_leaves=False)
    each = request(0, (7, 24))
    run(pool, each, 6)
    end(pool, each, 6)
    pool.take(4)
    assert pool.lookup(request(1, (7, 24)), 6).blocks == 4


def test_a_look_up_makes_text_young_again() -> None:
    pool = RadixPool(8, BLOCK)
    for id, text in enumerate((7, 8)):
        each = request(id, (text, 16))
        run(pool, each, 4)
        end(pool, each, 4)
    pool.lookup(request(2, (7, 16)), 4)
    pool.make_room(1)
    assert pool.lookup(request(3, (7, 16)), 4).blocks == 4
    assert pool.lookup(request(4, (8, 16)), 4).blocks == 0


class NaiveTree:
    """Nodes as plain lists of block names, walked through block by block."""

    def __init__(self, blocks: int) -> None:
        self.empty = blocks
        self.clock = 0
        self.nodes: list[dict[str, object]] = [{"path": (), "used": 0, "locks": 0}]  # path: all names from the root

    def walk(self, names: tuple[int, ...]) -> int:
        """Match, refresh and split; the length of the match."""
        self.clock += 1
        found = 0
        for node in sorted(self.nodes, key=lambda node: len(node["path"])):
            path = node["path"]
            start = self.start(node)
            if path[:start] != names[:start] or found < start or not path:
                continue
            common = next((i for i in range(start, len(path)) if names[i : i + 1] != (path[i],)), len(path))
            if common == start:
                continue
            node["used"] = self.clock
            found = common
            if common < len(path):
                self.nodes.append({**node, "path": path[:common]})
        return found

    def start(self, node: dict[str, object]) -> int:
        path = node["path"]
        above = [len(n["path"]) for n in self.nodes if n is not node and len(n["path"]) < len(path)]
        return max(length for length in [0, *above] if any(n["path"] == path[:length] for n in self.nodes))

    def evict(self, blocks: int) -> None:
        while blocks > 0:
            leaves = [n for n in self.nodes if n["path"] and not n["locks"] and not self.has_children(n)]
            if not leaves:
                return
            leaf = min(leaves, key=lambda n: (n["used"], -len(n["path"])))
            size = len(leaf["path"]) - self.start(leaf)
            self.nodes.remove(leaf)
            self.empty += size
            blocks -= size

    def has_children(self, node: dict[str, object]) -> bool:
        path = node["path"]
        return any(len(n["path"]) > len(path) and n["path"][: len(path)] == path for n in self.nodes)

    def take(self, blocks: int) -> None:
        if self.empty < blocks:
            self.evict(blocks)
        self.empty -= blocks

    def enter(self, names: tuple[int, ...], had: int) -> None:
        found = self.walk(names)
        if found < len(names):
            self.nodes.append({"path": names, "used": self.clock, "locks": 0})
        self.empty += found - had if found > had else 0

    def lock(self, names: tuple[int, ...], by: int) -> None:
        for node in self.nodes:
            if node["path"] and names[: len(node["path"])] == node["path"]:
                node["locks"] += by

    @property
    def cached(self) -> int:
        return sum(len(n["path"]) - self.start(n) for n in self.nodes if n["path"])


@pytest.mark.parametrize("seed", range(60))
def test_the_tree_is_the_naive_tree(seed: int) -> None:
    rng = Random(seed)
    size = rng.choice([30, 60])
    pool, naive = RadixPool(size, 1), NaiveTree(size)
    texts = _random_texts(rng)
    running: list[tuple[Request, int]] = []
    for id in range(60):
        spans = rng.choice(texts)
        each = Request(id, 1000, 1, spans=list(spans))
        blocks = spans[-1][1] + rng.randint(0, 3)
        names = tuple(next((t for t, e in spans if e > i), ~id) * 100 + i for i in range(blocks))
        hit = pool.lookup(each, blocks - 1)
        assert hit.blocks == naive.walk(names[: blocks - 1])
        if blocks - hit.blocks + hit.idle_blocks <= pool.free:
            if hit.blocks:
                pool.claim(each, hit)
            naive.lock(names[: hit.blocks], 1)
            pool.take(blocks - hit.blocks)
            naive.take(blocks - hit.blocks)
            pool.insert(each, blocks)
            naive.lock(names[: hit.blocks], -1)
            naive.enter(names, hit.blocks)
            naive.lock(names, 1)
            running.append((each, blocks))
        while running and (rng.random() < 0.4 or len(running) > 4):
            each, blocks = running.pop(rng.randrange(len(running)))
            spans = each.spans or []
            names = tuple(next((t for t, e in spans if e > i), ~each.id) * 100 + i for i in range(blocks))
            pool.release(each, blocks, blocks)
            naive.lock(names, -1)
        pool.check(running)
        assert (pool.cached, pool.free - pool.evictable) == (naive.cached, naive.empty)


def _random_texts(rng: Random) -> list[list[tuple[int, int]]]:
    """Rows of texts that branch off each other."""
    texts: list[list[tuple[int, int]]] = [[(1, rng.randint(2, 6))]]
    for text in range(2, 9):
        stem = rng.choice(texts)
        keep = rng.randint(0, len(stem))
        rows = stem[:keep]
        if keep and rng.random() < 0.5:
            low = rows[-2][1] if keep > 1 else 0
            rows = [*rows[:-1], (rows[-1][0], rng.randint(low + 1, rows[-1][1]))]
        start = rows[-1][1] if rows else 0
        texts.append([*rows, (text, start + rng.randint(1, 5))])
    return texts
