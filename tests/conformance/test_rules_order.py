"""One test a rule, worked out by hand: the loop, the token stream, who goes first and how far the budget reaches."""

from __future__ import annotations

import pytest
from story import ask, batches, column, play

# -- the loop


def test_an_arrival_at_the_end_of_a_step_joins_the_next_and_a_microsecond_later_misses_it() -> None:
    steps, requests = play(ask(10, 2), ask(10, 2, at=110), ask(10, 2, at=111))
    assert batches(steps) == ["0:10", "0 1:10", "1 2:10", "2"]
    assert [line["admitted_us"] for line in requests] == [0, 110, 221]


def test_simultaneous_arrivals_queue_by_index() -> None:
    steps, _ = play(ask(3, at=5), ask(3, at=5), ask(3, at=5), max_num_seqs=1)
    assert batches(steps) == ["0:3", "1:3", "2:3"]


def test_every_token_is_stamped_at_the_end_of_its_step() -> None:
    _, requests = play(ask(10, 3, at=7))
    assert requests[0]["first_token_us"] == 7 + 110
    assert requests[0]["finish_us"] == 7 + 110 + 101 + 101


def test_an_idle_engine_jumps_to_the_next_arrival_without_writing_a_step() -> None:
    steps, _ = play(ask(10, at=3), ask(10, at=5000))
    assert column(steps, "t_us") == [3, 5000]
    assert column(steps, "step") == [0, 1]


def test_arrival_steps_join_before_the_step_of_that_number_and_idle_numbers_are_skipped() -> None:
    steps, requests = play(ask(4, 4, arrival_step=0), ask(4, arrival_step=2), ask(4, arrival_step=40))
    assert batches(steps) == ["0:4", "0", "0 1:4", "0", "2:4"]
    assert column(steps, "step") == [0, 1, 2, 3, 40]
    assert [line["arrival_us"] for line in requests] == [0, 205, 411]


def test_a_later_turn_arrives_its_thinking_time_after_the_turn_before_finished() -> None:
    steps, requests = play(ask(10, 2), ask(5, after=0, think_us=39), ask(5, after=0))
    assert requests[0]["finish_us"] == 211
    assert [line["arrival_us"] for line in requests] == [0, 250, 211]
    assert batches(steps) == ["0:10", "0", "2:5", "1:5"]


# -- one token stream


def test_the_first_token_comes_with_the_last_chunk_and_every_further_one_takes_a_step() -> None:
    steps, _ = play(ask(20, 3), max_num_batched_tokens=8)
    assert batches(steps) == ["0:8", "0:8", "0:4", "0", "0"]
    assert column(steps, "first") == [None, None, [0], None, None]
    assert column(steps, "finished") == [None, None, None, None, [0]]


def test_the_last_token_is_never_computed() -> None:
    steps, requests = play(ask(4, 5), num_gpu_blocks=3)  # 4 + 5 tokens, of which 8 fill the 2 blocks
    assert column(steps, "free_blocks") == [1, 0, 0, 0, 0]
    assert requests[0]["preemptions"] == 0


# -- order and budget


def test_only_the_place_in_the_list_counts_not_prefill_or_decode() -> None:
    steps, _ = play(ask(20), ask(2, 5), long_prefill_token_threshold=6, max_num_batched_tokens=8)
    assert batches(steps) == ["0:6 1:2", "0:6 1", "0:6 1", "0:2 1", "1"]


def test_a_waiting_prompt_takes_what_the_budget_leaves() -> None:
    steps, _ = play(ask(6, 3), ask(6), max_num_batched_tokens=8)
    assert batches(steps) == ["0:6 1:2", "0 1:4", "0"]


def test_a_spent_budget_makes_the_rest_wait() -> None:
    steps, _ = play(ask(8), ask(4), max_num_batched_tokens=8)
    assert batches(steps) == ["0:8", "1:4"]


def test_finishing_keeps_the_order_of_the_others() -> None:
    steps, _ = play(ask(3, 3), ask(3, 1), ask(3, 3))
    assert batches(steps) == ["0:3 1:3 2:3", "0 2", "0 2"]


