"""How accurate predictions are: the bounds are what has been reached, with a little room, and may only be tightened."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from calibration.cases import Case, load_cases
from calibration.cases_build import documents, read_runs
from calibration.cases_replay import replays
from calibration.validate import Report, validate_cases
from sim.scenario.document import load_document

CASES = Path(__file__).parent / "cases"
SHARED = Path(__file__).resolve().parents[3] / "shared"

# A quick choice over models, sizes, GPUs and loads; docs/accuracy.md has all of them.
QUICK = ("s2r-57", "s2r-58", "s2r-59", "s2r-63", "s2r-14", "s2r-40", "rsd-sweep_tenants-1T_agg_2rps-vanilla")
QUICK_BOUNDS = {"ttft_s.mean": 4.0, "tpot_s.mean": 4.5, "e2e_s.mean": 4.5, "e2e_s.p99": 4.5, "ttft_s.p99": 9.0}
QUICK_WORST = {"ttft_s.mean": 10.0, "tpot_s.mean": 10.0, "e2e_s.mean": 10.0}
BLOCKS_BOUND, BLOCKS_WORST = 0.5, 2.0
REPLAYED = ("rsd-sweep_tenants-2T_agg_4rps-vanilla", "s2r-2", "s2r-6")
REPLAY_BOUNDS = {"ttft_s.mean": 5.0, "tpot_s.mean": 4.5, "e2e_s.mean": 4.5, "e2e_s.p99": 5.5}


def cases(*names: str) -> list[Case]:
    return load_cases([CASES / f"{name}.yaml" for name in names])


def assert_within(report: Report, bounds: dict[str, float]) -> None:
    assert report.exceeding(bounds) == []


@pytest.fixture(scope="module")
def quick() -> Report:
    return validate_cases(cases(*QUICK), jobs=2)


def test_latencies_of_real_runs_are_predicted(quick: Report) -> None:
    assert_within(quick, QUICK_BOUNDS)


def test_no_mean_of_a_real_run_is_far_off(quick: Report) -> None:
    summary = quick.summary()
    assert {key: summary[key].worst for key, bound in QUICK_WORST.items() if abs(summary[key].worst) > bound} == {}


def test_kv_blocks_of_real_engines_are_predicted() -> None:
    found = validate_cases(cases("kv-blocks"), jobs=1).summary()["kv.num_gpu_blocks"]
    assert found.n >= 10
    assert found.mdape <= BLOCKS_BOUND
    assert abs(found.worst) <= BLOCKS_WORST


def test_no_case_is_both_fitted_on_and_reported() -> None:
    every = load_cases([CASES])
    groups = {name: {case.name for case in every if case.tags["group"] == name} for name in ("fit", "report")}
    assert groups["fit"]
    assert not groups["fit"] & groups["report"]
    assert len(groups["fit"]) + len(groups["report"]) == len(every)
    assert len(groups["report"]) >= 20


def test_every_window_says_where_it_stands_on_the_load_curve() -> None:
    for case in load_cases([CASES]):
        for window in case.windows:
            tags = {**case.tags, **window.tags}
            assert tags["knee"] in ("below", "at", "past", "closed loop", "none"), case.name
            assert {"gpu", "family", "kind", "precision", "engine", "load"} <= set(tags), case.name
        assert case.source, case.name


def test_the_cases_are_what_the_builder_writes() -> None:
    table = SHARED / "measured" / "runs.csv.gz"
    if not table.exists():
        pytest.skip("the table of measured runs is not beside the project")
    written = dict(documents(read_runs(table)))
    assert {name: load_document(CASES / f"{name}.yaml") for name in written} == written


def test_a_run_replayed_request_by_request_is_predicted() -> None:
    if not (SHARED / "measured" / "per_request").is_dir():
        pytest.skip("the per-request records are not beside the project")
    with tempfile.TemporaryDirectory() as folder:
        found = replays(cases(*REPLAYED), SHARED, Path(folder))
        assert len(found) == len(REPLAYED)
        assert_within(validate_cases(found, jobs=2), REPLAY_BOUNDS)
