from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = """
name: small
model: meta-llama/Llama-3.1-8B
hardware: h100-sxm
engine:
  num_gpu_blocks_override: 2000
  max_model_len: 4096
  step_time: {base_us: 8000, per_token_us: 40, per_seq_us: 20}
workload:
  num_requests: 60
  arrivals: {process: poisson, rate_per_s: 5}
  prompt_tokens: {distribution: uniform, min: 20, max: 600}
  output_tokens: {distribution: uniform, min: 1, max: 80}
slo: {ttft_p99_s: 1}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO)
    return path


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def servecast(servecast: Callable[..., tuple[int, str, str]]) -> Run:
    """Runs the command line in this process."""
    return lambda *arguments: Done(*servecast(*arguments))


def test_simulate_prints_a_summary_and_writes_the_folder(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    done = servecast("simulate", scenario, "--out", tmp_path / "run")
    assert (done.returncode, done.stderr) == (0, "")
    assert "TTFT p99 <= 1 s: met" in done.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["requests"]["completed"] == 60


def test_json_is_the_summary_and_nothing_else(servecast: Run, scenario: Path) -> None:
    done = servecast("simulate", scenario, "--json", "--set", "workload.num_requests=7", "--seed", "3")
    document = json.loads(done.stdout)
    assert document["requests"]["submitted"] == 7
    assert document["seed"] == 3
    assert done.stderr == ""


def test_two_runs_differ_in_wall_time_alone(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    files = []
    for name in ("one", "two"):
        servecast("simulate", scenario, "--out", tmp_path / name)
        files.append({path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()})
        summary = json.loads(files[-1]["summary.json"])
        del summary["simulation"]["wall_s"]
        files[-1]["summary.json"] = json.dumps(summary).encode()
    assert files[0] == files[1]


def test_exact_and_jumping_report_the_same(servecast: Run, scenario: Path) -> None:
    jumped, exact = (json.loads(servecast("simulate", scenario, "--json", *flag).stdout) for flag in ([], ["--exact"]))
    for document in (jumped, exact):
        del document["simulation"]
    assert jumped["requests"] == exact["requests"]
    for latency in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert jumped[latency] == pytest.approx(exact[latency])


def test_the_step_log_has_a_line_a_step(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    done = servecast("simulate", scenario, "--json", "--steps", tmp_path / "steps.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert len(lines) == json.loads(done.stdout)["simulation"]["engine_steps"]
    assert {"step", "t_us", "dt_us", "ids", "running", "waiting", "free_blocks"} <= set(lines[0])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "no-such.yaml"], ["no-such.yaml", "no such file"]),
        (
            ["simulate", "SCENARIO.yaml", "--set", "engine.max_num_seq=1"],
            ["engine.max_num_seq", "did you mean 'max_num_seqs'"],
        ),
        (["simulate", "SCENARIO.yaml", "--set", "model=lama-3.1-8b"], ["model", "did you mean"]),
        (["simulate", "SCENARIO.yaml", "--set", "hardware=h100-sxn"], ["hardware", "h100-sxm"]),
        (["simulate", "SCENARIO.yaml", "--set", "engine.preset=vlm"], ["engine.preset", "did you mean"]),
        (
            ["simulate", "SCENARIO.yaml", "--set", "engine.kv_allocation=contiguous"],
            ["kv_allocation", "prefix caching", "set enable_prefix_caching to false"],
        ),
        (["simulate", "SCENARIO.yaml", "--set", "workload.arrivals.rate_per_s=-1"], ["rate_per_s", "-1"]),
        (["simulate", "SCENARIO.yaml", "--set", "workload.arrivals.rate_per_s=.nan"], ["rate_per_s", "nan"]),
        (["simulate", "SCENARIO.yaml", "--set", "workload={trace: no.csv}"], ["no.csv"]),
        (["simulate", "SCENARIO.yaml", "--out", "/proc/run"], ["--out", "cannot write"]),
        (["simulate", "SCENARIO.yaml", "--set", f"model={'x' * 300}"], ["unknown model"]),
        (["validate", "x" * 300], ["File name too long"]),
        (["show", "hardware", "h100-pci"], ["did you mean"]),
        (["simulate"], ["SCENARIO"]),
        (["simulte"], ["simulate"]),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    servecast: Run, scenario: Path, arguments: list[str], words: list[str]
) -> None:
    done = servecast(*(argument.replace("SCENARIO.yaml", str(scenario)) for argument in arguments))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_a_refused_target_is_refused_before_the_run(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    done = servecast("simulate", scenario, "--out", tmp_path)
    assert done.returncode == 2
    assert "mine.txt" in done.stderr or "small.yaml" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.txt", "small.yaml"]


@pytest.mark.parametrize(("steps", "words"), [("small.yaml", "the scenario itself"), ("run/s.jsonl", "--out")])
def test_a_step_log_where_it_would_do_harm_is_refused(
    servecast: Run, scenario: Path, tmp_path: Path, steps: str, words: str
) -> None:
    done = servecast("simulate", scenario, "--steps", tmp_path / steps, "--out", tmp_path / "run")
    assert done.returncode == 2
    assert words in done.stderr
    assert scenario.read_text() == SCENARIO
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_step_log_does_not_write_over_the_trace(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    trace = tmp_path / "requests.csv"
    trace.write_text(text := "arrival_s,prompt_tokens,output_tokens\n0,10,5\n")
    done = servecast("simulate", scenario, "--set", f"workload={{trace: {trace}}}", "--steps", trace)
    assert (done.returncode, trace.read_text()) == (2, text)
    assert "its trace" in done.stderr


def test_a_loop_of_links_is_no_file(servecast: Run, scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    done = servecast(
        "simulate",
        scenario,
        "--set",
        f"workload={{trace: {tmp_path}/loop.csv}}",
        "--out",
        tmp_path / "loop.csv" / "run",
    )
    assert done.returncode == 2
    assert "loop.csv" in done.stderr


def test_the_folder_one_stands_in_is_not_replaced(
    servecast: Run, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for out in (".", "", "../here"):
        done = servecast("simulate", scenario, "--out", out)
        assert done.returncode == 2
        assert "the folder you are in" in done.stderr


@pytest.mark.parametrize(
    ("told", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "terminated")],
)
def test_a_run_that_is_stopped_says_so_and_leaves_nothing(
    scenario: Path, tmp_path: Path, told: signal.Signals, code: int, word: str
) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "simulate", str(scenario), "--out", str(tmp_path / "run")]
    command += ["--steps", str(tmp_path / "steps.jsonl"), "--set", "workload.num_requests=500000"]
    before = signal.signal(told, signal.SIG_DFL)  # tests under nohup ignore SIGHUP, and so would their child
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    signal.signal(told, before)
    while not any(tmp_path.glob(".steps*")) and process.poll() is None:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(told)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == code
    assert complaint.strip() == f"servecast: {word}"
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} {ROOT / 'cli.py'} show hardware h100-sxm | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("name")
    assert done.stderr == ""


def test_a_reader_that_goes_away_is_not_taken_for_a_failed_check() -> None:
    command = f"{sys.executable} {ROOT / 'cli.py'} show models | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">/dev/full"])
def test_output_that_goes_nowhere_is_no_defect(scenario: Path, closed: str) -> None:
    command = f"exec {sys.executable} {ROOT / 'cli.py'} simulate {scenario} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == (2 if "full" in closed else 0)
    assert "internal error" not in done.stderr


def test_output_without_unicode_still_prints(scenario: Path) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "simulate", str(scenario)]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=60)
    assert done.returncode == 0


def test_help_is_quick() -> None:
    begin = os.times()
    done = subprocess.run([sys.executable, str(ROOT / "cli.py"), "--help"], capture_output=True, text=True, timeout=60)
    end = os.times()
    assert "simulate" in done.stdout
    used_s = end.children_user - begin.children_user + end.children_system - begin.children_system
    assert used_s < 0.9  # three times what it may take, for machines under load


def test_a_defect_is_reported_as_one(servecast: Run, scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.run.simulate", lambda *_, **__: 1 / 0)
    done = servecast("simulate", scenario)
    assert done.returncode == 70
    assert "ZeroDivisionError" in done.stderr
    assert "Traceback" not in done.stderr
