"""One test a rule, worked out by hand: the prefix cache, its hits and what it forgets."""

from __future__ import annotations

from story import ask, batches, column, play, read


def hits(steps: list[dict[str, object]]) -> dict[int, int]:
    """Tokens found in the cache by each request when it was last admitted."""
    return {row[0]: row[1] for step in steps for row in step.get("admitted", [])}


# -- what is hit


def test_only_whole_blocks_are_shared() -> None:
    steps, requests = play(read(("sys", 10)), read(("sys", 10), ("u", 2), at=500))
    assert batches(steps) == ["0:10", "1:4"]
    assert steps[1]["admitted"] == [[1, 8, 0]]
    assert requests[1]["cached_tokens"] == 8


def test_texts_that_differ_early_share_nothing_later() -> None:
    steps, _ = play(read(("sys", 12)), read(("u", 1), ("sys", 12), at=500))
    assert hits(steps)[1] == 0


def test_a_cached_block_aligned_prompt_recomputes_its_whole_last_block() -> None:
    steps, _ = play(read(("sys", 8)), read(("sys", 8), at=500))
    assert batches(steps) == ["0:8", "1:4"]


def test_a_cached_prompt_that_ends_inside_a_block_recomputes_the_rest() -> None:
    steps, _ = play(read(("sys", 9)), read(("sys", 9), at=500))
    assert batches(steps) == ["0:9", "1"]


def test_a_block_is_hit_in_the_very_step_that_fills_it() -> None:
    steps, _ = play(read(("sys", 9)), read(("sys", 9)))
    assert batches(steps) == ["0:9 1"]
    assert steps[0]["admitted"] == [[0, 0, 0], [1, 8, 0]]


def test_hits_use_blocks_that_a_running_request_holds() -> None:
    steps, _ = play(read(("sys", 8), output=4), read(("sys", 8), ("u", 1), at=50), num_gpu_blocks=11)
    # 2 blocks; then a third one for the first request and one for the tail of the second
    assert column(steps, "free_blocks")[:3] == [8, 6, 7]


def test_outputs_are_cached_once_they_are_computed() -> None:
    steps, _ = play(read(("a", 4), output=5), read(("a", 4), ("out:0", 5), ("u", 4), at=1000))
    assert column(steps, "cached_blocks")[:5] == [1, 1, 1, 1, 2]
    assert hits(steps)[1] == 8


def test_the_last_output_is_never_computed_and_so_never_cached() -> None:
    steps, _ = play(read(("a", 4), output=4), read(("a", 4), ("out:0", 4), ("u", 4), at=1000))
    assert hits(steps)[1] == 4


def test_a_running_request_is_not_looked_up_again() -> None:
    steps, _ = play(read(("sys", 12)), read(("sys", 12)), long_prefill_token_threshold=4, max_num_batched_tokens=8)
    # request 1 starts one block ahead; request 0 computes the same blocks a step later all the same
    assert batches(steps) == ["0:4 1:4", "0:4 1:4", "0:4"]
    assert column(steps, "cached_blocks") == [2, 3, 3]


def test_a_waiting_request_is_looked_up_each_time_it_is_tried() -> None:
    def last_batch(output: int) -> str:
        steps, _ = play(
            read(("sys", 4)),
            read(("u", 8), output=output, at=200),
            read(("sys", 4), ("w", 8), at=200),
            num_gpu_blocks=5,
        )
        assert steps[1]["waiting"] == 1  # the cached block is there, but 3 blocks are not
        return batches(steps)[-1]

    assert last_batch(output=4) == "2:8"
    assert last_batch(output=8) == "2:12"  # meanwhile request 1 grew into the cached block


def test_a_resumed_request_hits_its_own_blocks_prompt_and_outputs() -> None:
    steps, requests = play(read(("a", 4), output=9), read(("b", 4), output=9), num_gpu_blocks=6)
    assert steps[5]["preempted"] == [1]
    assert steps[9]["admitted"] == [[1, 8, 1]]
    assert batches(steps)[9] == "1"
    assert [line["resume_cached_tokens"] for line in requests] == [0, 8]


def test_free_hit_blocks_count_as_needed() -> None:
    # 4 usable blocks: 2 held by request 1, 2 free and cached. Request 2 needs both and one more.
    steps, _ = play(
        read(("sys", 8)), read(("u", 6), output=3, at=200), read(("sys", 8), ("w", 4), at=250), num_gpu_blocks=5
    )
    assert batches(steps) == ["0:8", "1:6", "1", "1", "2:4"]
    assert steps[4]["admitted"] == [[2, 8, 0]]


