from __future__ import annotations

from random import Random

import pytest

from sim.engine.decoding import DecodeGroup
from sim.engine.request import Request


def member(id: int, computed: int, left: int) -> Request:
    request = Request(id, computed, left + 1)
    request.computed, request.issued, request.rank = computed, 1, id
    return request


def naive_sums(members: list[Request], group: DecodeGroup) -> tuple[int, int, int]:
    """Context, windowed context and padding, summed over the members one by one."""
    computed = [request.group_offset + group.step for request in members]
    window = group.window or 1 << 60
    attended = [count + 1 for count in computed]
    return sum(attended), sum(min(a, window) for a in attended), sum(-count % group.block_size for count in computed)


@pytest.mark.parametrize("seed", range(50))
def test_sums_equal_a_walk_over_the_members(seed: int) -> None:
    rng = Random(seed)
    group = DecodeGroup(rng.choice([1, 3, 16]), rng.choice([None, 5, 20]))
    members: list[Request] = []
    for id in range(60):
        if members and rng.random() < 0.2:
            group.leave(members.pop(rng.randrange(len(members))))
        members.append(member(id, rng.randint(1, 40), rng.randint(1, 30)))
        group.join(members[-1])
        steps = min(rng.randint(1, 6), group.steps_to_change(1 << 30))
        before = [request.group_offset + group.step for request in members]
        started, filled = group.advance(steps)
        size = group.block_size
        assert started == sum((c + steps - 1) // size - (c - 1) // size for c in before)
        assert filled == sum((c + steps) // size - c // size for c in before)
        done = group.ended()
        members = [request for request in members if request not in done]
        assert (group.context, group.windowed, group.padding) == naive_sums(members, group)
        assert group.size == len(members)


def test_a_member_ends_at_its_last_token_and_knows_its_length() -> None:
    group = DecodeGroup(4, None)
    request = member(0, 10, left=3)
    group.join(request)
    assert group.steps_to_change(100) == 3
    group.advance(3)
    assert group.ended() == [request]
    assert (request.computed, request.issued) == (13, request.output)


def test_members_that_end_together_come_out_in_running_order() -> None:
    group = DecodeGroup(4, None)
    members = [member(id, 10 - id, left=2) for id in range(4)]
    for request in reversed(members):
        group.join(request)
    group.advance(2)
    assert group.ended() == members


@pytest.mark.parametrize("free", range(30))
def test_steps_within_counts_blocks_like_single_steps_do(free: int) -> None:
    rng = Random(free)
    group, probe = DecodeGroup(4, None), DecodeGroup(4, None)
    for id in range(5):
        computed = rng.randint(1, 20)
        group.join(member(id, computed, left=100))
        probe.join(member(id, computed, left=100))
    expected, left = 0, free
    while expected < 20 and probe.blocks_needed() <= left:
        left -= probe.blocks_needed()
        probe.advance()
        expected += 1
    assert group.steps_within(free, 20) == expected


def test_a_member_of_another_group_is_not_taken_for_one_that_left() -> None:
    """In a pipeline a preempted request may come back in another group, due at the very step where it was due here."""
    here, there = DecodeGroup(16, None), DecodeGroup(16, None)
    request, other = Request(0, 10, 5), Request(1, 10, 9)
    for one in (request, other):
        one.computed, one.issued = 10, 1
        here.join(one)
    here.leave(request)
    there.join(request)
    here.advance(4)
    assert here.ended() == []
    assert (here.size, there.size) == (1, 1)
