"""The sweep command as a program meets it: its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.json"
    document = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "workload": {
            "num_requests": 5,
            "arrivals": {"process": "constant", "rate_per_s": 5},
            "prompt_tokens": 10,
            "output_tokens": 10,
        },
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("sizes", "code", "counts"),
    [("1,2", 0, {"done": 2}), ("1,3", 0, {"done": 1, "refused": 1}), ("3,5", 1, {"refused": 2})],
)
def test_a_sweep_that_simulated_nothing_exits_with_1(
    servecast: Run, chat: Path, sizes: str, code: int, counts: dict[str, int]
) -> None:
    vary = f"layout.tensor_parallel_size={sizes}"
    left, printed, told = servecast("sweep", chat, "--vary", vary, "--workers", 1, "--json")
    assert (left, json.loads(printed)["counts"], told) == (code, counts, "")


def test_the_table_of_refusals_is_written_all_the_same(servecast: Run, chat: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, _ = servecast("sweep", chat, "--vary", "layout.tensor_parallel_size=3", "--workers", 1, "--out", out)
    assert code == 1
    assert "does not divide" in printed
    assert (out / "sweep.parquet").exists()


def test_keys_that_end_alike_are_told_apart_in_the_picture(servecast: Run, chat: Path, tmp_path: Path) -> None:
    pool = "{replicas: 1, layout: {tensor_parallel_size: 1}}"
    split = f"cluster.disaggregation={{prefill: {pool}, decode: {pool}, transfer_gb_per_s: 50}}"
    vary = [
        part for pool in ("prefill", "decode") for part in ("--vary", f"cluster.disaggregation.{pool}.replicas=1,2")
    ]
    code, _, _ = servecast("sweep", chat, "--set", split, *vary, "--workers", 1, "--out", tmp_path / "out")
    assert code == 0
    picture = (tmp_path / "out/plots/sweep.svg").read_text()
    assert "<!-- prefill.replicas -->" in picture
    assert "<!-- decode.replicas -->" in picture


def test_whole_sections_are_called_by_what_is_in_them(servecast: Run, chat: Path, tmp_path: Path) -> None:
    layouts = "layout={tensor_parallel_size: 2},{tensor_parallel_size: 2, pipeline_parallel_size: 2}"
    vary = ("--vary", layouts, "--vary", "engine.max_num_seqs=8,16", "--workers", 1)
    code, printed, _ = servecast("sweep", chat, *vary, "--out", tmp_path / "out")
    assert code == 0
    assert "TP2 PP2" in printed
    assert "<!-- TP2 PP2 -->" in (tmp_path / "out/plots/sweep.svg").read_text()
