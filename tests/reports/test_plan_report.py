"""What a planner gets: a page in the terminal, a folder to hand on, and reasons where nothing keeps the promise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import cli
from sim import Scenario, simulate

CHAT: dict[str, Any] = {
    "name": "chat",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "hardware": "l40s",
    "engine": {"max_model_len": 8192, "max_num_seqs": 64, "max_num_batched_tokens": 2048},
    "workload": {
        "num_requests": 80,
        "arrivals": {"process": "gamma", "rate_per_s": 2.0, "cv": 2.0},
        "prompt_tokens": {"distribution": "uniform", "min": 100, "max": 900},
        "output_tokens": 60,
    },
    "slo": {"ttft_p99_s": 1.0, "tpot_p99_s": 0.06},
}


def run(folder: Path, *words: str, **changes: Any) -> Any:
    path = folder / "chat.yaml"
    path.write_text(yaml.safe_dump(CHAT | changes))
    return CliRunner().invoke(cli.app, ["plan", str(path), "--workers", "1", "--no-what-ifs", *words])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("plan")
    done = run(folder, "--max-gpus", "2", "--rate-curve", "1,2,1", "--out", str(folder / "out"))
    assert done.exit_code == 0, done.output
    return folder / "out", done.output


def test_the_page_says_what_wins_how_surely_what_limits_it_and_how_to_start_it(planned: tuple[Path, str]) -> None:
    _, page = planned
    for words in ("winner", "TTFT p99", "of the bound", "how sure", "headroom", "a million tokens", "kW", "a day",
                  "vllm serve meta-llama/Llama-3.1-8B-Instruct", "vllm bench serve", "deployments of"):  # fmt: skip
        assert words in page


def test_the_folder_holds_the_plan_its_tables_pictures_and_commands(planned: tuple[Path, str]) -> None:
    out, _ = planned
    assert {"plan.json", "plan.parquet", "runs.parquet", "winner.yaml", "serve.md"} <= {p.name for p in out.iterdir()}
    for name in ("plan.png", "day.png"):
        assert (out / "plots" / name).read_bytes().startswith(b"\x89PNG")
    document = json.loads((out / "plan.json").read_text())
    assert set(document["serve"]) == {"vllm", "sglang", "tensorrt-llm", "tgi"}
    assert set(document["benchmark"]) == {"vllm bench serve", "inference-perf", "guidellm"}
    page = (out / "serve.md").read_text()
    for engine in ("## vLLM", "## SGLang", "## TensorRT-LLM", "## TGI", "### inference-perf", "### guidellm"):
        assert engine in page
    assert page.count("less bursty than planned") == 2  # neither of the two can send bursts


def test_the_winner_simulated_gives_the_figures_of_the_plan(planned: tuple[Path, str]) -> None:
    out, _ = planned
    winner = json.loads((out / "plan.json").read_text())["winner"]
    summary = simulate(Scenario.from_file(out / "winner.yaml")).summary
    assert summary.tpot_s.p99 == pytest.approx(winner["promise"]["tpot_p99_s"]["value_s"], rel=1e-9)
    assert all(summary.slo.met.values())


def test_where_nothing_keeps_the_promise_it_says_why_and_what_would_help_and_exits_with_1(tmp_path: Path) -> None:
    done = run(tmp_path, "--max-gpus", "2", "--max-watts", "300")
    assert done.exit_code == 1
    assert "Nothing keeps the promise within the budget" in done.output
    assert "one unit is 1 GPU, " in " ".join(done.output.split())
    assert "what would have to give way" in done.output
    assert "budget" in done.output


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--price", "l40s"], "HARDWARE=DOLLARS"),
        (["--tensor-parallel", "two"], "whole numbers"),
        (["--rate-curve", "1,x"], "cannot be read"),
        (["--hardware", "l40"], "did you mean"),
    ],
)
def test_bad_options_are_named(words: list[str], complaint: str, tmp_path: Path) -> None:
    done = run(tmp_path, *words)
    assert done.exit_code != 0
    assert complaint in done.output + str(done.exception)
