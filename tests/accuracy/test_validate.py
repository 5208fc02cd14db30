"""Scores: what an error is, which requests it covers, and that the report does not depend on how it was made."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from calibration.cases import Case, Window
from calibration.validate import Report, Score, parse_limits, validate_cases
from calibration.validate_plot import plot_report
from sim import Scenario
from sim.errors import InputError

STEP_S = 0.01  # every step, whatever is in it


def scenario(name: str = "toy", **engine: object) -> Scenario:
    """One request a second, so that each is alone: a prompt step, then four more tokens."""
    return Scenario.from_dict(
        {
            "name": name,
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "engine": {
                "num_gpu_blocks_override": 100,
                "max_model_len": 1024,
                "async_scheduling": False,
                "step_time": {"base_us": 10_000},
                **engine,
            },
            "workload": {
                "num_requests": 6,
                "arrivals": {"process": "constant", "rate_per_s": 1.0},
                "prompt_tokens": {"distribution": "constant", "value": 10},
                "output_tokens": {"distribution": "constant", "value": 5},
            },
        }
    )


def case(*windows: Window, name: str = "toy") -> Case:
    return Case(name, "", scenario(name), windows, tags={"gpu": "toy"})


def score(error_pct: float, name: str = "a", metric: str = "ttft_s") -> Score:
    return Score(name, metric, "mean", 1.0, 1.0 + error_pct / 100, {})


def test_an_error_is_signed_and_relative_to_what_was_measured() -> None:
    window = Window("", (("ttft_s", "mean", STEP_S / 2), ("e2e_s", "max", STEP_S * 10), ("kv", "block_size", 16.0)))
    errors = [found.error_pct for found in validate_cases([case(window)], jobs=1).scores]
    assert errors == pytest.approx([100.0, -50.0, 0.0])


def test_a_window_counts_the_requests_that_arrive_in_it() -> None:
    measured = (("e2e_s", "mean", 1.0),)
    stages = "stages: [{rate_per_s: 1.0, duration_s: 3.0}, {rate_per_s: 50.0, duration_s: 3.0}]"
    busy = scenario().with_overrides(
        [
            f"workload.arrivals={{process: stages, gaps: constant, {stages}}}",
            "workload.num_requests=60",
            "engine.max_num_seqs=1",
        ]
    )
    windows = (Window("calm", measured, 0.0, 3.0), Window("busy", measured, 3.0, 6.0), Window("all", measured))
    calm, crowded, every = validate_cases([Case("c", "", busy, windows)], jobs=1).scores
    assert [found.name for found in (calm, crowded, every)] == ["c/calm", "c/busy", "c/all"]
    assert calm.predicted == pytest.approx(5 * STEP_S)
    assert crowded.predicted is not None
    assert every.predicted is not None
    assert crowded.predicted > every.predicted > 5 * STEP_S


def test_a_window_over_everything_equals_the_summary() -> None:
    measured = tuple(("ttft_s", name, 1.0) for name in ("mean", "std", "min", "p50", "p90", "p95", "p99", "max"))
    whole, part = (validate_cases([case(Window("w", measured, 0.0, end))], jobs=1).scores for end in (math.inf, 1000.0))
    assert [found.predicted for found in part] == pytest.approx([found.predicted for found in whole])


def test_what_cannot_be_predicted_is_told_and_not_averaged() -> None:
    single = scenario().with_overrides(["workload.output_tokens={distribution: constant, value: 1}"])
    window = Window("", (("tpot_s", "mean", 0.01), ("ttft_s", "mean", STEP_S)))
    report = validate_cases([Case("c", "", single, (window,))], jobs=1)
    assert [found.key for found in report.unpredicted()] == ["tpot_s.mean"]
    assert list(report.summary()) == ["ttft_s.mean"]
    assert json.loads(report.to_json())["cases"][0]["error_pct"] is None


def test_a_measured_zero_is_met_by_a_zero_alone() -> None:
    assert Score("a", "requests", "rejected", 0.0, 0.0, {}).error_pct == 0.0
    assert Score("a", "requests", "rejected", 0.0, 3.0, {}).error_pct is None


def test_the_report_does_not_depend_on_the_number_of_processes() -> None:
    cases = [case(Window("", (("ttft_s", "mean", 0.01 * i),)), name=f"c{i}") for i in (1, 2, 3)]
    assert validate_cases(cases, jobs=2).to_json() == validate_cases(cases, jobs=1).to_json()


def test_the_summary_has_median_mean_bias_and_worst() -> None:
    report = Report((score(1.0), score(-2.0, "b"), score(4.0, "c"), score(7.0, metric="e2e_s")))
    found = report.summary()["ttft_s.mean"]
    assert (found.n, found.worst_case) == (3, "c")
    assert (found.mdape, found.mape, found.bias, found.worst) == pytest.approx((2.0, 7 / 3, 1.0, 4.0))


def test_the_json_is_the_contracts() -> None:
    document = json.loads(Report((score(10.0),)).to_json())
    assert document["cases"] == [
        {"name": "a", "metric": "ttft_s", "statistic": "mean", "measured": 1.0, "predicted": 1.1,
         "error_pct": pytest.approx(10.0)}
    ]  # fmt: skip
    assert document["summary"] == {
        "ttft_s.mean": {"n": 1, "mdape": pytest.approx(10.0), "mape": pytest.approx(10.0), "bias": pytest.approx(10.0)}
    }


def test_limits_hold_for_a_statistic_or_a_whole_metric() -> None:
    report = Report((score(5.0),))
    assert report.exceeding(parse_limits(["ttft_s.mean=5.1"])) == []
    for name in ("ttft_s.mean", "ttft_s", "ttft"):
        assert "5.00 % is above 4" in report.exceeding(parse_limits([f"{name}=4"]))[0]
    with pytest.raises(InputError, match="no case predicts this"):
        report.exceeding({"tpot_s.mean": 1.0})


@pytest.mark.parametrize("text", ["ttft_s.mean", "=3", "ttft_s=x", "ttft_s=nan", "ttft_s=-1"])
def test_a_bad_limit_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="METRIC=PCT"):
        parse_limits([text])


def test_a_case_that_cannot_be_simulated_is_named() -> None:
    bad = Case("bad", "", scenario(max_model_len=10**9), (Window("", (("ttft_s", "mean", 1.0),)),), file="f.yaml")
    with pytest.raises(InputError, match=r"f\.yaml: bad: scenario\.engine\.max_model_len"):
        validate_cases([bad], jobs=1)


def test_no_processes_can_do_nothing() -> None:
    with pytest.raises(InputError, match="jobs"):
        validate_cases([], jobs=0)


def test_the_plot_is_written_and_its_failure_is_told(tmp_path: Path) -> None:
    report = Report((score(10.0), score(-5.0, metric="e2e_s")))
    plot_report(report, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="cannot be written"):
        plot_report(report, tmp_path / "missing" / "a.png")
    with pytest.raises(InputError, match="no prediction to draw"):
        plot_report(Report(()), tmp_path / "b.png")
