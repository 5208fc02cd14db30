"""Parallel sampling: ``n`` answers to every prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload


def built(**keys: Any) -> Workload:
    document = {
        "num_requests": 50,
        "arrivals": {"process": "poisson", "rate_per_s": 5.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 90},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": 60},
        **keys,
    }
    return build_workload(WorkloadSpec.parse(document, "workload"), 3)


def test_every_prompt_is_sent_n_times_at_once() -> None:
    one, four = built(), built(n=4)
    assert len(four) == 4 * len(one)
    for column in ("arrival_s", "prompt_tokens"):
        assert (getattr(four, column).reshape(-1, 4) == getattr(one, column)[:, None]).all()
    assert (four.output_tokens[::4] == one.output_tokens).all()
    assert (four.output_tokens[1::4] != one.output_tokens).any()
    assert any("sampled 4 times" in note for note in four.notes)


def test_answers_may_be_equally_long() -> None:
    one, four = built(), built(n=4, sample_lengths="equal")
    assert (four.output_tokens.reshape(-1, 4) == one.output_tokens[:, None]).all()


def test_one_sample_is_the_workload_without_it() -> None:
    one, plain = built(n=1), built()
    assert (one.output_tokens == plain.output_tokens).all()
    assert one.prefixes is plain.prefixes is None
    assert one.notes == plain.notes


def test_samples_share_the_whole_prompt_and_nothing_with_other_prompts() -> None:
    work = built(n=3)
    assert work.prefixes is not None
    for i in range(len(work)):
        assert work.prefixes.of(i) == [(i // 3, int(work.prompt_tokens[i]))]


def test_samples_keep_what_their_prompt_shares_with_others() -> None:
    work = built(n=2, prefixes={"groups": 3, "prefix_tokens": 30})
    assert work.prefixes is not None
    own = set()
    for i in range(0, len(work), 2):
        rows = work.prefixes.of(i)
        assert rows == work.prefixes.of(i + 1)
        assert rows[0] == ((i // 2) % 3, min(30, int(work.prompt_tokens[i])))
        assert rows[-1][1] == work.prompt_tokens[i]
        assert np.all(np.diff([end for _, end in rows]) > 0)
        if len(rows) > 1:
            own.add(rows[1][0])
    assert len(own) == sum(work.prompt_tokens[::2] > 30)
    assert min(own) >= 3


def test_fixed_prompts_are_one_text_already() -> None:
    work = built(n=2, prefixes={"groups": 2, "prefix_tokens": 10, "prompts_per_group": 4})
    alone = built(prefixes={"groups": 2, "prefix_tokens": 10, "prompts_per_group": 4})
    assert work.prefixes is not None
    assert alone.prefixes is not None
    assert [work.prefixes.of(2 * i) for i in range(50)] == [alone.prefixes.of(i) for i in range(50)]


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"n": 0}, "greater than or equal to 1"),
        ({"n": 2.0}, "whole number|integer"),
        ({"n": 2, "sessions": {"turns": {"distribution": "constant", "value": 2}}}, "which of them a conversation"),
        ({"n": 2, "arrivals": {"process": "closed_loop", "concurrency": 4}}, "is not simulated"),
        ({"n": 1000, "num_requests": 1_000_000}, "1000 samples of 1,000,000 prompts"),
    ],
)
def test_what_samples_cannot_go_with_is_refused(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason) as problem:
        built(**keys)
    assert problem.value.field.startswith("workload.n")


def test_lengths_of_samples_need_samples() -> None:
    with pytest.raises(InputError, match="sample_lengths: given without n of 2 or more"):
        built(sample_lengths="equal")


def test_a_trace_brings_its_own_answers() -> None:
    with pytest.raises(InputError, match="given together with trace"):
        WorkloadSpec.parse({"trace": "requests.csv", "n": 2}, "workload")