def test_free_hit_blocks_count_for_the_whole_prompt_not_only_for_the_chunk() -> None:
    # 5 usable blocks: 2 held by request 1, 2 free and cached, 1 free. The chunk of 4 tokens would fit, 16 do not.
    steps, _ = play(
        read(("sys", 8)),
        read(("u", 6), output=3, at=300),
        read(("sys", 8), ("w", 8), at=350),
        num_gpu_blocks=6,
        max_num_batched_tokens=5,
    )
    assert batches(steps) == ["0:5", "0:3", "1:5", "1", "1", "1", "2:5", "2:3"]


def test_free_hit_blocks_count_for_the_chunk_too() -> None:
    steps, _ = play(
        read(("sys", 8)),
        read(("u", 6), output=3, at=200),
        read(("sys", 8), ("w", 4), at=250),
        num_gpu_blocks=5,
        scheduler_reserve_full_isl=False,
    )
    assert batches(steps) == ["0:8", "1:6", "1", "1", "2:4"]


# -- no deduplication


def test_equal_blocks_are_kept_twice_and_a_hit_takes_the_oldest() -> None:
    steps, _ = play(read(("sys", 8), output=20), read(("sys", 8)), read(("sys", 8), ("u", 4), at=50), num_gpu_blocks=11)
    assert batches(steps)[:2] == ["0:8 1:4", "0 2:4"]
    assert steps[0]["cached_blocks"] == 2  # distinct, though request 1 computed the second block again
    assert (steps[0]["free_blocks"], steps[0]["free_blocks_end"]) == (7, 8)
    # the hit shares both blocks of request 0; the free duplicate stays free
    assert steps[1]["free_blocks"] == 6


# -- what is forgotten


def test_the_tail_of_a_request_is_forgotten_before_its_head() -> None:
    steps, _ = play(read(("sys", 12)), read(("u", 8), at=500), read(("sys", 12), ("w", 1), at=1000), num_gpu_blocks=5)
    # request 1 takes the one unused block and the last of the three cached ones
    assert column(steps, "cached_blocks")[:2] == [3, 4]
    assert hits(steps)[2] == 8


def test_blocks_that_cache_nothing_are_reused_first() -> None:
    steps, _ = play(
        read(("a", 4)),
        read(("b", 3), at=500),
        read(("c", 3), at=1000),
        read(("a", 4), ("d", 3), at=1500),
        num_gpu_blocks=3,
    )
    # requests 1 and 2 use the same second block in turn; the cached first one survives
    assert column(steps, "cached_blocks") == [1, 1, 1, 1]
    assert hits(steps)[3] == 4


def test_a_hit_makes_a_block_the_last_to_be_forgotten() -> None:
    steps, _ = play(
        read(("a", 4)),
        read(("b", 4), at=500),
        read(("a", 4), ("c", 1), at=1000),  # uses a again, so b is now the oldest
        read(("d", 8), at=1500),  # takes the free block and forgets b
        read(("a", 4), ("e", 1), at=2000),
        read(("b", 4), ("f", 1), at=2500),
        num_gpu_blocks=4,
    )
    assert hits(steps) == {0: 0, 1: 0, 2: 4, 3: 0, 4: 4, 5: 0}


def test_preempted_blocks_stay_cached_until_someone_needs_them() -> None:
    steps, requests = play(read(("a", 4), output=17), read(("b", 4), output=9), num_gpu_blocks=6)
    # request 0 ends with 5 blocks, so both blocks of request 1 are forgotten before it resumes
    assert requests[1]["preemptions"] == 1
    assert requests[1]["resume_cached_tokens"] == 0
    assert max(step["cached_blocks"] for step in steps) <= 5


def test_taking_a_cached_block_forgets_it() -> None:
    steps, _ = play(read(("a", 8)), read(("b", 8), at=500), read(("a", 8), ("c", 1), at=1000), num_gpu_blocks=4)
    assert column(steps, "cached_blocks")[:2] == [2, 3]
    assert hits(steps)[2] == 4


# -- without prefix caching


def test_without_prefix_caching_nothing_is_found_and_no_count_is_written() -> None:
    steps, _ = play(ask(8), ask(8, at=500))
    assert hits(steps) == {0: 0, 1: 0}
    assert column(steps, "cached_blocks") == [None, None]
