"""One test a rule, worked out by hand: blocks, admission checks and preemption."""

from __future__ import annotations

from story import ask, batches, column, play

# -- blocks


def test_block_0_is_never_given_out() -> None:
    steps, requests = play(ask(8), ask(9), num_gpu_blocks=3)
    assert column(steps, "free_blocks") == [0]
    assert requests[1]["rejected"] == "num_gpu_blocks"


def test_a_decode_takes_a_block_only_when_its_next_token_starts_one() -> None:
    steps, _ = play(ask(3, 7), num_gpu_blocks=10)
    # 3 tokens, then 4, 5, ... 9 are held while the step runs
    assert column(steps, "free_blocks") == [8, 8, 7, 7, 7, 7, 6]


def test_the_token_just_sampled_has_no_slot_until_it_is_scheduled() -> None:
    steps, _ = play(ask(8, 2), num_gpu_blocks=10)
    assert column(steps, "free_blocks") == [7, 6]


def test_finished_blocks_serve_the_next_step() -> None:
    steps, _ = play(ask(12), ask(12), num_gpu_blocks=4)
    assert batches(steps) == ["0:12", "1:12"]
    assert column(steps, "t_us") == [0, 112]
    assert column(steps, "free_blocks_end") == [3, 3]


# -- admission


def test_the_whole_prompt_must_fit_not_only_its_first_chunk() -> None:
    steps, _ = play(ask(4, 2), ask(16), num_gpu_blocks=5, max_num_batched_tokens=6)
    assert batches(steps) == ["0:4", "0", "1:6", "1:6", "1:4"]


def test_without_the_reserve_the_first_chunk_is_enough() -> None:
    steps, _ = play(ask(4, 2), ask(16), num_gpu_blocks=5, max_num_batched_tokens=6, scheduler_reserve_full_isl=False)
    assert batches(steps) == ["0:4 1:2", "0 1:5", "1:6", "1:3"]


def test_the_reserve_holds_nothing_so_two_chunked_prompts_collide() -> None:
    steps, _ = play(ask(12), ask(12), num_gpu_blocks=5, long_prefill_token_threshold=4, max_num_batched_tokens=8)
    assert batches(steps) == ["0:4 1:4", "0:4 1:4", "0:4", "1:8", "1:4"]
    assert column(steps, "free_blocks") == [2, 0, 1, 2, 1]
    assert column(steps, "preempted") == [None, None, [1], None, None]


def test_the_watermark_keeps_blocks_free_when_something_runs() -> None:
    steps, _ = play(ask(4, 2), ask(20), num_gpu_blocks=11, watermark=0.5)  # 5 for the prompt + 5 exceed the 9 left
    assert batches(steps) == ["0:4", "0", "1:20"]


def test_the_watermark_counts_requests_admitted_in_the_same_step_and_is_rounded_down() -> None:
    tight, _ = play(ask(4), ask(16), num_gpu_blocks=11, watermark=0.5)  # 4 + int(5.5) = 9: fits exactly
    assert batches(tight) == ["0:4 1:16"]
    wide, _ = play(ask(5), ask(16), num_gpu_blocks=11, watermark=0.5)
    assert batches(wide) == ["0:5", "1:16"]


def test_the_watermark_does_not_bind_an_empty_engine_nor_a_running_request() -> None:
    steps, requests = play(ask(36, 5), num_gpu_blocks=11, watermark=0.5)
    assert column(steps, "free_blocks") == [1, 0, 0, 0, 0]
    assert requests[0]["preemptions"] == 0


# -- preemption, first come first served: 5 usable blocks, two requests that come to need 3 each

TIGHT = {"num_gpu_blocks": 6}


def test_the_last_of_the_running_is_dropped_and_later_recomputes_prompt_and_outputs() -> None:
    steps, requests = play(ask(4, 9), ask(4, 9), **TIGHT)
    assert batches(steps) == ["0:4 1:4", *["0 1"] * 4, *["0"] * 4, "1:9", "1", "1", "1"]
    assert column(steps, "preempted") == [*[None] * 5, [1], *[None] * 7]
    assert column(steps, "free_blocks") == [3, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]
    assert steps[9]["admitted"] == [[1, 0, 1]]
    assert [line["output_tokens"] for line in requests] == [9, 9]
    assert [line["preemptions"] for line in requests] == [0, 1]


