from __future__ import annotations

import pytest

from sim.engine.kv.pool import BlockPool
from sim.engine.kv.prefix import PrefixBlockPool
from sim.engine.request import Request

BLOCK = 4


def pool(blocks: int = 10) -> PrefixBlockPool:
    return PrefixBlockPool(blocks, BLOCK)


def request(id: int, prompt: int, *spans: tuple[int, int]) -> Request:
    return Request(id, prompt, 8, spans=list(spans))


def hold(pool: PrefixBlockPool, request: Request, blocks: int, full: int | None = None) -> int:
    """Admit a request: hit what can be hit, take and cache the rest; the number of blocks hit."""
    hit = pool.lookup(request, blocks)
    if hit.blocks:
        pool.claim(request, hit)
    pool.take(blocks - hit.blocks)
    pool.cache(request, blocks if full is None else full)
    return hit.blocks


def test_taking_more_than_is_free_is_a_bug() -> None:
    counted = BlockPool(3, BLOCK)
    counted.take(3)
    with pytest.raises(AssertionError, match="1 blocks asked, 0 free"):
        counted.take(1)


def test_a_released_prompt_is_found_again() -> None:
    blocks = pool()
    first = request(0, 12, (7, 12))
    hold(blocks, first, 3)
    blocks.release(first, 3, 3)
    assert blocks.free == 10
    assert blocks.lookup(request(1, 12, (7, 12)), 3).blocks == 3


def test_a_hit_on_idle_blocks_takes_them_out_of_the_free_list() -> None:
    blocks = pool()
    first, second = request(0, 12, (7, 12)), request(1, 12, (7, 12))
    hold(blocks, first, 3)
    blocks.release(first, 3, 3)
    assert hold(blocks, second, 3) == 3
    assert blocks.free == 7


def test_shared_blocks_are_held_once() -> None:
    blocks = pool()
    first, second = request(0, 12, (7, 12)), request(1, 20, (7, 12))
    hold(blocks, first, 3)
    assert hold(blocks, second, 5) == 3
    assert blocks.free == 5
    blocks.check([(first, 3), (second, 5)])
    blocks.release(first, 3, 3)
    assert blocks.free == 5
    blocks.release(second, 5, 5)
    assert blocks.free == 10


def test_blocks_without_a_hash_are_reused_before_cached_ones() -> None:
    blocks = pool(4)
    first = request(0, 12, (7, 12))
    hold(blocks, first, 3, full=2)
    blocks.release(first, 3, 2)
    blocks.take(2)  # one never used, one without a hash
    assert blocks.lookup(request(1, 8, (7, 8)), 2).blocks == 2


def test_the_tail_of_the_least_recently_released_is_evicted_first() -> None:
    blocks = pool(6)
    old, new = request(0, 12, (7, 12)), request(1, 12, (8, 12))
    hold(blocks, old, 3)
    hold(blocks, new, 3)
    blocks.release(old, 3, 3)
    blocks.release(new, 3, 3)
    blocks.take(2)
    assert blocks.lookup(request(2, 12, (7, 12)), 3).blocks == 1
    assert blocks.lookup(request(3, 12, (8, 12)), 3).blocks == 3
    assert blocks.cached == 4


def test_a_block_belongs_to_the_text_of_its_last_token() -> None:
    blocks = pool()
    first, second = request(0, 12, (7, 6), (8, 12)), request(1, 12, (7, 6), (9, 12))
    hold(blocks, first, 3)
    assert blocks.lookup(second, 3).blocks == 1  # tokens 4 to 7 end in another text


def test_a_hit_takes_the_oldest_copy() -> None:
    blocks = pool()
    first, second = request(0, 8, (7, 8)), request(1, 8, (7, 8))
    blocks.take(4)
    blocks.cache(first, 2)
    blocks.cache(second, 2)  # computed at once: both copies stay
    assert blocks.cached == 2
    third = request(2, 8, (7, 8))
    hit = blocks.lookup(third, 2)
    blocks.release(second, 2, 2)
    assert hit.idle_blocks == 0
    assert blocks.lookup(third, 2).idle_blocks == 0  # the first copy is still held
    blocks.release(first, 2, 2)
    assert blocks.lookup(third, 2).idle_blocks == 2


def test_evicting_one_of_two_copies_keeps_the_hash() -> None:
    blocks = pool(4)
    first, second = request(0, 8, (7, 8)), request(1, 8, (7, 8))
    blocks.take(4)
    blocks.cache(first, 2)
    blocks.cache(second, 2)
    blocks.release(first, 2, 2)
    blocks.take(2)
    assert blocks.cached == 2
    assert blocks.lookup(request(2, 8, (7, 8)), 2).blocks == 2


def test_a_split_segment_stays_whole_for_its_holder() -> None:
    blocks = pool(12)
    whole = request(0, 24, (7, 24))
    hold(blocks, whole, 6)
    parts = [request(i, end, (7, end)) for i, end in enumerate((8, 16, 20), start=1)]
    for part in parts:
        assert hold(blocks, part, part.prompt // BLOCK) == part.prompt // BLOCK
    blocks.check([(whole, 6)] + [(part, part.prompt // BLOCK) for part in parts])
    blocks.release(whole, 6, 6)
    assert blocks.free == 12 - 5
    for part in parts:
        blocks.release(part, part.prompt // BLOCK, part.prompt // BLOCK)
    assert blocks.free == 12
    blocks.check([])


def test_decoded_text_is_found_by_the_next_turn() -> None:
    blocks = pool()
    turn = request(0, 6)
    hold(blocks, turn, 2, full=1)
    blocks.take(1)
    blocks.fill(2)
    blocks.release(turn, 3, 3)
    following = request(1, 14, (~0, 12))
    assert blocks.lookup(following, 3).blocks == 3


def test_private_text_of_any_length_is_one_segment() -> None:
    blocks = PrefixBlockPool(100_000, BLOCK)
    long = request(0, 200_000)
    hold(blocks, long, 50_000)
    assert len(long.table) == 1
    blocks.release(long, 50_000, 50_000)
    blocks.take(60_000)
    assert blocks.lookup(long, 50_000).blocks == 40_000