def test_no_more_than_max_num_seqs_run() -> None:
    steps, _ = play(ask(4, 2), ask(4, 2), ask(4, 2), max_num_seqs=2)
    assert batches(steps) == ["0:4 1:4", "0 1", "2:4", "2"]
    assert column(steps, "waiting") == [1, 1, 0, 0]


def test_any_number_may_be_admitted_in_one_step() -> None:
    steps, _ = play(*[ask(1) for _ in range(16)])
    assert len(steps[0]["admitted"]) == 16
    assert len(steps) == 1


def test_the_first_that_cannot_be_admitted_ends_admission() -> None:
    steps, _ = play(ask(8, 3), ask(16), ask(4), num_gpu_blocks=6)  # request 2 would fit
    assert batches(steps) == ["0:8", "0", "0", "1:16 2:4"]
    assert column(steps, "waiting") == [2, 2, 2, 0]


def test_priority_queue_is_ordered_by_priority_then_arrival_then_index() -> None:
    steps, _ = play(
        ask(4, priority=2),
        ask(4, priority=0),
        ask(4, priority=1),
        ask(4, priority=1),
        ask(4, at=1, priority=-1),
        ask(4, at=2, priority=0),
        policy="priority",
        max_num_seqs=1,
    )
    assert batches(steps) == ["1:4", "4:4", "5:4", "2:4", "3:4", "0:4"]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_a_late_turn_queues_by_its_arrival_not_by_its_index(policy: str) -> None:
    steps, _ = play(
        ask(4, 2), ask(4, after=0, think_us=50), ask(4, at=10), ask(4, at=20), policy=policy, max_num_seqs=1
    )
    assert batches(steps) == ["0:4", "0", "2:4", "3:4", "1:4"]


# -- long prefills and chunks


def test_a_long_prefill_is_capped_whether_it_waits_or_runs() -> None:
    steps, _ = play(ask(10), ask(10), long_prefill_token_threshold=4, max_num_batched_tokens=16)
    assert batches(steps) == ["0:4 1:4", "0:4 1:4", "0:2 1:2"]


def test_the_only_request_is_not_capped() -> None:
    steps, _ = play(ask(20), long_prefill_token_threshold=4, max_num_batched_tokens=16)
    assert batches(steps) == ["0:16", "0:4"]


def test_a_request_that_waits_is_company_enough_for_the_cap() -> None:
    steps, _ = play(ask(20), ask(2), long_prefill_token_threshold=8, max_num_seqs=1)
    assert batches(steps) == ["0:8", "0:8", "0:4", "1:2"]


def test_the_cap_falls_when_the_others_are_done() -> None:
    steps, _ = play(ask(20), ask(2), long_prefill_token_threshold=4)
    assert batches(steps) == ["0:4 1:2", "0:16"]


def test_without_chunks_a_prompt_that_exceeds_the_budget_left_ends_admission() -> None:
    steps, _ = play(
        ask(10, 2), ask(10), ask(2), enable_chunked_prefill=False, max_num_batched_tokens=16, max_model_len=16
    )
    assert batches(steps) == ["0:10", "0 1:10 2:2"]


# -- what can never be served


def test_a_request_over_max_model_len_is_rejected_on_arrival() -> None:
    steps, requests = play(ask(10, 6, at=9), ask(10, 7, at=20), max_model_len=16)
    assert batches(steps) == ["0:10", *["0"] * 5]
    assert requests[1] == {"id": 1, "arrival_us": 20, "rejected": "max_model_len"}


def test_a_request_over_the_whole_pool_is_rejected_and_its_dependant_arrives_all_the_same() -> None:
    steps, requests = play(ask(8, 2, at=30), ask(4, after=0, think_us=12), num_gpu_blocks=3, max_num_seqs=1)
    assert requests[0] == {"id": 0, "arrival_us": 30, "rejected": "num_gpu_blocks"}
    assert requests[1]["arrival_us"] == 42
    assert batches(steps) == ["1:4"]
