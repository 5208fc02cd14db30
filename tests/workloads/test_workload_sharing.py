"""Shared prompts, sessions and closed loops: who shares what with whom, and who waits for whom."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload
from workloads.describe import prefix_share, shareable_tokens

POISSON = {"process": "poisson", "rate_per_s": 4.0}


def build(seed: int = 0, **section: Any) -> Workload:
    base = {"num_requests": 12, "arrivals": POISSON, "prompt_tokens": 100, "output_tokens": 20}
    return build_workload(WorkloadSpec.parse({**base, **section}), seed)


def shared_tokens(workload: Workload, one: int, other: int) -> int:
    """Tokens that two requests begin with alike, by the definition of `PrefixSpans`, token by token."""
    assert workload.prefixes is not None

    def text(request: int) -> list[int]:
        total = int(workload.prompt_tokens[request] + workload.output_tokens[request])
        nodes: list[int] = []
        for node, end in workload.prefixes.of(request):  # type: ignore[union-attr]
            nodes += [node] * (end - len(nodes))
        return nodes + [~request] * (total - len(nodes))

    common = 0
    for mine, theirs in zip(text(one), text(other), strict=False):
        if mine != theirs:
            break
        common += 1
    return common


def test_prompts_of_a_group_share_its_beginning_and_no_more() -> None:
    workload = build(prefixes={"groups": 2, "prefix_tokens": 30, "prompts_per_group": 3})
    assert shared_tokens(workload, 0, 1) == 30  # prompts 0 and 1 of group 0
    assert shared_tokens(workload, 0, 3) == 0  # group 0 and group 1


def test_the_second_round_repeats_the_prompts_of_the_first() -> None:
    workload = build(
        prefixes={"groups": 2, "prefix_tokens": 30, "prompts_per_group": 3},
        prompt_tokens={"distribution": "uniform", "min": 40, "max": 900},
        output_tokens={"distribution": "uniform", "min": 1, "max": 90},
    )
    np.testing.assert_array_equal(workload.prompt_tokens[:6], workload.prompt_tokens[6:])
    np.testing.assert_array_equal(workload.output_tokens[:6], workload.output_tokens[6:])
    assert len(set(workload.prompt_tokens.tolist())) > 3
    for prompt in range(6):
        assert shared_tokens(workload, prompt, prompt + 6) == workload.prompt_tokens[prompt]


def test_outputs_are_private_even_of_equal_prompts() -> None:
    workload = build(prefixes={"groups": 1, "prefix_tokens": 30, "prompts_per_group": 1})
    assert shared_tokens(workload, 0, 1) == 100


def test_a_shuffled_order_is_one_fixed_order() -> None:
    prefixes = {"groups": 5, "prefix_tokens": 30, "prompts_per_group": 8, "order": "shuffled"}
    workload = build(num_requests=80, prefixes=prefixes)
    assert workload.prefixes is not None
    prompts = [workload.prefixes.of(request)[-1][0] for request in range(80)]
    assert sorted(prompts[:40]) == list(range(5, 45))
    assert prompts[:40] == prompts[40:]
    assert prompts[:40] != sorted(prompts[:40])


def test_without_fixed_prompts_only_the_beginning_is_shared_and_groups_take_turns() -> None:
    workload = build(prefixes={"groups": 3, "prefix_tokens": 30})
    assert [shared_tokens(workload, 0, other) for other in (1, 2, 3, 6)] == [0, 0, 30, 30]


def test_a_prompt_shorter_than_the_beginning_is_a_part_of_it() -> None:
    lengths = {"distribution": "uniform", "min": 10, "max": 50}
    workload = build(prefixes={"groups": 1, "prefix_tokens": 30}, prompt_tokens=lengths, num_requests=200)
    short = int(np.argmin(workload.prompt_tokens))
    other = int(np.argmax(workload.prompt_tokens))
    assert shared_tokens(workload, short, other) == workload.prompt_tokens[short] < 30
    below = int((workload.prompt_tokens <= 30).sum())
    assert workload.notes[-1].startswith(f"{below} of 200 prompts are no longer than the shared beginning")


def test_a_beginning_that_leaves_no_prompt_anything_is_refused() -> None:
    with pytest.raises(InputError, match=r"workload\.prefixes\.prefix_tokens: 100 tokens"):
        build(prefixes={"groups": 1, "prefix_tokens": 100})


def test_a_turn_repeats_all_that_was_said_and_waits_for_the_turn_before() -> None:
    workload = build(sessions={"turns": 3, "think_s": 1.5})
    assert workload.prompt_tokens[:4].tolist() == [100, 220, 340, 100]
    assert workload.after is not None
    assert workload.think_s is not None
    assert workload.session_id is not None
    assert workload.after[:4].tolist() == [-1, 0, 1, -1]
    assert workload.think_s[:4].tolist() == [0, 1.5, 1.5, 0]
    assert workload.session_id[:4].tolist() == [0, 0, 0, 1]
    assert np.isnan(workload.arrival_s).tolist()[:4] == [False, True, True, False]
    assert [shared_tokens(workload, 0, 1), shared_tokens(workload, 1, 2), shared_tokens(workload, 0, 2)] == [
        120,
        240,
        120,
    ]
    assert shared_tokens(workload, 0, 3) == 0


def test_sessions_begin_with_the_shared_prompts() -> None:
    prefixes = {"groups": 2, "prefix_tokens": 30, "prompts_per_group": 2}
    workload = build(sessions={"turns": 2}, prefixes=prefixes)
    assert shared_tokens(workload, 0, 2) == 30  # two openings of group 0
    assert shared_tokens(workload, 0, 8) == 100  # the fifth session repeats the first one's opening ...
    assert shared_tokens(workload, 1, 9) == 100  # ... and no more: what was answered differs
    assert shared_tokens(workload, 8, 9) == 120


def test_later_turns_may_have_lengths_of_their_own() -> None:
    workload = build(sessions={"turns": 3, "followup_tokens": 7})
    assert workload.prompt_tokens[:4].tolist() == [100, 127, 154, 100]


def test_the_number_of_requests_cuts_the_last_session() -> None:
    workload = build(num_requests=8, sessions={"turns": 3})
    assert workload.session_id is not None
    assert workload.session_id.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_turns_may_vary() -> None:
    turns = {"distribution": "uniform", "min": 1, "max": 5}
    workload = build(num_requests=30_000, sessions={"turns": turns})
    assert workload.session_id is not None
    counts = np.bincount(np.bincount(workload.session_id)[:-1])[1:]
    assert len(counts) == 5
    assert (abs(counts - counts.mean()) < 4.5 * np.sqrt(counts.mean())).all()


def test_one_turn_sessions_without_prefixes_share_nothing() -> None:
    assert build(sessions={"turns": 1}).prefixes is None


def test_a_closed_loop_is_one_chain_a_user() -> None:
    workload = build(arrivals={"process": "closed_loop", "concurrency": 5, "think_s": 2.0})
    assert workload.after is not None
    assert workload.think_s is not None
    assert workload.after.tolist() == [-1] * 5 + [0, 1, 2, 3, 4, 5, 6]
    assert workload.arrival_s[:5].tolist() == [0.0] * 5
    assert np.isnan(workload.arrival_s[5:]).all()
    assert workload.think_s[5:].tolist() == [2.0] * 7


def test_a_closed_loop_of_more_users_than_requests_starts_all_at_once() -> None:
    workload = build(arrivals={"process": "closed_loop", "concurrency": 50})
    assert workload.arrival_s.tolist() == [0.0] * 12


def test_users_of_a_closed_loop_hold_one_session_after_another() -> None:
    loop = {"process": "closed_loop", "concurrency": 2, "think_s": 9.0}
    workload = build(arrivals=loop, sessions={"turns": 3, "think_s": 1.0}, num_requests=10)
    assert workload.after is not None
    assert workload.think_s is not None
    assert workload.after.tolist() == [-1, 0, 1, -1, 3, 4, 2, 6, 7, 5]
    assert workload.think_s.tolist() == [0, 1, 1, 0, 1, 1, 9, 1, 1, 9]


@settings(max_examples=40, deadline=None)
@given(
    turns=st.integers(1, 4),
    groups=st.integers(1, 3),
    per_group=st.one_of(st.none(), st.integers(1, 3)),
    loop=st.booleans(),
    seed=st.integers(0, 5),
)
def test_columns_keep_their_promises(turns: int, groups: int, per_group: int | None, loop: bool, seed: int) -> None:
    arrivals = {"process": "closed_loop", "concurrency": 3} if loop else POISSON
    section = {
        "num_requests": 17,
        "arrivals": arrivals,
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 60},
        "prefixes": {"groups": groups, "prefix_tokens": 25, "prompts_per_group": per_group},
        "sessions": {"turns": {"distribution": "uniform", "min": 1, "max": turns}},
    }
    workload = build(seed, **section)
    ids = np.arange(len(workload))
    assert workload.after is not None
    assert workload.prefixes is not None
    assert len(workload) == 17
    assert (workload.after < ids).all()
    assert (np.isnan(workload.arrival_s) == (workload.after >= 0)).all()
    assert (np.diff(workload.arrival_s[workload.after < 0]) >= 0).all()
    assert len(workload.prefixes.offsets) == 18
    for request in ids:
        rows = workload.prefixes.of(int(request))
        ends = [end for _, end in rows]
        assert ends == sorted(set(ends))
        assert all(~node < request for node, _ in rows if node < 0)
        assert not ends or ends[-1] <= workload.prompt_tokens[request]


def test_what_a_boundless_cache_hits_is_the_longest_match_with_any_earlier_request() -> None:
    workload = build(
        num_requests=40,
        prompt_tokens={"distribution": "uniform", "min": 20, "max": 60},
        output_tokens={"distribution": "uniform", "min": 1, "max": 9},
        prefixes={"groups": 3, "prefix_tokens": 25, "prompts_per_group": 3},
        sessions={"turns": {"distribution": "uniform", "min": 1, "max": 4}},
    )
    hits = shareable_tokens(workload)
    for request in range(40):
        longest = max((shared_tokens(workload, request, earlier) for earlier in range(request)), default=0)
        assert hits[request] == min(longest, workload.prompt_tokens[request])
    assert prefix_share(workload) == pytest.approx(hits.sum() / workload.prompt_tokens.sum())
