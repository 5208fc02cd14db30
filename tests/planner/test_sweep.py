from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from reports.sweep_outputs import parquet_of, write_sweep
from sim import Scenario, simulate
from sim.planner import sweep
from sim.planner import sweeping as module

ROOT = Path(__file__).resolve().parents[2]
GRID = {"engine.max_num_seqs": [2, 64], "workload.arrivals.rate_per_s": [2.0, 5.0, 20.0]}


def test_a_point_is_what_simulate_says(small: Scenario) -> None:
    result = sweep(small, GRID, workers=1)
    row = result.table.iloc[1]
    alone = simulate(small.with_overrides(["engine.max_num_seqs=2", "workload.arrivals.rate_per_s=5"])).summary
    assert row["ttft_s.p99"] == alone.ttft_s.p99
    assert row["scenario_hash"] == alone.scenario_hash
    assert row["slo.met.ttft_p99_s"] == alone.slo.met["ttft_p99_s"]
    assert list(result.table["workload.arrivals.rate_per_s"]) == [2.0, 5.0, 20.0] * 2
    assert "band" not in result.table  # a sweep never runs a point five times


def test_a_point_that_cannot_be_served_is_a_row_with_its_reason(small: Scenario) -> None:
    result = sweep(small, {"layout.tensor_parallel_size": [1, 3], "engine.max_num_seqs": [8, 0]}, workers=1)
    assert result.counts == {"done": 1, "refused": 3}
    assert "3 does not divide the 32 attention heads" in result.table["reason"][2]
    assert "engine.max_num_seqs" in result.table["reason"][1]


def test_one_worker_or_two_write_the_same_table(small: Scenario) -> None:
    tables = [parquet_of(sweep(small, GRID, workers=workers)) for workers in (1, 2)]
    assert tables[0] == tables[1]


def test_finished_points_are_never_run_again(small: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    measure = module.measure
    monkeypatch.setattr(module, "measure", lambda job: runs.append(job.key) or measure(job))
    whole = sweep(small, GRID, workers=1)
    assert len(runs) == 6
    sweep(small, {**GRID, "engine.max_num_seqs": [2]}, store=tmp_path, workers=1)
    assert len(runs) == 9
    again = sweep(small, GRID, store=tmp_path, workers=1)
    assert len(runs) == 12
    assert (again.reused, whole.reused) == (3, 0)
    assert parquet_of(again) == parquet_of(whole)


def test_the_same_scenario_twice_in_a_grid_runs_once(small: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []
    measure = module.measure
    monkeypatch.setattr(module, "measure", lambda job: runs.append(job.key) or measure(job))
    seen: list[tuple[int, int]] = []
    result = sweep(
        small, {"engine.preset": ["vllm"], "seed": [0, 0.0]}, workers=1, progress=lambda *over: seen.append(over)
    )
    assert result.counts == {"done": 1, "refused": 1}  # 0.0 is no whole number
    result = sweep(small, {"slo": [{"ttft_p99_s": 1}, {"ttft_p99_s": 1.0}]}, workers=1)
    assert result.counts == {"done": 2}
    assert len(runs) == 2


def test_an_interrupted_sweep_keeps_what_it_has_and_goes_on(tmp_path: Path) -> None:
    scenario = tmp_path / "small.yaml"
    scenario.write_text(
        "model: meta-llama/Llama-3.1-8B\nhardware: h100-sxm\nengine: {max_model_len: 4096}\n"
        "workload: {num_requests: 3000, arrivals: {process: poisson, rate_per_s: 5}, prompt_tokens: 200,"
        " output_tokens: 50}\n"
    )
    out = tmp_path / "out"
    command = [sys.executable, str(ROOT / "cli.py"), "sweep", str(scenario), "--out", str(out), "--workers", "2"]
    command += ["--vary", "seed=" + ",".join(map(str, range(60)))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and len(list((out / "points").glob("*.json"))) < 3:
        time.sleep(0.02)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    kept = len(list((out / "points").glob("*.json")))
    assert process.returncode == 130
    assert "kept in" in complaint
    assert "Traceback" not in complaint
    assert time.monotonic() - begin < 20
    assert 3 <= kept < 60
    assert list(out.glob("*.parquet")) == []
    again = [*command[:-1], "seed=" + ",".join(map(str, range(kept)))]
    done = subprocess.run(again, capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert "of all known from before" in done.stdout


def test_the_folder_holds_table_plots_and_question(small: Scenario, tmp_path: Path) -> None:
    import pandas as pd

    result = sweep(small, GRID, workers=1)
    write_sweep(result, small, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plots", "sweep.json", "sweep.parquet"]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "sweep.parquet"), result.table, check_dtype=False)
    assert [path.name for path in sorted((tmp_path / "plots").iterdir())] == ["sweep.png", "sweep.svg"]
