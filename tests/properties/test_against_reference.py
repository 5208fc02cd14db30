"""The engine equals the judge on random scenarios, in every field of every step and request."""

from __future__ import annotations

import numpy as np
import pytest
from compare import MAX_STEPS, disagreement
from engine_run import request_rows, run_fleet
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from naive_records import Facts, ObservedRun
from naive_vllm import NoProgress, simulate
from oracle_format import Line, first_difference
from random_scenarios import from_seed, scenarios

from sim.cluster.fleet import Fleet

WINDOW = 13


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("start", range(0, 200, 20))
def test_engine_equals_the_judge_on_seeded_scenarios(start: int, speculative: bool) -> None:
    for seed in range(start, start + 20):
        message = disagreement(from_seed(seed, speculative=speculative))
        assert not message, f"seed {seed}: {message}"


@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(document=st.one_of(scenarios(), scenarios(speculative=True)))
def test_engine_equals_the_judge_on_drawn_scenarios(document: Line) -> None:
    try:
        message = disagreement(document)
    except NoProgress:
        assume(False)
    assert not message, message


@pytest.mark.parametrize("speculative", [False, True])
@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("seed", range(1000, 1040))
def test_shared_text_as_spans_gives_the_same_hits_as_block_ids(seed: int, jump: bool, speculative: bool) -> None:
    document = from_seed(seed, speculative=speculative)
    document["config"]["enable_prefix_caching"] = True
    _, requests = simulate(document, MAX_STEPS)
    served = [line for line in requests if "rejected" not in line]
    rows = request_rows(run_fleet(document, jump=jump, spans=True))
    assert not (message := first_difference("requests", rows, served)), message


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("seed", range(2000, 2040))
def test_step_rows_tell_what_the_judge_saw(seed: int, jump: bool) -> None:
    document = from_seed(seed)
    judge = ObservedRun(document, MAX_STEPS, WINDOW)
    judge.run()
    fleet = run_fleet(document, jump=jump, window=WINDOW)
    facts = {fact["step"]: fact for fact in judge.facts}
    rows = step_rows(fleet)
    assert sum(row["steps"] for row in rows) == len(facts)
    for row in rows:
        check_row(row, facts)
    gaps = [row["duration_us"] for row in rows for _ in range(row["gaps"] * row["steps"])]
    gaps += [round(gap * 1e6) for gap in fleet.recorder.gaps_s]
    assert sorted(gaps) == judge.gaps_us()


def step_rows(fleet: Fleet) -> list[Facts]:
    """The step table as dictionaries, times in whole microseconds."""
    table = fleet.recorder.steps
    columns = {name: np.asarray(table.column(name)) for name in table.names}
    for name in ("start", "duration", "increment"):
        columns[f"{name}_us"] = np.rint(columns.pop(f"{name}_s") * 1e6).astype(int)
    return [dict(zip(columns, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def check_row(row: Facts, facts: dict[int, Facts]) -> None:
    """A row stands for steps in a row: check all fields of its first step and what it implies for the others."""
    first = facts[row["step"]]
    assert {
        "step": row["step"],
        "start_us": row["start_us"],
        "duration_us": row["duration_us"],
        "seqs": row["decode_seqs"] + row["prefill_seqs"],
        "tokens": row["decode_seqs"] + row["prefill_tokens"],
        "pairs": row["decode_context"] + row["prefill_pairs"],
        "pairs_windowed": row["decode_context_windowed"] + row["prefill_pairs_windowed"],
        "sampled_seqs": row["sampled_seqs"],
        "running": row["running"],
        "waiting": row["waiting"],
        "used_blocks": row["used_blocks"],
        "held_tokens": row["held_tokens"],
        "preempted": row["preempted"],
    } == first
    for k in range(row["steps"]):
        fact = facts[row["step"] + k]
        assert fact["start_us"] == row["start_us"] + k * row["duration_us"]
        assert fact["duration_us"] == row["duration_us"]
        assert fact["pairs"] == row["decode_context"] + row["prefill_pairs"] + k * row["decode_seqs"]
        assert (fact["seqs"], fact["sampled_seqs"]) == (first["seqs"], row["sampled_seqs"])
    assert facts[row["step"] + row["steps"] - 1]["used_blocks"] == row["used_blocks_end"]
