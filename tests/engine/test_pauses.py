from __future__ import annotations

from random import Random

import pytest

from sim.engine.pauses import TokenTimes
from sim.engine.request import Request


def gaps_of(times: TokenTimes, members: int, last_end: float, end: float) -> list[tuple[float, int]]:
    found: list[tuple[float, int]] = []
    waited = times.moved(members, last_end, end, lambda gap, tokens: found.append((gap, tokens)))
    assert waited == sum(tokens for _, tokens in found)
    return found


def test_a_step_right_after_the_last_makes_nobody_wait() -> None:
    times = TokenTimes()
    times.joined(3, 10.0)
    assert not times.paused(3, 10.0)
    assert gaps_of(times, 3, 10.0, 12.0) == []
    assert gaps_of(times, 3, 12.0, 14.0) == []


def test_members_that_were_passed_over_have_longer_gaps() -> None:
    times = TokenTimes()
    times.joined(2, 10.0)
    gaps_of(times, 2, 10.0, 12.0)
    times.joined(1, 15.0)  # prefilled from 12 to 15 while the two waited
    times.joined(4, 18.0)  # and from 15 to 18
    assert times.paused(7, 18.0)
    assert gaps_of(times, 7, 18.0, 20.0) == [(5.0, 1), (8.0, 2)]  # the last four waited for one step only


def test_a_member_that_leaves_knows_its_last_token() -> None:
    times = TokenTimes()
    old, new = Request(0, 1, 1), Request(1, 1, 1)
    old.last_token, new.last_token = 10.0, 15.0
    times.joined(1, 10.0)
    gaps_of(times, 1, 10.0, 12.0)
    times.joined(1, 15.0)
    assert times.left(new) == 15.0
    assert gaps_of(times, 1, 15.0, 17.0) == [(5.0, 1)]
    assert times.left(old) == 17.0


@pytest.mark.parametrize("seed", range(20))
def test_sums_equal_a_book_of_every_member(seed: int) -> None:
    rng, times, now = Random(seed), TokenTimes(), 0.0
    book: dict[Request, float] = {}  # member -> its last token
    for step in range(200):
        last_end, now = now, now + rng.randint(1, 9)
        for request in [r for r in book if rng.random() < 0.05]:
            assert times.left(request) == book.pop(request)
        moves = bool(book) and rng.random() < 0.5
        if moves:
            expected = sorted(now - token for token in book.values() if token != last_end)
            assert times.paused(len(book), last_end) == bool(expected)
            got = gaps_of(times, len(book), last_end, now)
            assert sorted(gap for gap, tokens in got for _ in range(tokens)) == expected
            book = dict.fromkeys(book, now)
        new = [Request(1000 * step + i, 1, 1) for i in range(rng.choice([0, 0, 1, 3]))]
        for request in new:
            request.last_token = now
        times.joined(len(new), now)
        book.update(dict.fromkeys(new, now))
