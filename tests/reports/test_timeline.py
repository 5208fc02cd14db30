"""timeline.json as Perfetto reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reports.timeline import write_timeline
from sim import Scenario, simulate


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scenario = Scenario.from_dict(
        {
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
    )
    path = tmp_path_factory.mktemp("timeline") / "timeline.json"
    write_timeline(simulate(scenario), path)
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


def test_perfetto_reads_it_without_complaint(trace: Path) -> None:
    api = pytest.importorskip("perfetto.trace_processor", reason="perfetto is not installed")
    try:
        processor = api.TraceProcessor(trace=str(trace))
    except Exception as error:  # the package fetches its program on first use
        pytest.skip(f"the trace processor's program is not at hand: {type(error).__name__}")
    try:

        def ask(query: str) -> list[Any]:
            return list(processor.query(query))

        assert ask("select count(*) n from slice where category = 'step'")[0].n > 100
        assert {"engine 0", "engine 1"} <= {row.name for row in ask("select name from process")}
        assert any("KV blocks" in row.name for row in ask("select name from counter_track"))
        assert ask("select count(*) n from flow")[0].n >= 100
        assert ask("select name from stats where severity in ('error', 'data_loss') and value > 0") == []
    finally:
        processor.close()