def test_a_resumed_request_needs_room_for_its_outputs_too() -> None:
    steps, _ = play(ask(4, 9), ask(4, 9), **TIGHT)  # its prompt alone would fit the 2 free blocks from step 6 on
    assert column(steps, "waiting")[5:10] == [1, 1, 1, 1, 0]


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    steps, _ = play(ask(4, 9), ask(4, 9), ask(2, 2, at=500), **TIGHT)  # request 2 would fit the 2 blocks just freed
    assert steps[5]["t_us"] == 516
    assert steps[5]["waiting"] == 2
    assert "admitted" not in steps[5]


def test_a_preempted_request_goes_to_the_front_of_the_queue() -> None:
    steps, _ = play(ask(4, 9), ask(4, 9), ask(2, 2, at=400), max_num_seqs=2, **TIGHT)
    assert batches(steps)[5:10] == ["0", "0", "0", "0", "1:9 2:2"]


def test_a_resumed_request_joins_at_the_end_of_the_running() -> None:
    steps, _ = play(
        ask(4, 9, priority=0),
        ask(4, 9, priority=2),
        ask(2, 6, at=500, priority=1),
        policy="priority",
        **TIGHT,
    )
    assert batches(steps)[5:] == ["0", "0 2:2", "0 2", "0 2", "2 1:9", "2 1", "2 1", "1"]


def test_a_victim_that_is_the_request_itself_ends_the_running_phase() -> None:
    steps, _ = play(ask(4, 9, priority=2), ask(4, 9, at=1, priority=0), num_gpu_blocks=5, policy="priority")
    assert batches(steps)[:7] == ["0:4", "0 1:4", "0 1", "0 1", "0 1", "", "1"]
    assert steps[5] == {
        "step": 5,
        "t_us": 515,
        "dt_us": 0,
        "running": 1,
        "waiting": 1,
        "preempted": [0],
        "free_blocks": 2,
    }
    assert steps[6]["t_us"] == 515


# -- preemption by priority


def test_priority_drops_the_least_important_wherever_it_stands() -> None:
    steps, _ = play(ask(4, 9, priority=2), ask(4, 9, at=1, priority=0), policy="priority", **TIGHT)
    assert batches(steps)[:7] == ["0:4", "0 1:4", "0 1", "0 1", "0 1", "0 1", "1"]
    assert steps[6]["preempted"] == [0]


def test_tokens_of_a_victim_go_back_to_the_budget() -> None:
    steps, _ = play(
        ask(4, 9, priority=2),
        ask(4, 9, at=1, priority=0),
        ask(12, 1, at=500, priority=1),
        policy="priority",
        num_gpu_blocks=7,
        max_num_batched_tokens=6,
        scheduler_reserve_full_isl=False,
    )
    assert batches(steps) == [
        "0:4",
        "0 1:4",
        *["0 1"] * 3,
        "0 1 2:4",
        "1 2:5",  # not 4: the token of request 0 is free again
        "1 2:3",
        "1 0:5",
        "1 0:5",
        "0",
        "0",
    ]
    assert steps[6]["preempted"] == [0]


def test_among_equal_priorities_the_latest_arrival_is_dropped() -> None:
    steps, _ = play(ask(4, 9, priority=1), ask(4, 9, at=1, priority=1), policy="priority", **TIGHT)
    assert [step["preempted"] for step in steps if "preempted" in step] == [[1]]


def test_among_equal_priorities_and_arrivals_the_first_of_the_running_is_dropped() -> None:
    steps, _ = play(ask(4, 9), ask(4, 9), policy="priority", **TIGHT)
    assert [step["preempted"] for step in steps if "preempted" in step] == [[0]]


def test_a_request_preempted_by_priority_waits_at_its_place_in_the_queue() -> None:
    steps, _ = play(
        ask(4, 9, priority=0),
        ask(4, 9, priority=2),
        ask(2, 2, at=500, priority=1),
        policy="priority",
        **TIGHT,
    )
    assert steps[5]["preempted"] == [1]
    assert batches(steps)[5:10] == ["0", "0 2:2", "0 2", "0", "1:9"]
