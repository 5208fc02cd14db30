"""The parts of docs/accuracy.md that any clone can make again, and what the page says of its targets."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibration.accuracy_chain import (
    engine_runs,
    engine_table,
    fitted_devices,
    kernel_residuals,
    kernel_table,
    loop_table,
    untargeted_table,
)
from calibration.accuracy_targets import Standing, reasons, standings, targets_table
from calibration.engine_runs.calibrate import EngineCalibration
from calibration.validate import Report, Score

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "accuracy.md"


@pytest.fixture(scope="module")
def engine() -> EngineCalibration:
    return engine_runs(ROOT / "tests" / "calibration" / "engine_runs")


def score(metric: str, statistic: str, predicted: float, **tags: str) -> Score:
    return Score("run", metric, statistic, 1.0, predicted, tags)


def test_the_page_shows_the_kernels_of_the_shipped_profiles_and_the_engine_as_it_is_predicted_now(
    engine: EngineCalibration,
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    for part in (kernel_table(), untargeted_table(), engine_table(engine), loop_table()):
        assert part in page


def test_every_fitted_device_is_judged_on_shapes_that_its_fit_did_not_see() -> None:
    devices = fitted_devices()
    assert len(devices) >= 9
    for profile in devices:
        found = kernel_residuals(profile)
        assert {"gemm bf16", "decode_attention bf16", "prefill_attention bf16", "all_reduce 2"} <= set(found), (
            profile.name
        )
        assert all(residual.held_out for residual, _ in found.values()), profile.name


def test_a_missed_target_is_named_with_its_size_and_its_reason(engine: EngineCalibration) -> None:
    report = Report(
        (
            score("ttft_s", "mean", 1.2, knee="closed loop"),
            score("tpot_s", "mean", 1.081, knee="closed loop"),
            score("e2e_s", "p99", 1.03, knee="below", group="report"),
        )
    )
    found = {each.what: each for each in standings(report, engine)}
    assert found["fixed concurrency, TTFT mean, median"].met
    assert not found["fixed concurrency, TPOT mean, median"].met
    assert found["below the knee, E2E p99, median"].met
    shown = targets_table(list(found.values()))
    assert "| fixed concurrency, TPOT mean, median | 8 | 8.10 |  | **missed by 0.1** |" in shown
    assert "Not explained" not in "".join(reasons(list(found.values())))


def test_a_target_missed_by_little_is_missed() -> None:
    assert not Standing("x", 4.0, 4.04).met
    assert Standing("x", 4.0, 4.004).met


def test_a_reason_nobody_gave_is_not_made_up() -> None:
    assert list(reasons([Standing("x", 1.0, 2.0, reason="unheard of")])) == ["**x.** Not explained."]
