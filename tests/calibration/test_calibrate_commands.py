"""The command line of calibration: what it prints, writes and refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli import app

LOGS = Path(__file__).parent / "engine_runs"


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def invoke(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["calibrate", *arguments])
    return found.exit_code, found.stdout, found.stderr


@pytest.mark.parametrize("command", [("run", "--out", "x.parquet"), ("check", "--end-to-end")])
def test_missing_torch_names_the_extra(without_torch: None, command: tuple[str, ...]) -> None:
    code, out, err = invoke(*command)
    assert (code, out) == (2, "")
    assert "torch: is not installed" in err
    assert "servecast[calibrate]" in err


def test_missing_vllm_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibration.engine_runs.vllm_engine.find_spec", lambda name: None)
    code, _, err = invoke("engine")
    assert code == 2
    assert "vllm: is not installed" in err


def test_logs_of_an_earlier_run_are_fitted_and_compared() -> None:
    code, out, _ = invoke("engine", "--logs", str(LOGS), "--json")
    assert code == 0
    found = json.loads(out)
    assert [run["load"] for run in found["comparisons"]] == ["light", "medium", "saturated"]
    assert all(run["met"] and run["batches"]["first_difference"] is None for run in found["comparisons"])
    assert found["timer"]["base_s"] > 0


def test_the_terminal_shows_every_load() -> None:
    code, out, _ = invoke("engine", "--logs", str(LOGS))
    assert code == 0
    for word in ("light", "medium", "saturated", "675 of", "client:"):
        assert word in out


def test_a_profile_of_ones_own_is_written_for_a_scenario(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    code, _, err = invoke("engine", "--logs", str(LOGS), "--hardware", "l4", "--profile", str(out))
    assert (code, err) == (0, "")
    from hardware_profiles import load_engine_overheads, load_hardware

    assert "beside l4" in load_engine_overheads("vllm", load_hardware(out)).api_request_s.source


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("engine", "--logs", "nowhere"), "holds no engine-run logs"),
        (("engine", "--hardware", "l4"), "--profile: needs --hardware"),
        (("engine", "--hardware", "l5", "--profile", "x.yaml"), "unknown profile 'l5'"),
        (("run", "--out", "x.csv"), "does not end in .parquet"),
        (("run", "--out", "x.parquet", "--device", "gpu"), "unknown device 'gpu'"),
        (("run", "--out", "x.parquet", "--clock", "cpu"), "unknown clock 'cpu'"),
        (("run", "--out", "x.parquet", "--model", "no-such-model"), "unknown model 'no-such-model'"),
        (("check",), "give --end-to-end"),
    ],
)
def test_bad_input_is_one_message(arguments: tuple[str, ...], problem: str) -> None:
    code, out, err = invoke(*arguments)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize(
    ("argument", "problem"),
    [("max_num_seqs", "expected KEY=VALUE"), ("max_num_seqs=0", "at least 1"), ("max_num_seqs=[", "is not a value")],
)
def test_bad_engine_arguments_are_refused(monkeypatch: pytest.MonkeyPatch, argument: str, problem: str) -> None:
    monkeypatch.setattr("calibration.engine_runs.session.require_vllm", lambda: None)
    code, _, err = invoke("engine", "--engine-arg", argument)
    assert code == 2
    assert problem in err
