"""One test a rule, worked out by hand: draft tokens. Of d drafts, min((3 id + 5 v) mod (k + 1), d) are accepted."""

from __future__ import annotations

from story import ask, batches, column, play, read

NGRAM = {"spec_method": "ngram", "num_speculative_tokens": 2}
EAGLE = {"spec_method": "eagle", "num_speculative_tokens": 2}


def test_a_request_that_sampled_verifies_its_drafts_and_outputs_are_cut_at_the_length() -> None:
    steps, requests = play(ask(4, 6), **NGRAM)
    assert batches(steps) == ["0:4", "0:3", "0:3", "0:3"]
    # 1 token, then 0, 2 and 1 drafts accepted: 1 + 1 + 3 + 2 = 7, cut to 6
    assert column(steps, "spec") == [None, [[0, 2, 0]], [[0, 2, 2]], [[0, 2, 1]]]
    assert requests[0]["output_tokens"] == 6


def test_an_unfinished_prefill_gets_no_drafts() -> None:
    steps, _ = play(ask(10, 2), max_num_batched_tokens=4, **NGRAM)
    assert batches(steps) == ["0:4", "0:4", "0:2", "0:3"]


def test_drafts_are_cut_by_the_budget() -> None:
    steps, _ = play(ask(4, 3), ask(4, 3), max_num_batched_tokens=6, spec_method="ngram", num_speculative_tokens=3)
    assert batches(steps)[:3] == ["0:4 1:2", "0:4 1:2", "0:4 1:2"]
    assert column(steps, "spec")[:3] == [None, [[0, 3, 0]], [[0, 3, 1], [1, 1, 1]]]


def test_blocks_taken_for_rejected_drafts_stay() -> None:
    steps, _ = play(ask(3, 4), num_gpu_blocks=10, **NGRAM)
    # step 1 computes tokens 3..5 and rejects both drafts: 4 tokens would fit one block
    assert column(steps, "free_blocks")[:3] == [8, 7, 7]
    assert "free_blocks_end" not in steps[1]


def test_ngram_needs_no_lookahead_and_eagle_k_slots_in_every_allocation() -> None:
    ngram, _ = play(ask(4, 6), num_gpu_blocks=10, **NGRAM)
    eagle, _ = play(ask(4, 6), num_gpu_blocks=10, **EAGLE)
    assert column(ngram, "free_blocks") == [8, 7, 7, 6]  # 4, 7, 8 and 11 slots
    assert column(eagle, "free_blocks") == [7, 6, 6, 5]  # two more each


def test_eagle_drops_the_last_block_of_a_hit() -> None:
    steps, _ = play(read(("a", 13)), read(("a", 13), at=500), **EAGLE)
    assert steps[1]["admitted"] == [[1, 8, 0]]
    assert batches(steps)[1] == "1:5"


def test_ngram_keeps_the_last_block_of_a_hit() -> None:
    steps, _ = play(read(("a", 14)), read(("a", 14), at=500), **NGRAM)
    assert steps[1]["admitted"] == [[1, 12, 0]]
    assert batches(steps)[1] == "1:2"


def test_only_known_tokens_are_cached() -> None:
    steps, _ = play(read(("a", 4), output=8), **NGRAM)
    # 4, 5, 6, 9 and 11 known tokens, whatever was computed beyond
    assert column(steps, "cached_blocks") == [1, 1, 1, 2, 2]


def test_a_prompt_that_wants_one_token_beside_decodes_is_padded_with_drafts() -> None:
    steps, _ = play(ask(4, 9), ask(1, 4, at=50), **NGRAM)
    assert batches(steps)[:2] == ["0:4", "0:3 1:3"]
    assert steps[1]["spec"] == [[0, 2, 0], [1, 2, 0]]
    alone, _ = play(ask(1, 2), **NGRAM)
    assert batches(alone) == ["0", "0:3"]


def test_a_preempted_request_loses_its_drafts() -> None:
    steps, requests = play(ask(4, 9), ask(4, 9), num_gpu_blocks=6, **NGRAM)
    resumed = next(step for step in steps if [1, 0, 1] in step.get("admitted", []))
    assert requests[1]["preemptions"] == 1
    assert all(row[0] != 1 for row in resumed.get("spec", []))
