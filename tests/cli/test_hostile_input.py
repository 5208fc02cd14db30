"""Files made to do harm: refused with one message, within bounds of memory and time, and nothing in them is run."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MEMORY_BYTES = 3 * 2**30
SECONDS = 60
SCENARIO = """
name: small
model: meta-llama/Llama-3.1-8B
hardware: h100-sxm
workload: {trace: TRACE}
"""


def servecast(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command line in a process of its own that may take neither much memory nor much time."""
    import resource

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))

    return subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=bounded,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr and bool(done.stderr)


@pytest.mark.parametrize(
    "text",
    [
        "name: !!python/object/apply:os.system ['touch harm']\n",
        "name: !!python/name:os.system\n",
        "a: " + "[" * 100_000,
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "\n".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "name: " + "x" * 5_000_000,
        "a: &a {b: *a}\n",
        "\x00\x01\x02",
    ],
    ids=["tag", "name", "deep", "aliases", "large", "circle", "binary"],
)
def test_yaml_is_data_and_bounded(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.yaml").write_text(text)
    for command in (["simulate", "s.yaml"], ["convert", "s.yaml"], ["memory", "s.yaml"]):
        assert refused(servecast(tmp_path, *command)), command
    assert refused(servecast(tmp_path, "compare", "s.yaml", "s.yaml", "--tolerances", "s.yaml"))
    assert [path.name for path in tmp_path.iterdir()] == ["s.yaml"]


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.json", "t.parquet"])
def test_a_gigabyte_of_nothing_is_no_trace(tmp_path: Path, name: str) -> None:
    sparse(tmp_path / name, 2**30)
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("TRACE", name))
    assert refused(servecast(tmp_path, "simulate", "s.yaml"))
    assert refused(servecast(tmp_path, "convert", name, "--out", "o.csv"))


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    row = b'{"arrival_s":0,"prompt_tokens":1,"output_tokens":1,"pad":"%s"}\n' % (b"x" * 10_000)
    with gzip.open(tmp_path / "t.jsonl.gz", "wb", compresslevel=9) as file:
        for _ in range(100):
            file.write(row * 100)
    assert (tmp_path / "t.jsonl.gz").stat().st_size < 300_000
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("TRACE", "t.jsonl.gz"))
    done = servecast(tmp_path, "simulate", "s.yaml")
    assert refused(done)
    assert "expands" in done.stderr


def test_a_parquet_of_very_many_rows_is_refused(tmp_path: Path) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = 20_100_000
    column = pa.array(np.ones(rows, np.int64))
    table = pa.table({"arrival_s": pa.array(np.zeros(rows)), "prompt_tokens": column, "output_tokens": column})
    pq.write_table(table, tmp_path / "t.parquet", compression="zstd")
    (tmp_path / "s.yaml").write_text(SCENARIO.replace("TRACE", "t.parquet"))
    assert refused(servecast(tmp_path, "simulate", "s.yaml"))
    assert refused(servecast(tmp_path, "compare", "t.parquet", "t.parquet"))


def test_hostile_results_are_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text('{"a":' * 100_000)
    sparse(tmp_path / "large.json", 2**30)
    (tmp_path / "numbers.json").write_text(
        '{"request_throughput": 1e999, "total_input_tokens": NaN, "completed": 1e300}'
    )
    (tmp_path / "metrics.txt").write_text("# TYPE vllm:x counter\n" + "vllm:x{" + '"}' * 200_000)
    for name in ("deep.json", "large.json", "numbers.json"):
        for kind in ([], ["--from", "vllm-bench"], ["--from", "metrics"]):
            assert refused(servecast(tmp_path, "convert", name, "--hardware", "l40s", *kind)), (name, kind)
    assert refused(servecast(tmp_path, "convert", "metrics.txt", "--seconds", "10"))
    for name in ("deep.json", "large.json", "numbers.json"):
        assert refused(servecast(tmp_path, "compare", name, name)), name


def test_a_serve_command_is_read_and_not_run(tmp_path: Path) -> None:
    text = "vllm serve $(touch harm) `touch harm`; touch harm && touch harm --max-num-seqs 3"
    servecast(tmp_path, "convert", text, "--hardware", "l40s")
    assert list(tmp_path.iterdir()) == []


def test_a_summary_of_impossible_numbers_is_compared_or_refused(tmp_path: Path) -> None:
    summary = {"schema_version": 1, "ttft_s": {"p50": 1e299, "p99": -1.0}, "slo": {"met": {"a|b\n": True}}}
    (tmp_path / "a.json").write_text(json.dumps(summary).replace("1e+299", "1e999"))
    (tmp_path / "b.json").write_text(json.dumps(summary))
    done = servecast(tmp_path, "compare", "a.json", "b.json", "--markdown", "--plot", "d.png")
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    assert "internal" not in done.stderr
