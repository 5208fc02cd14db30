"""A machine's own profile from its microbenchmarks, and host terms from short runs; no torch is needed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibration.closed_loop.check import cost_model
from calibration.closed_loop.model import architecture
from calibration.closed_loop.profile import machine_profile
from calibration.engine_runs.log import EngineRun, read_run
from calibration.engine_runs.overheads import fit_host, host_overheads, no_overheads, profile_with_engine
from calibration.engine_runs.timer import step_spans
from calibration.fit import fit_kernels
from calibration.fit_writer import write_profile
from hardware_profiles import HardwareProfile, load_engine_overheads, load_hardware
from sim.cluster.fleet import ClientPath
from sim.cost.shape import StepShape
from sim.errors import InputError

PEAK, BANDWIDTH, FIXED_S = 2e11, 1e10, 2e-5
METADATA = {"name": "test CPU", "measured": "2026-01-01", "device": "cpu", "facts": {}, "warnings": []}


def gemm_rows(widths: tuple[int, ...] = (256, 512, 768)) -> pd.DataFrame:
    """Times of a machine that is exactly a roofline."""
    rows = []
    for m in (1, 4, 16, 64, 256):
        for n in widths:
            for k in widths:
                moved = 2.0 * (n * k + m * k + m * n)
                seconds = 2.0 * m * n * k / PEAK + moved / BANDWIDTH + FIXED_S
                rows.append({"family": "gemm", "dtype": "bf16", "m": m, "n": n, "k": k, "seconds": seconds})
    return pd.DataFrame(rows).assign(source="synthetic", fastest_s=lambda frame: frame.seconds)


@pytest.fixture(scope="module")
def hardware() -> HardwareProfile:
    rows = gemm_rows()
    profile = machine_profile(rows, METADATA)
    return profile.model_copy(update={"kernels": fit_kernels(rows, profile)})


def test_bounds_are_just_above_the_best_row(hardware: HardwareProfile) -> None:
    rows = gemm_rows()
    best = (2 * rows.m * rows.n * rows.k / rows.seconds).max()
    assert best < hardware.peak_flops("bf16") < 1.03 * best
    assert hardware.compute.peak_flops["bf16"].provenance == "measured"


def test_shapes_of_a_small_model_are_judged_although_no_server_has_them(hardware: HardwareProfile) -> None:
    residual = hardware.kernels.gemm["bf16"].residual
    assert residual is not None
    assert residual.held_out
    assert residual.median < 0.03


def test_a_table_without_products_has_no_bounds() -> None:
    rows = gemm_rows()
    with pytest.raises(InputError, match="hold no gemm rows"):
        machine_profile(rows[rows.family == "none"], METADATA)


def test_host_terms_that_were_added_are_found(hardware: HardwareProfile) -> None:
    """Real batches of an engine, timed by kernels plus 3 ms a step and 0.2 ms a sequence."""
    arch = architecture("gqa-small")
    kernels = cost_model(arch, hardware, no_overheads())
    whole = cost_model(arch, hardware, host_overheads(3e-3, 2e-4, "made up"))
    folder = Path(__file__).parent / "engine_runs"
    runs = [_timed(read_run(folder / f"{name}.json.gz"), whole) for name in ("single64", "batch2", "batch8", "batch16")]
    found = fit_host(kernels, runs)
    assert found.step_host_s.value == pytest.approx(3e-3, rel=1e-3)
    assert found.seq_host_s.value == pytest.approx(2e-4, rel=1e-3)


def test_a_profile_takes_over_an_engines_host_terms(hardware: HardwareProfile, tmp_path: Path) -> None:
    folder = Path(__file__).parent / "engine_runs"
    runs = [read_run(folder / f"{name}.json.gz") for name in ("single64", "batch2", "batch8")]
    path = ClientPath(to_queue_s=1e-3, first_token_s=2e-3, last_token_s=2.5e-3)
    write_profile(profile_with_engine(hardware, runs, path), tmp_path / "mine.yaml")
    read = load_engine_overheads("vllm", load_hardware(tmp_path / "mine.yaml"))
    assert read.api_request_s.value == 1e-3
    assert read.completion_s.value == pytest.approx(5e-4)
    assert read.max_cudagraph_tokens == 0  # the runs were eager
    assert read.step_host_s.value > 1e-3  # an eager step of a CPU engine
    assert read.step_host_s.provenance == "fitted"


def test_runs_of_two_engines_are_not_mixed(hardware: HardwareProfile) -> None:
    run = read_run(Path(__file__).parent / "engine_runs" / "batch2.json.gz")
    other = replace(run, meta={**run.meta, "model": {**run.meta["model"], "num_hidden_layers": 9}})
    with pytest.raises(InputError, match="different models or settings"):
        profile_with_engine(hardware, [run, other], ClientPath())


def test_spans_take_in_the_gap_before_a_step_of_the_same_requests() -> None:
    run = read_run(Path(__file__).parent / "engine_runs" / "single16.json.gz")
    spans = [seconds for _, seconds in step_spans(run)]
    assert spans[0] == pytest.approx(run.steps[0].dt_s)
    assert spans[1] == pytest.approx(run.steps[1].end_s - run.steps[0].end_s)
    starts = [i for i, step in enumerate(run.steps) if step.ntok[0] == 16]
    assert all(spans[i] == pytest.approx(run.steps[i].dt_s) for i in starts)  # a pause lay before


def test_more_work_never_takes_less_time(hardware: HardwareProfile) -> None:
    timer = cost_model(architecture("gqa-small"), hardware, no_overheads())
    seconds = [timer.step(StepShape(n, 100 * n, 100 * n, sampled_seqs=n)) for n in (1, 2, 4, 8, 16, 32)]
    assert np.all(np.diff(seconds) >= 0)


def _timed(run: EngineRun, timer) -> EngineRun:
    steps, clock = [], 0.0
    for step, (shape, _) in zip(run.steps, step_spans(run), strict=True):
        steps.append(step.model_copy(update={"t_s": clock, "dt_s": timer.step(shape)}))
        clock = steps[-1].end_s
    return replace(run, steps=tuple(steps))
