"""The band: what the error of step times leaves open."""

from __future__ import annotations

from typing import Any

import pytest

from sim import Scenario, simulate
from sim.summary import Extent, Summary


def scenario(hardware: str = "h100-sxm", rate: float = 4.0, **changes: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "name": "small",
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": hardware,
            "engine": {"max_model_len": 8192},
            "workload": {
                "num_requests": 120,
                "arrivals": {"process": "poisson", "rate_per_s": rate},
                "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 1500},
                "output_tokens": {"distribution": "uniform", "min": 2, "max": 200},
            },
            "slo": {"ttft_p99_s": 0.08, "goodput_ttft_s": 0.05},
            **changes,
        }
    )


def banded(asked: Scenario, **options: Any) -> Summary:
    summary = simulate(asked, band=True, **options).summary
    assert summary.band is not None
    return summary


def figures(end: Extent) -> dict[str, float]:
    flat = {}
    for name, block in end.model_dump().items():
        flat.update(
            {f"{name}.{key}": value for key, value in block.items()} if isinstance(block, dict) else {name: block}
        )
    return {name: value for name, value in flat.items() if value is not None}


def test_the_band_spans_the_prediction_and_the_wide_one_the_narrow() -> None:
    summary = banded(scenario())
    latencies = {name: getattr(summary, name) for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s")}
    rates = {"goodput_requests_per_s": summary.slo.goodput_requests_per_s, "attainment": summary.slo.attainment}
    band, own = summary.band, figures(Extent(throughput=summary.throughput, **latencies, **rates))
    assert band is not None
    narrow, wide = ((figures(each.low), figures(each.high)) for each in (band.p50, band.p90))
    for name, value in own.items():
        assert narrow[0][name] <= value <= narrow[1][name], name
    for metric in ("ttft_s.mean", "tpot_s.mean", "itl_s.p50", "e2e_s.p99"):
        assert wide[0][metric] < narrow[0][metric] < own[metric] < narrow[1][metric] < wide[1][metric], metric
    assert wide[0]["goodput_requests_per_s"] < wide[1]["goodput_requests_per_s"]


def test_below_the_knee_tpot_moves_as_its_steps_do() -> None:
    summary = banded(scenario(rate=0.05))
    band = summary.band
    assert band is not None
    assert summary.tpot_s.p50 is not None
    error = summary.calibration.step_time_error_p90
    assert error == band.p90.step_time_error
    assert band.p90.high.tpot_s.p50 == pytest.approx(summary.tpot_s.p50 * (1 + error), rel=2e-3)
    assert band.p90.low.tpot_s.p50 == pytest.approx(summary.tpot_s.p50 / (1 + error), rel=2e-3)


def test_nobody_pays_who_does_not_ask() -> None:
    plain, with_band = simulate(scenario()).summary, banded(scenario())
    assert plain.band is None
    aside = {"simulation": plain.simulation, "band": None}
    assert with_band.model_copy(update=aside) == plain
    assert with_band.simulation.engine_steps == plain.simulation.engine_steps


def test_the_same_band_twice_and_step_by_step() -> None:
    one, two, exact = (banded(scenario(), exact=exact).band for exact in (False, False, True))
    assert one == two
    assert one is not None
    assert exact is not None
    for ours, theirs in ((one.p90.low, exact.p90.low), (one.p90.high, exact.p90.high)):
        assert figures(ours) == pytest.approx(figures(theirs), rel=1e-6)


def test_given_step_times_have_no_band() -> None:
    given = {"step_time": {"base_us": 5000, "per_token_us": 10, "per_seq_us": 5}, "max_model_len": 8192}
    summary = simulate(scenario(engine=given), band=True).summary
    assert summary.band is None
    assert summary.calibration.step_time_error_source is None


def test_a_profile_without_measurements_says_so_and_opens_wider() -> None:
    measured, assumed = banded(scenario()), banded(scenario("mi300x"))
    assert measured.calibration.step_time_error_source is not None
    assert assumed.calibration.step_time_error_source is not None
    assert measured.calibration.step_time_error_source.startswith("measured: ")
    assert assumed.calibration.step_time_error_source.startswith("assumed: ")
    assert not assumed.calibration.calibrated
    assert measured.band is not None
    assert assumed.band is not None
    assert assumed.band.p90.step_time_error > measured.band.p90.step_time_error


def test_pools_are_each_as_unsure_as_their_profile() -> None:
    split = {
        "prefill": {"replicas": 1, "layout": {}},
        "decode": {"replicas": 1, "layout": {}, "hardware": "mi300x"},
        "transfer_gb_per_s": 50.0,
    }
    both, alone = banded(scenario(cluster={"disaggregation": split})), banded(scenario("mi300x"))
    assert both.calibration.step_time_error_p90 == alone.calibration.step_time_error_p90
    assert both.calibration.step_time_error_source is not None
    assert "measured: " in both.calibration.step_time_error_source
    band = both.band
    assert band is not None
    ttft, tpot = (
        getattr(band.p90.high, name).mean / getattr(both, name).mean for name in ("ttft_s", "tpot_s")
    )  # TTFT comes from the pool that is known well, TPOT from the other
    assert ttft < 1.2 < tpot


def test_progress_goes_on_over_all_runs() -> None:
    told: list[float] = []
    simulate(
        scenario(workload={**scenario().workload.model_dump(), "num_requests": 600}), band=True, progress=told.append
    )
    assert told == sorted(told)
    assert told[0] < 0.2 < told[-1] <= 1.0
