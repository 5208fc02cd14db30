from __future__ import annotations

import pytest

from sim import InputError, Scenario
from sim.planner.grid import grid_of, parse_vary


def test_values_are_yaml_and_commas_inside_brackets_do_not_split() -> None:
    assert parse_vary(["engine.max_num_seqs=1,2", "slo={ttft_p99_s: 1, tpot_p99_s: 2},{}", "model='a,b',c"]) == {
        "engine.max_num_seqs": [1, 2],
        "slo": [{"ttft_p99_s": 1, "tpot_p99_s": 2}, {}],
        "model": ["a,b", "c"],
    }


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["engine.max_num_seqs"], "not of the form"),
        (["=1,2"], "not of the form"),
        (["a..b=1"], "not of the form"),
        (["a=1", "a=2"], "given twice"),
        (["a=[1"], "not valid YAML"),
    ],
)
def test_a_text_of_another_form_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_vary(texts)


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({}, "nothing to vary"),
        ({"engine.max_num_seqs": []}, "no values"),
        ({"engine.max_num_seqs": [4, 4]}, "twice"),
        ({"engine.max_num_seqs": range(1, 2000), "seed": range(1000)}, "points"),
        ({"engine.max_num_seq": [4, 5]}, "did you mean 'max_num_seqs'"),
    ],
)
def test_what_is_no_grid_is_refused(small: Scenario, vary: dict[str, list[int]], words: str) -> None:
    with pytest.raises(InputError, match=words):
        grid_of(small, vary)


def test_every_combination_is_a_point_and_the_last_key_runs_fastest(small: Scenario) -> None:
    points = grid_of(small, {"engine.max_num_seqs": [1, 2], "seed": [7, 8, 9]})
    assert [point.values for point in points] == [(1, 7), (1, 8), (1, 9), (2, 7), (2, 8), (2, 9)]
    assert points[4].scenario is not None
    assert (points[4].scenario.engine.max_num_seqs, points[4].scenario.seed) == (2, 8)
    assert len({point.key for point in points}) == 6


def test_a_combination_that_the_schema_refuses_is_a_point_with_its_reason(small: Scenario) -> None:
    good, bad = grid_of(small, {"engine.max_num_seqs": [1, 0]})
    assert good.refusal is None
    assert bad.scenario is None
    assert "engine.max_num_seqs" in str(bad.refusal)
