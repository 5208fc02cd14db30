"""``servecast validate``: what it prints where, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CASE = """
name: toy
source: a toy
tags: {gpu: toy}
scenario:
  model: meta-llama/Llama-3.1-8B
  hardware: h100-sxm
  engine: {num_gpu_blocks_override: 100, max_model_len: 1024, async_scheduling: false, step_time: {base_us: 10000}}
  workload:
    num_requests: 6
    arrivals: {process: constant, rate_per_s: 1.0}
    prompt_tokens: {distribution: constant, value: 10}
    output_tokens: {distribution: constant, value: 5}
measured:
  ttft_s: {mean: 0.01}
  e2e_s: {mean: 0.1}
"""


@pytest.fixture
def case(tmp_path: Path) -> Path:
    path = tmp_path / "toy.yaml"
    path.write_text(CASE)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "cli.py"), "validate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_it_prints_every_error_and_the_accuracy_by_metric(case: Path) -> None:
    ended = run(case)
    assert ended.returncode == 0
    assert ended.stderr == ""
    assert "-50.0" in ended.stdout
    assert "e2e_s.mean" in ended.stdout


def test_json_is_the_only_thing_on_stdout(case: Path) -> None:
    ended = run(case, "--json")
    document = json.loads(ended.stdout)
    assert set(document) == {"cases", "summary"}
    assert document["summary"]["e2e_s.mean"]["bias"] == pytest.approx(-50.0)


def test_a_median_error_above_the_limit_ends_with_1(case: Path) -> None:
    assert run(case, "--json", "--max-error", "ttft_s.mean=1").returncode == 0
    ended = run(case, "--json", "--max-error", "e2e_s.mean=49")
    assert ended.returncode == 1
    assert json.loads(ended.stdout)["summary"]
    assert "e2e_s.mean: median error 50.00 % is above 49 %" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-error", "speed=1"], "no case predicts this"),
        (["--where", "gpu=l40s"], "none of 1 has gpu=l40s"),
        (["--plot", "nowhere/a.png"], "cannot be written"),
        (["--plot", "a.xyz"], "neither .png"),
        (["--jobs", "0"], "0 processes can do nothing"),
    ],
)
def test_bad_options_end_with_2_and_one_message(case: Path, arguments: list[str], words: str) -> None:
    ended = run(case, *arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_bad_case_ends_with_2_and_names_file_and_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(CASE.replace("ttft_s:", "tftt_s:"))
    ended = run(path)
    assert ended.returncode == 2
    assert f"{path}: measured.tftt_s" in ended.stderr
    assert "did you mean 'ttft_s'?" in ended.stderr


def test_a_plot_is_written(case: Path, tmp_path: Path) -> None:
    assert run(case, "--plot", tmp_path / "a.svg").returncode == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_an_interrupt_ends_soon_with_130_and_no_traceback(tmp_path: Path) -> None:
    document = yaml.safe_load(CASE)
    document["scenario"]["workload"]["num_requests"] = 400_000
    for index in range(4):
        (tmp_path / f"{index}.yaml").write_text(yaml.safe_dump({**document, "name": f"toy{index}"}))
    command = [sys.executable, str(ROOT / "cli.py"), "validate", str(tmp_path), "--jobs", "2"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors
