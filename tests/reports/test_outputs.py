from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from toy_run import ToyRun, toy_run

from reports import outputs
from reports.outputs import write_outputs
from sim import InputError, Scenario


@pytest.fixture(scope="module")
def toy() -> ToyRun:
    return toy_run(count=120)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_leaves_everything_the_contract_names(toy: ToyRun, tmp_path: Path) -> None:
    write_outputs(toy.result, tmp_path / "run")
    names = set(contents(tmp_path / "run"))
    assert {"scenario.yaml", "summary.json", "requests.parquet", "steps.parquet", "timeline.json"} <= names
    assert {"plots/latency_cdf.png", "plots/latency_cdf.svg", "plots/over_time.png", "plots/over_time.svg"} <= names
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_outputs(toy_run(count=120).result, tmp_path / name)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_the_written_scenario_is_the_scenario(toy: ToyRun, tmp_path: Path) -> None:
    write_outputs(toy.result, tmp_path / "run")
    again = Scenario.from_file(tmp_path / "run" / "scenario.yaml")
    assert again.scenario_hash == toy.result.summary.scenario_hash


def test_parquet_holds_the_records_and_nothing_of_pandas(toy: ToyRun, tmp_path: Path) -> None:
    write_outputs(toy.result, tmp_path / "run")
    frame = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    expected = toy.result.requests
    assert list(frame.columns) == list(expected.columns)
    for name in ("arrival_s", "ttft_s", "tpot_s", "e2e_s", "output_tokens"):
        np.testing.assert_array_equal(frame[name], expected[name])
    assert frame["status"].astype(str).tolist() == expected["status"].astype(str).tolist()
    assert b"pandas" not in (tmp_path / "run" / "requests.parquet").read_bytes()
    assert len(pd.read_parquet(tmp_path / "run" / "steps.parquet")) == len(toy.result.steps)


def test_a_former_run_is_replaced_whole(toy: ToyRun, tmp_path: Path) -> None:
    write_outputs(toy.result, tmp_path / "run")
    (tmp_path / "run" / "plots" / "old.png").write_text("left over")
    write_outputs(toy.result, tmp_path / "run")
    assert not (tmp_path / "run" / "plots" / "old.png").exists()


@pytest.mark.parametrize("name", ["notes.txt", "scenario.yaml/notes.txt"])
def test_a_folder_with_other_files_is_left_alone(toy: ToyRun, tmp_path: Path, name: str) -> None:
    for part in name.split("/"):
        (tmp_path / part).write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \(notes.txt\)"):
        write_outputs(toy.result, tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_way_is_named(toy: ToyRun, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(InputError, match="not a folder"):
        write_outputs(toy.result, tmp_path / "run")


def test_an_interruption_leaves_neither_half_a_folder_nor_a_lost_one(
    toy: ToyRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_outputs(toy.result, tmp_path / "run")
    before = contents(tmp_path / "run")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("reports.plots.write_plots", interrupted)
    for name in ("run", "new"):
        with pytest.raises(KeyboardInterrupt):
            write_outputs(toy.result, tmp_path / name)
    assert contents(tmp_path / "run") == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_failed_swap_puts_the_former_run_back(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(FileNotFoundError):
        outputs._swap_in(tmp_path / "absent", tmp_path / "run", tmp_path / "former")
    assert (tmp_path / "run").is_dir()


def test_the_timeline_tells_steps_counters_and_requests(toy: ToyRun, tmp_path: Path) -> None:
    write_outputs(toy.result, tmp_path / "run")
    trace = json.loads((tmp_path / "run" / "timeline.json").read_text())
    events = trace["traceEvents"]
    steps = [event for event in events if event["ph"] == "X"]
    assert len(steps) == len(toy.result.steps)
    assert sum(event["dur"] for event in steps) == pytest.approx(sum(toy.step_lengths_s) * 1e6, rel=1e-6)
    assert all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in pairwise(steps))
    begun, ended = ([(e["id"], e["name"]) for e in events if e["ph"] == phase] for phase in "be")
    assert sorted(begun) == sorted(ended)
    done = toy.result.requests[toy.result.requests["status"] == "completed"]
    assert sum(name.startswith("request ") for _, name in begun) == len(done)
    last = [event for event in events if event["ph"] == "C"][-2:]
    assert all(value == 0 for event in last for value in event["args"].values())


@pytest.mark.parametrize("name", ["scenario.yaml", "run/plots/notes.txt"])
def test_what_a_user_put_there_is_never_replaced(toy: ToyRun, tmp_path: Path, name: str) -> None:
    if "/" in name:
        write_outputs(toy.result, tmp_path / "run")
    mine = tmp_path / name
    mine.write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        write_outputs(toy.result, tmp_path / name.split("/")[0] if "/" in name else tmp_path)
    assert mine.read_text() == "mine"


def test_a_name_too_long_for_the_system_is_one_message(toy: ToyRun, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--out: cannot write"):
        write_outputs(toy.result, tmp_path / ("n" * 300))
