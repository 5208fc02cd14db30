"""`--band`: on where a folder is written, off elsewhere, as told where told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

import cli

CHAT = {
    "name": "chat",
    "model": "meta-llama/Llama-3.1-8B",
    "hardware": "h100-sxm",
    "engine": {"max_model_len": 8192},
    "workload": {
        "num_requests": 20,
        "arrivals": {"process": "poisson", "rate_per_s": 5},
        "prompt_tokens": {"distribution": "constant", "value": 100},
        "output_tokens": {"distribution": "constant", "value": 20},
    },
}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.yaml"
    path.write_text(yaml.safe_dump(CHAT))
    return path


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["servecast", *words])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    assert code == 0
    return capsys.readouterr().out


def simulated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return said(monkeypatch, capsys, "simulate", *words)


def test_a_written_run_has_a_band(
    chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert "if steps are off by" in simulated(monkeypatch, capsys, str(chat), "--out", str(out))
    summary = json.loads((out / "summary.json").read_text())
    assert summary["band"]["p90"]["low"]["ttft_s"]["p99"] < summary["ttft_s"]["p99"]
    assert "Range within the error of step times" in (out / "report.html").read_text()
    simulated(monkeypatch, capsys, str(chat), "--out", str(out), "--no-band")
    assert json.loads((out / "summary.json").read_text())["band"] is None


def test_elsewhere_it_comes_when_asked(
    chat: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "if steps" not in simulated(monkeypatch, capsys, str(chat))
    assert json.loads(simulated(monkeypatch, capsys, str(chat), "--json"))["band"] is None
    asked = json.loads(simulated(monkeypatch, capsys, str(chat), "--json", "--band"))
    assert asked["band"]["p50"]["high"]["throughput"]["output_tokens_per_s"] > 0


def test_two_runs_are_compared_by_their_figures_not_by_their_bands(
    chat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, flag in (("with", "--band"), ("without", "--no-band")):
        (tmp_path / f"{name}.json").write_text(simulated(monkeypatch, capsys, str(chat), "--json", flag))
    compared = said(
        monkeypatch, capsys, "compare", str(tmp_path / "with.json"), str(tmp_path / "without.json"), "--json"
    )
    assert json.loads(compared)["identical"]
