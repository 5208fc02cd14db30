"""One test a rule, worked out by hand: async scheduling, two steps in flight. Every step takes 100 us."""

from __future__ import annotations

from story import ask, batches, column, play, read

ASYNC = {"async_scheduling": True, "constant": True}


def test_a_step_is_scheduled_when_the_one_before_begins_to_run() -> None:
    steps, requests = play(ask(4, 4), **ASYNC)
    assert column(steps, "t_us") == [0, 0, 100, 200]
    assert column(steps, "exec_start_us") == [0, 100, 200, 300]
    assert (requests[0]["first_token_us"], requests[0]["finish_us"]) == (100, 400)


def test_an_arrival_waits_for_up_to_one_more_step() -> None:
    steps, requests = play(ask(4, 4), ask(4, at=50), **ASYNC)
    assert batches(steps) == ["0:4", "0", "0 1:4", "0"]
    assert (requests[1]["admitted_us"], requests[1]["first_token_us"]) == (100, 300)


def test_a_request_whose_last_token_is_in_flight_is_left_out_but_keeps_its_place() -> None:
    steps, _ = play(ask(4, 2), ask(4, 4), num_gpu_blocks=11, **ASYNC)
    assert batches(steps) == ["0:4 1:4", "0 1", "1", "1"]
    assert column(steps, "running") == [2, 2, 2, 1]  # step 2 is scheduled before step 1 is done
    assert column(steps, "free_blocks") == [8, 6, 6, 8]
    assert steps[1]["finished"] == [0]


def test_a_finished_request_holds_its_seat_through_one_more_schedule() -> None:
    steps, requests = play(ask(4, 2), ask(4), max_num_seqs=1, **ASYNC)
    assert batches(steps) == ["0:4", "0", "1:4"]
    assert requests[0]["finish_us"] == 200
    assert requests[1]["admitted_us"] == 200


def test_the_next_chunk_is_scheduled_while_the_one_before_runs() -> None:
    steps, requests = play(ask(12), max_num_batched_tokens=4, **ASYNC)
    assert batches(steps) == ["0:4", "0:4", "0:4"]
    assert column(steps, "t_us") == [0, 0, 100]
    assert requests[0]["first_token_us"] == 300


def test_a_block_filled_by_a_token_not_yet_known_is_cached_a_step_later() -> None:
    at_once, _ = play(read(("a", 4), output=7), constant=True)
    later, _ = play(read(("a", 4), output=7), **ASYNC)
    assert column(at_once, "cached_blocks") == [1, 1, 1, 1, 2, 2, 2]
    assert column(later, "cached_blocks") == [1, 1, 1, 1, 1, 2, 2]


def test_a_block_filled_by_the_last_computed_token_is_cached_when_its_output_arrives() -> None:
    steps, _ = play(read(("a", 4), output=5), read(("a", 4), ("out:0", 5), ("u", 4), at=1000), **ASYNC)
    assert column(steps, "cached_blocks")[:5] == [1, 1, 1, 1, 1]
    assert steps[-1]["admitted"] == [[1, 8, 0]]


def test_a_request_left_out_of_a_step_has_no_token_in_flight_and_all_its_blocks_cached() -> None:
    steps, _ = play(
        ask(1, 5, priority=2),
        ask(4, 6, priority=0),
        ask(3, 3, at=50, priority=1),
        policy="priority",
        num_gpu_blocks=5,
        enable_prefix_caching=True,
        **ASYNC,
    )
    # step 4: request 0 is its own victim, so request 2 is left out; step 5: request 2 is its own victim
    assert batches(steps)[:6] == ["1:4 0", "1 0", "1 0 2:3", "1 0 2", "1", "1"]
    assert column(steps, "preempted")[:6] == [None, None, None, None, [0], [2]]
    # the block of request 2, full since step 3, is cached although it was not scheduled again
    assert column(steps, "cached_blocks")[:6] == [1, 1, 1, 1, 1, 3]


def test_the_token_in_flight_of_a_preempted_request_is_still_delivered() -> None:
    steps, requests = play(ask(4, 9), ask(4, 9), num_gpu_blocks=6, **ASYNC)
    assert batches(steps) == ["0:4 1:4", *["0 1"] * 4, *["0"] * 4, "1:9", "1", "1", "1"]
    assert (steps[5]["t_us"], steps[5]["preempted"]) == (400, [1])  # its fifth token comes out at 500
    assert [line["output_tokens"] for line in requests] == [9, 9]


def test_a_preempted_request_may_finish_while_it_waits() -> None:
    steps, requests = play(ask(4, 9), ask(4, 5), num_gpu_blocks=5, **ASYNC)
    assert (steps[5]["t_us"], steps[5]["preempted"]) == (400, [1])
    assert steps[5]["waiting"] == 1
    assert steps[4]["finished"] == [1]
    assert requests[1]["finish_us"] == 500
    assert (requests[1]["output_tokens"], requests[1]["preemptions"]) == (5, 1)


def test_a_step_that_only_preempts_takes_no_time() -> None:
    steps, _ = play(ask(4, 5), ask(4, 10), num_gpu_blocks=5, **ASYNC)
    # at 400 the last token of request 0 is in flight, the pool is full and request 1 finds no victim but itself
    assert batches(steps) == ["0:4 1:4", *["0 1"] * 4, "", "1:9", *["1"] * 4]
    assert (steps[5]["preempted"], steps[5]["dt_us"], steps[5]["exec_start_us"]) == ([1], 0, 500)
    assert column(steps, "t_us")[4:8] == [300, 400, 500, 500]


def test_an_arrival_during_the_last_step_joins_at_its_end() -> None:
    steps, requests = play(ask(4, 1), ask(4, 1, at=50), **ASYNC)
    assert column(steps, "t_us") == [0, 100]
    assert requests[1]["first_token_us"] == 200
