"""SGLang by hand: each trace follows from its documented rules (docs/engines.md); steps take 100 us."""

from __future__ import annotations

from policy_story import play
from story import ask, batches, column, read


def test_prefills_go_first_and_a_long_prompt_is_cut() -> None:
    steps = play(
        "sglang",
        ask(5, 4),
        ask(12, 2),
        ask(3, 2, at=250),
        tokens=100,
        max_num_batched_tokens=8,
        max_prefill_tokens=32,
    )
    assert batches(steps) == [
        "0:5 1:3",  # 8 tokens a prefill batch: all of request 0 and the beginning of request 1
        "1:8",  # the cut prompt goes on before anything else; request 0 does not decode
        "1",  # its last token
        "2:3",  # at 300 us request 2 is there: prefill again, 0 and 1 wait
        "0 1 2",  # nobody waits: one decode step of all
        "0",
        "0",
    ]
    assert column(steps, "first") == [[0], None, [1], [2], None, None, None]
    assert column(steps, "finished") == [None, None, None, None, [1, 2], None, [0]]


def test_mixed_chunks_let_decodes_go_along() -> None:
    steps = play(
        "sglang",
        ask(5, 6),
        ask(12, 3, at=50),
        tokens=100,
        max_num_batched_tokens=8,
        enable_mixed_chunk=True,
    )
    assert batches(steps) == [
        "0:5",
        "0 1:7",  # the decode is one of the 8 tokens
        "0 1:5",  # the rest of the prompt
        "0 1",
        "0 1",
        "0",
    ]


def test_admission_reckons_and_retraction_makes_good() -> None:
    # A pool of 20 tokens. A request needs prompt + output + 1 of what is free, less what the running are reckoned to
    # need: a tenth of the output still allowed (the decay over 10,000 steps does not show).
    steps = play(
        "sglang",
        ask(6, 10),
        ask(4, 8),
        ask(2, 2),
        tokens=20,
        max_num_batched_tokens=16,
        init_new_token_ratio=0.1,
        min_new_token_ratio_factor=1.0,
    )
    assert batches(steps) == [
        "0:6",  # 17 < 20. Then request 1 needs 13, and 20 - 6 - 10 = 4 are left: full, but the batch is a new one
        "1:4",  # 13 < 14 free - 0.1 x 9. Then request 2 needs 5, 14 - 0.9 - 12 are left: full
        "0 1",
        "0 1",
        "0 1",
        "0 1",
        "0 1",  # 5 decode steps: both have 6 outputs, 11 + 9 tokens are cached
        "1",  # none is free: of equals with the fewest outputs the longer prompt goes, 11 come free
        "2:2",  # in the queue before 0. The ratio is now (6 + 20) / 8, cut to 1: 5 < 10 free - 1; 0 does not fit
        "1 2",  # both end
        "0:12",  # prompt and six outputs again
        "0",
        "0",
        "0",
    ]
    assert column(steps, "preempted")[7] == [0]
    assert [step["free_blocks"] for step in steps[:9]] == [14, 10, 8, 6, 4, 2, 0, 10, 8]
    assert column(steps, "admitted")[10] == [[0, 0, 1]]


def test_a_full_batch_stays_full_until_one_ends() -> None:
    steps = play("sglang", ask(4, 2), ask(4, 5), ask(4, 3, at=150), ask(4, 2, at=150), tokens=100, max_num_seqs=2)
    assert batches(steps) == [
        "0:4 1:4",  # two seats
        "0 1",  # 0 ends
        "1",  # its seat is counted until a decode step has gone by without it
        "2:4",  # one seat
        "1 2",
        "1 2",  # both end
        "3:4",
        "3",
    ]


