"""The figures of a workload."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sim.workload import PrefixSpans, Workload
from workloads import WorkloadSpec, build_workload, describe_workload


def plain(arrival_s: list[float], prompt_tokens: list[int], prefixes: PrefixSpans | None = None) -> Workload:
    n = len(arrival_s)
    return Workload(np.array(arrival_s), np.array(prompt_tokens), np.full(n, 5), prefixes=prefixes)


def test_rate_and_variation_are_those_of_the_gaps() -> None:
    figures = describe_workload(plain([0.0, 1.0, 2.0, 5.0], [1, 1, 1, 1]))
    assert (figures["requests"], figures["arrivals"], figures["span_s"]) == (4, 4, 5.0)
    assert figures["rate_per_s"] == pytest.approx(3 / 5)
    assert figures["gap_cv"] == pytest.approx(np.std([1, 1, 3]) / np.mean([1, 1, 3]))


def test_lengths_have_quantiles() -> None:
    figures = describe_workload(plain([0.0] * 101, list(range(100, 201))))["prompt_tokens"]
    assert (figures["min"], figures["p50"], figures["p90"], figures["max"]) == (100, 150, 190, 200)
    assert (figures["total"], figures["mean"]) == (15150, 150.0)


def test_what_makes_no_sense_is_none() -> None:
    figures = describe_workload(plain([0.0], [7]))
    assert (figures["rate_per_s"], figures["gap_cv"], figures["sessions"], figures["prefix_share"]) == (
        None,
        None,
        None,
        0,
    )


def test_a_boundless_cache_hits_up_to_the_longest_earlier_match() -> None:
    # request 1 repeats 30 of request 0's 40 shared tokens; request 2 all 40; request 3 has them after other text
    spans = PrefixSpans(np.array([0, 1, 2, 3, 5]), np.array([0, 0, 0, 1, 0]), np.array([40, 30, 40, 10, 40]))
    figures = describe_workload(plain([0.0, 1.0, 2.0, 3.0], [100, 100, 100, 100], spans))
    assert figures["prefix_share"] == pytest.approx((30 + 40) / 400)


def test_a_row_beyond_the_prompt_counts_up_to_the_prompt() -> None:
    spans = PrefixSpans(np.array([0, 1, 2]), np.array([0, 0]), np.array([40, 40]))
    assert describe_workload(plain([0.0, 1.0], [100, 20], spans))["prefix_share"] == pytest.approx(20 / 120)


def test_cycled_prompts_are_full_hits_after_the_first_round() -> None:
    section = {
        "num_requests": 1000,
        "arrivals": {"process": "poisson", "rate_per_s": 8.0},
        "prompt_tokens": 600,
        "output_tokens": 250,
        "prefixes": {"groups": 10, "prefix_tokens": 100, "prompts_per_group": 10},
    }
    figures = describe_workload(build_workload(WorkloadSpec.parse(section), 0))
    # 900 full hits, and in the first round 9 of 10 prompts of a group hit its beginning
    assert figures["prefix_share"] == pytest.approx((900 * 600 + 90 * 100) / (1000 * 600))


def test_the_figures_are_plain_json() -> None:
    section = {"num_requests": 9, "arrivals": {"process": "closed_loop", "concurrency": 3}}
    spec = WorkloadSpec.parse({**section, "prompt_tokens": 9, "output_tokens": 9, "sessions": {"turns": 2}})
    figures = describe_workload(build_workload(spec, 0))
    assert json.loads(json.dumps(figures)) == figures
    assert figures["sessions"] == 5
