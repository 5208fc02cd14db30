"""A written workload reads back: same columns, same sharing, same bytes, and whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim.errors import InputError
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload, write_trace
from workloads.describe import prefix_share, shareable_tokens
from workloads.spec import TraceSpec
from workloads.traces import read_trace

SUFFIXES = ("csv", "csv.gz", "jsonl", "jsonl.gz", "parquet")


def sample(**changes: Any) -> Workload:
    section: dict[str, Any] = {
        "num_requests": 60,
        "arrivals": {"process": "poisson", "rate_per_s": 3.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 90},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": 40},
        "prefixes": {"groups": 2, "prefix_tokens": 33, "prompts_per_group": 4},
        "sessions": {"turns": {"distribution": "uniform", "min": 1, "max": 4}, "think_s": 2.0, "think_cv": 1.0},
    }
    return build_workload(WorkloadSpec.parse({**section, **changes}), 0)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_columns_come_back_exactly(tmp_path: Path, suffix: str) -> None:
    workload = sample()
    write_trace(workload, tmp_path / f"a.{suffix}")
    back = read_trace(TraceSpec(path=str(tmp_path / f"a.{suffix}")))
    for name in ("arrival_s", "prompt_tokens", "output_tokens", "after", "think_s", "session_id"):
        np.testing.assert_array_equal(getattr(workload, name), getattr(back, name))


def test_whole_blocks_of_shared_text_come_back(tmp_path: Path) -> None:
    workload = sample()
    write_trace(workload, tmp_path / "a.csv", hash_block_size=8)
    back = read_trace(TraceSpec(path=str(tmp_path / "a.csv")))
    np.testing.assert_array_equal(shareable_tokens(workload) // 8, shareable_tokens(back) // 8)
    assert 0 < prefix_share(back) <= prefix_share(workload)


def test_blocks_of_one_token_lose_nothing(tmp_path: Path) -> None:
    workload = sample()
    write_trace(workload, tmp_path / "a.jsonl", hash_block_size=1)
    back = read_trace(TraceSpec(path=str(tmp_path / "a.jsonl")))
    np.testing.assert_array_equal(shareable_tokens(workload), shareable_tokens(back))


def test_what_there_is_not_is_not_written(tmp_path: Path) -> None:
    write_trace(sample(prefixes=None, sessions=None, num_requests=1), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().splitlines()[0] == "arrival_s,prompt_tokens,output_tokens"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_workload_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    for name in ("a", "b"):
        write_trace(sample(), tmp_path / f"{name}.{suffix}")
    assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()


def test_priorities_come_back(tmp_path: Path) -> None:
    workload = Workload(np.zeros(2), np.array([5, 5]), np.array([1, 1]), priority=np.array([3, -1]))
    write_trace(workload, tmp_path / "a.csv")
    back = read_trace(TraceSpec(path=str(tmp_path / "a.csv")))
    assert back.priority is not None
    assert back.priority.tolist() == [3, -1]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("workloads.traces.writer._write_rows", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_trace(sample(), tmp_path / "a.csv")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.csv", "old")]


@pytest.mark.parametrize(("name", "words"), [("a.txt", "known: "), ("a.jsonn", "'.jsonl'"), ("a", "known: ")])
def test_a_suffix_that_says_nothing_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        write_trace(sample(), tmp_path / name)
    assert words in caught.value.remedy


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        write_trace(sample(), tmp_path / "no" / "a.csv")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(sample(), tmp_path / "a.csv")


def test_a_block_size_below_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hash_block_size"):
        write_trace(sample(), tmp_path / "a.csv", hash_block_size=0)
