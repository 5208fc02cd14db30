"""The same seed gives the same bytes, and each aspect has a stream of its own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload

BASE: dict[str, Any] = {
    "num_requests": 2000,
    "arrivals": {"process": "gamma", "rate_per_s": 4.0, "cv": 2.0},
    "prompt_tokens": {"distribution": "lognormal", "mean": 1000, "cv": 1.2, "max": 8192},
    "output_tokens": {"distribution": "normal", "mean": 200, "cv": 0.5},
}


def build(seed: int = 0, **changes: Any) -> Workload:
    return build_workload(WorkloadSpec.parse({**BASE, **changes}), seed)


def columns(workload: Workload) -> list[bytes]:
    spans = workload.prefixes
    parts = [workload.arrival_s, workload.prompt_tokens, workload.output_tokens, workload.after, workload.think_s]
    parts += [] if spans is None else [spans.offsets, spans.node, spans.end]
    return [b"" if part is None else part.tobytes() for part in parts]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"prefixes": {"groups": 10, "prefix_tokens": 100, "prompts_per_group": 10, "order": "shuffled"}},
        {"sessions": {"turns": {"distribution": "uniform", "min": 1, "max": 9}, "think_s": 2.0, "think_cv": 1.0}},
        {"arrivals": {"process": "closed_loop", "concurrency": 9, "think_s": 2.0, "think_cv": 1.0}},
    ],
)
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(changes: dict[str, Any]) -> None:
    assert columns(build(7, **changes)) == columns(build(7, **changes))
    assert columns(build(7, **changes)) != columns(build(8, **changes))


def test_columns_have_the_types_the_engine_reads() -> None:
    workload = build(sessions={"turns": 3}, prefixes={"groups": 2, "prefix_tokens": 9, "prompts_per_group": 2})
    assert workload.prefixes is not None
    floats = (workload.arrival_s, workload.think_s)
    spans = (workload.prefixes.offsets, workload.prefixes.node, workload.prefixes.end)
    integers = (workload.prompt_tokens, workload.output_tokens, workload.after, workload.session_id, *spans)
    assert all(column is not None and column.dtype == np.float64 for column in floats)
    assert all(column is not None and column.dtype == np.int64 for column in integers)


def test_changing_the_arrivals_leaves_the_lengths_alone() -> None:
    one, other = build(), build(arrivals={"process": "weibull", "rate_per_s": 9.0, "cv": 3.0})
    np.testing.assert_array_equal(one.prompt_tokens, other.prompt_tokens)
    np.testing.assert_array_equal(one.output_tokens, other.output_tokens)


def test_changing_the_prompts_leaves_arrivals_and_outputs_alone() -> None:
    one, other = build(), build(prompt_tokens={"distribution": "uniform", "min": 1, "max": 9})
    np.testing.assert_array_equal(one.arrival_s, other.arrival_s)
    np.testing.assert_array_equal(one.output_tokens, other.output_tokens)


def test_sessions_leave_the_openings_arrivals_alone() -> None:
    one, other = build(), build(sessions={"turns": 2, "think_s": 3.0, "think_cv": 1.0})
    opened = other.arrival_s[~np.isnan(other.arrival_s)]
    np.testing.assert_array_equal(one.arrival_s[: len(opened)], opened)


def test_streams_are_not_correlated() -> None:
    workload = build(num_requests=20_000)
    gaps = np.diff(workload.arrival_s, prepend=0.0)
    for one, other in (
        (gaps, workload.prompt_tokens),
        (gaps, workload.output_tokens),
        (workload.prompt_tokens, workload.output_tokens),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(20_000)


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True, None])
def test_a_seed_must_be_a_whole_number(seed: Any) -> None:
    with pytest.raises(InputError, match=r"^seed: must be a whole number"):
        build(seed)


def test_a_million_requests_take_seconds_at_most() -> None:
    start = time.perf_counter()
    workload = build(num_requests=1_000_000, sessions={"turns": 4}, prefixes={"groups": 9, "prefix_tokens": 9})
    assert len(workload) == 1_000_000
    assert time.perf_counter() - start < 10  # 0.6 s on an idle core