def test_a_prompt_is_found_once_its_step_is_over() -> None:
    shared = ("sys:0", 6)
    steps = play(
        "sglang",
        read(shared, ("u:0", 2), output=2),
        read(shared, ("u:1", 3), output=2),
        read(shared, ("u:2", 1), output=1, at=50),
        read(shared, ("u:0", 2), ("out:0", 2), ("u:3", 2), output=1, at=1000),
        tokens=40,
    )
    assert batches(steps) == [
        "0:8 1:9",  # both in one batch: neither finds the other's text
        "2",  # finds the six tokens that 0 and 1 share
        "0 1",
        "3:3",  # the next turn of 0 finds its prompt and first output: the last output was never computed
    ]
    assert column(steps, "admitted") == [[[0, 0, 0], [1, 0, 0]], [[2, 6, 0]], None, [[3, 9, 0]]]
    # 17 pages, then the text that was computed twice is given back: 6 shared + 2 + 3, and 1 for request 2
    assert [step["free_blocks"] for step in steps] == [23, 28, 27, 28]
    assert [step["cached_blocks"] for step in steps] == [0, 11, 12, 14]


def test_with_overlap_text_is_found_a_step_later_and_one_token_is_wasted() -> None:
    shared = ("sys:0", 6)
    steps = play(
        "sglang",
        read(shared, output=3),
        read(shared, ("u:1", 1), output=2, at=50),
        read(shared, ("u:2", 1), output=1, at=150),
        tokens=40,
        async_scheduling=True,
    )
    assert batches(steps) == [
        "0:6",
        "0",  # planned at once, before request 1 is there
        "1",  # planned at 100 us, when the prefill's output is in: found
        "2",  # planned at 200 us
        "0 1",  # 0 and 1 get their last token
        "",  # that is not known yet: a step for them, thrown away
    ]
    assert column(steps, "admitted")[2:4] == [[[1, 6, 0]], [[2, 6, 0]]]


def test_the_longest_prefix_goes_first_under_lpm() -> None:
    texts = {"a": ("sys:0", 8), "b": ("sys:1", 40)}
    load = (
        read(texts["a"], output=1),
        read(("u:1", 6), output=1, at=150),
        read(texts["a"], ("u:2", 2), output=1, at=150),
        read(texts["b"], ("u:3", 2), output=1, at=150),
        read(texts["b"], ("u:4", 2), output=1, at=150),
    )
    common = {"tokens": 200, "max_num_batched_tokens": 60, "max_prefill_tokens": 44}
    assert batches(play("sglang", *load, **common, schedule_policy="fcfs")) == ["0:8", "1:6 2:2", "3:42", "4:2"]
    # 2 finds 8 tokens, the others nothing; 4 begins as 3 does and waits for it, though there is room for both
    assert batches(play("sglang", *load, **common, schedule_policy="lpm")) == ["0:8", "2:2 1:6", "3:42", "4:2"]


def test_the_least_recently_used_leaf_is_evicted_whole() -> None:
    a, b = ("sys:0", 8), ("sys:1", 8)
    steps = play(
        "sglang",
        read(a, output=1),
        read(b, output=1, at=150),
        read(a, ("u:2", 1), output=1, at=350),
        read(("u:3", 9), output=1, at=550),
        read(a, ("u:4", 1), output=1, at=750),
        read(b, ("u:5", 1), output=1, at=950),
        tokens=24,
    )
    # Request 2 finds A and hangs a leaf of 1 below it: 17 of 24 pages are cached. Request 3 wants 9, 7 are empty, so 9
    # are evicted: B, unused for longest, and of what is left the leaf below A, not A itself. Request 4 finds A.
    # Request 5 finds no B; 18 are cached then, and the 9 of request 3 go, which were used before A and its new leaf.
    assert column(steps, "admitted") == [[[0, 0, 0]], [[1, 0, 0]], [[2, 8, 0]], [[3, 0, 0]], [[4, 8, 0]], [[5, 0, 0]]]
    assert [step["cached_blocks"] for step in steps] == [0, 8, 16, 17 - 9, 8 + 9, 18 - 9]
