"""TGI by hand: each trace follows from its documented rules (docs/engines.md); steps take 100 us."""

from __future__ import annotations

from policy_story import play
from story import ask, batches, column, read


def test_a_waiting_batch_interrupts_when_it_is_large_enough() -> None:
    steps = play(
        "tgi",
        ask(4, 8),
        ask(3, 4),
        ask(2, 2, at=50),
        ask(2, 3, at=250),
        tokens=100,
        waiting_served_ratio=1.0,
        max_waiting_tokens=4,
    )
    assert batches(steps) == [
        "0:4 1:3",
        "0 1",  # 2 waits alone: as many as run must wait
        "0 1",
        "2:2 3:2",  # at 300 us two wait: the running two pause
        "0 1 2 3",  # one decode step of all before the queue is asked again; 1 and 2 end
        "0 3",
        "0",
        "0",
        "0",
    ]
    assert column(steps, "finished") == [None, None, None, None, [1, 2], [3], None, None, [0]]


def test_after_enough_decode_steps_any_may_join() -> None:
    steps = play("tgi", ask(4, 8), ask(2, 2, at=50), tokens=100, waiting_served_ratio=2.0, max_waiting_tokens=3)
    assert batches(steps) == [
        "0:4",  # counts as the first of three
        "0",
        "0",
        "1:2",  # too few to be a batch of twice the running one, but three tokens have passed
        "0 1",
        "0",
        "0",
        "0",
        "0",
    ]


def test_prompt_and_allowed_output_are_allocated_at_once() -> None:
    # 30 tokens. The first batch may hold prompts and outputs of 30: 16 + 12, and no 4 beside them. What the batch holds
    # then is a token less each, since the last one is never cached: 15 + 11, and the 4 of request 2 fit.
    steps = play("tgi", ask(10, 6), ask(8, 4), ask(2, 2), ask(2, 2), tokens=30)
    assert batches(steps) == [
        "0:10 1:8",
        "2:2",  # the queue is asked before the first decode step; 30 - 26 - 3 = 1 is left for request 3
        "0 1 2",  # 2 ends
        "3:2",  # 4 tokens again
        "0 1 3",
        "0 1",
        "0",
        "0",
    ]
    assert [step["free_blocks"] for step in steps[:7]] == [4, 1, 1, 1, 1, 4, 15]


def test_prompts_of_a_batch_are_bounded_and_so_few_get_in() -> None:
    # Two prompts of 8 fit the 16 tokens of a prefill; six tenths of the running batch must be there.
    load = [ask(8, 6) for _ in range(9)]
    steps = play("tgi", *load, tokens=1000, max_num_batched_tokens=16, waiting_served_ratio=0.6, max_waiting_tokens=2)
    assert batches(steps) == [
        "0:8 1:8",
        "2:8 3:8",  # int(0.6 x 2) = 1 is enough
        "0 1 2 3",
        "4:8 5:8",  # int(0.6 x 4) = 2
        "0 1 2 3 4 5",  # three must wait together, but only two fit a batch
        "6:8 7:8",  # two tokens have passed
        "0 1 2 3 4 5 6 7",
        "8:8",
        "0 1 2 3 4 5 6 7 8",
        "0 1 2 3 4 5 6 7 8",
        "4 5 6 7 8",
        "6 7 8",
        "8",
    ]


def test_a_prompt_is_found_once_its_request_is_freed() -> None:
    shared = ("sys:0", 6)
    steps = play(
        "tgi",
        read(shared, ("u:0", 2), output=2),
        read(shared, ("u:1", 1), output=1, at=50),
        read(shared, ("u:2", 3), output=1, at=250),
        tokens=40,
    )
    assert batches(steps) == ["0:8", "1:7", "0", "2:3"]
    assert column(steps, "admitted") == [[[0, 0, 0]], [[1, 0, 0]], None, [[2, 6, 0]]]
    assert [step["cached_blocks"] for step in steps] == [0, 0, 7, 9]  # 1 is freed first: 6 + 1, then 0 adds its 2
