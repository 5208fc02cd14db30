"""timeline.json as Perfetto reads it."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reports.timeline import write_timeline
from sim import Scenario, simulate

ROOT = Path(__file__).resolve().parents[2]
SCENARIO = {
    "name": "timeline",
    "model": "meta-llama/Llama-3.1-8B",
    "hardware": "h100-sxm",
    "layout": {"replicas": 2},
    "workload": {
        "num_requests": 60,
        "arrivals": {"process": "poisson", "rate_per_s": 20.0},
        "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 2500},
        "output_tokens": {"distribution": "uniform", "min": 2, "max": 60},
    },
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timeline") / "timeline.json"
    write_timeline(simulate(Scenario.from_dict(SCENARIO)), path)
    return path


@pytest.fixture(scope="module")
def events(trace: Path) -> list[dict[str, Any]]:
    return list(json.loads(trace.read_text())["traceEvents"])


def test_replicas_are_processes(events: list[dict[str, Any]]) -> None:
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert {"engine 0", "engine 1"} <= names


def test_every_request_is_a_flow_through_steps(events: list[dict[str, Any]]) -> None:
    slices = [(e["pid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    for phase in "stf":
        flows = [event for event in events if event["ph"] == phase]
        assert sorted(event["id"] for event in flows) == list(range(60))
        for event in flows:
            assert any(pid == event["pid"] and low <= event["ts"] <= high for pid, low, high in slices)


def test_a_flow_does_not_run_backwards(events: list[dict[str, Any]]) -> None:
    times: dict[int, dict[str, float]] = {}
    for event in events:
        if event["ph"] in "stf":
            times.setdefault(event["id"], {})[event["ph"]] = event["ts"]
    assert all(each["s"] <= each["t"] <= each["f"] for each in times.values())


def test_a_step_tells_where_its_time_went(events: list[dict[str, Any]]) -> None:
    for event in events:
        if event["ph"] == "X":
            parts = event["args"]["us of a step"]
            middle = event["dur"] / event["args"]["steps"]
            assert sum(parts.values()) == pytest.approx(middle, rel=0.02)


def test_steps_of_one_thread_do_not_overlap(events: list[dict[str, Any]]) -> None:
    ends: dict[tuple[int, int], float] = {}
    for event in events:
        if event["ph"] == "X":
            thread = (event["pid"], event["tid"])
            assert event["ts"] >= ends.get(thread, 0.0) - 1e-6
            ends[thread] = event["ts"] + event["dur"]


def test_batches_of_a_pipeline_lie_side_by_side(tmp_path: Path) -> None:
    changes = {"layout": {"pipeline_parallel_size": 2}, "engine": {"max_num_batched_tokens": 512}}
    path = tmp_path / "timeline.json"
    write_timeline(simulate(Scenario.from_dict(SCENARIO | changes)), path)
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {"steps", "steps 2"}
    test_steps_of_one_thread_do_not_overlap(events)
    test_every_request_is_a_flow_through_steps(events)


def ask_perfetto(trace: Path, *queries: str) -> list[list[dict[str, Any]]]:
    """What Perfetto answers. Events that it cannot place it drops, and counts among its statistics."""
    node, program = shutil.which("node"), ROOT / "build" / "trace-processor"
    if node is None or not (program / "trace_processor.wasm").exists():
        pytest.skip("needs node, and Perfetto's trace processor: .ci/trace-processor build/trace-processor")
    command = [node, str(Path(__file__).with_name("trace_processor.mjs")), str(program), str(trace)]
    done = subprocess.run(command, input=json.dumps(queries), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_perfetto_reads_it_and_drops_nothing(trace: Path, events: list[dict[str, Any]]) -> None:
    steps, processes, tracks, flows, lost = ask_perfetto(
        trace,
        "select count(*) as n from slice where category = 'step'",
        "select name from process",
        "select distinct name from counter_track",
        "select count(*) as n from flow",
        "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
    )
    assert lost == []
    assert steps == [{"n": sum(event["ph"] == "X" for event in events)}]
    assert {"engine 0", "engine 1"} <= {row["name"] for row in processes}
    assert {"sequences running", "sequences waiting", "KV blocks used"} == {row["name"] for row in tracks}
    assert flows == [{"n": 2 * 60}]


def test_perfetto_tells_when_slices_overlap(trace: Path, tmp_path: Path) -> None:
    document = json.loads(trace.read_text())
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            event["dur"] += 5
    path = tmp_path / "overlap.json"
    path.write_text(json.dumps(document))
    [lost] = ask_perfetto(path, "select name from stats where severity in ('error', 'data_loss') and value > 0")
    assert lost == [{"name": "slice_drop_overlapping_complete_event"}]
