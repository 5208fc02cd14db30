"""TensorRT-LLM by hand: each trace follows from its documented rules (docs/engines.md); steps take 100 us."""

from __future__ import annotations

from policy_story import play
from story import ask, batches, column, read

EVICTS = {"capacity_scheduler_policy": "MAX_UTILIZATION"}


def test_the_example_of_its_own_documentation() -> None:
    # docs/source/features/paged-attention-ifb-scheduler.md: max batch size 4, max num tokens 12, prompts of 5 tokens,
    # and the first request ends with its second token.
    steps = play(
        "tensorrt-llm",
        ask(5, 2),
        ask(5, 4),
        ask(5, 3),
        ask(5, 3),
        ask(5, 2),
        tokens=320,
        max_num_seqs=4,
        max_num_batched_tokens=12,
    )
    assert batches(steps) == [
        "0:5 1:5",  # the 2 tokens that are left hold no third prompt
        "0 1 2:5 3:5",  # 2 generating, 10 tokens left; the fifth request finds no seat
        "1 2 3 4:5",  # the first has ended
        "1 2 3 4",  # all have their last token
    ]
    assert column(steps, "finished") == [None, [0], None, [1, 2, 3, 4]]


def test_chunks_are_whole_blocks() -> None:
    steps = play(
        "tensorrt-llm",
        ask(5, 4),
        ask(23, 2),
        ask(3, 2, at=50),
        tokens=96,
        block_size=4,
        max_num_batched_tokens=14,
        enable_chunked_prefill=True,
    )
    assert batches(steps) == [
        "0:5 1:8",  # 9 tokens are left for request 1: two blocks
        "0 1:12",  # 13 are left: three blocks
        "0 1:3 2:3",  # the rest of it, and request 2
        "0 1 2",
    ]
    # the first chunk takes the blocks of the whole prompt: 2 + 6 of 24; then one each as decodes start a block
    assert [step["free_blocks"] for step in steps] == [16, 16, 15, 15]


def test_no_evict_admits_by_the_longest_possible_length() -> None:
    # 10 blocks of 4 tokens. A request may grow to prompt + output: 4, 5 and 2 blocks.
    steps = play(
        "tensorrt-llm",
        ask(8, 6),
        ask(12, 5),
        ask(5, 3, at=50),
        tokens=40,
        block_size=4,
    )
    assert batches(steps) == [
        "0:8 1:12",  # 4 + 5 of 10
        "0 1",  # 5 blocks are free, but only 1 is not promised: request 2 must wait
        "0 1",
        "0 1",
        "0 1",  # request 1 has its fifth token
        "0 2:5",  # 10 - 4 promised
        "2",
        "2",
    ]
    assert [step["free_blocks"] for step in steps[:6]] == [5, 3, 3, 3, 3, 4]


def test_no_evict_plans_by_what_clients_allow() -> None:
    # The same 10 blocks; clients ask for 20 tokens and get 3: (4 + 20) / 4 = 6 blocks each, one at a time.
    steps = play("tensorrt-llm", ask(4, 3), ask(4, 3), tokens=40, block_size=4, max_new_tokens=20)
    assert batches(steps) == ["0:4", "0", "0", "1:4", "1", "1"]


def test_max_utilization_admits_by_the_prompt_and_pauses_the_last_started() -> None:
    # 6 blocks of 4 tokens.
    steps = play(
        "tensorrt-llm",
        ask(7, 8),
        ask(8, 5),
        ask(4, 2, at=50),
        tokens=24,
        block_size=4,
        **EVICTS,
    )
    assert batches(steps) == [
        "0:7 1:8",  # 2 + 2 blocks
        "0 1 2:4",  # request 1 starts a third; the last one is enough for the prompt of request 2
        "0 1",  # 0 and 2 start a block and none is free: 2, the last started, gives up its block, and 0 takes it
        "0 1",  # 2 wants two blocks for its prompt and its first output
        "0 1",  # 1 has its fifth token: 3 blocks come free
        "0 2:5",  # resumes, and has its second token
        "0",
        "0",
    ]
    assert column(steps, "preempted")[2] == [2]
    assert column(steps, "admitted")[5] == [[2, 0, 1]]
    assert [step["free_blocks"] for step in steps] == [2, 0, 0, 0, 0, 1, 2, 2]


def test_a_prompt_waits_for_the_block_that_another_computes() -> None:
    shared = ("sys:0", 10)
    steps = play(
        "tensorrt-llm",
        read(shared, ("u:0", 2), output=2),
        read(shared, ("u:1", 3), output=3),
        read(("u:2", 4), output=2),
        read(shared, ("u:3", 1), output=1, at=250),
        tokens=80,
        block_size=4,
    )
    assert batches(steps) == [
        "0:12 2:4",  # 1 would compute the block that 0 computes; 2 has nothing to do with it
        "0 2 1:5",  # 1 finds two blocks: the third is half its own
        "1",
        "1 3:3",  # finds two blocks as well
    ]
    assert column(steps, "admitted") == [[[0, 0, 0], [2, 0, 0]], [[1, 8, 0]], None, [[3, 8, 0]]]


def test_with_overlap_a_step_is_planned_while_one_runs() -> None:
    steps = play("tensorrt-llm", ask(4, 3), ask(4, 2, at=50), tokens=320, async_scheduling=True)
    assert batches(steps) == ["0:4", "0", "0 1:4", "1"]
    assert [step["t_us"] for step in steps] == [0, 0, 100, 200]
    assert [step["exec_start_us"] for step in steps] == [0, 100, 200, 300]
