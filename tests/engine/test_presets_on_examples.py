"""Every engine runs every example, or says why it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from sim import InputError, Scenario, simulate
from sim.scenario.presets import NATIVE_NAMES, OWNERS, PRESETS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.yaml")) if "model" in yaml.safe_load(p.read_text())]


def played_by(path: Path, preset: str, **keys: Any) -> Scenario:
    """The example with another engine: a short run, without the knobs that the engine does not have."""
    document = yaml.safe_load(path.read_text())
    engine = document.get("engine", {})
    names = NATIVE_NAMES.get(engine.get("preset", "vllm"), {})
    given = {names.get(key, key): value for key, value in engine.items()}
    kept = {key: value for key, value in given.items() if preset in OWNERS.get(key, (preset,))}
    if preset != "vllm":
        kept.pop("speculative", None)  # simulated with vLLM's scheduler alone
    document["workload"] = {**document["workload"], "num_requests": 40}
    return Scenario.from_dict({**document, "engine": {**kept, "preset": preset, **keys}}, path.parent)


def refusal(path: Path, preset: str) -> str | None:
    """The key for which the example is refused with this engine."""
    document = yaml.safe_load(path.read_text())
    layout, engine = document.get("layout", {}), document.get("engine", {})
    if layout.get("data_parallel_size", 1) > 1 and preset in ("tgi", "orca", "static"):
        return "layout.data_parallel_size"
    if layout.get("pipeline_parallel_size", 1) > 1 and preset in ("tgi", "static"):
        return "layout.pipeline_parallel_size"
    if document.get("cluster", {}).get("disaggregation") and preset in ("tgi", "orca", "static"):
        return "cluster.disaggregation"
    for key, usual in (("kv_offload", None), ("preemption", "recompute")):
        if engine.get(key, usual) != usual and preset != "vllm":
            return f"engine.{key}"
    return None


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_engine_runs_an_example(path: Path, preset: str) -> None:
    if refused := refusal(path, preset):
        with pytest.raises(InputError, match=preset) as problem:
            simulate(played_by(path, preset))
        assert problem.value.field == refused
        assert problem.value.remedy
        return
    summary = simulate(played_by(path, preset)).summary
    assert summary.requests.completed + summary.requests.rejected == summary.requests.submitted >= 40
    assert summary.requests.completed >= 5  # TGI takes no prompt of more than 4,096 tokens
    assert summary.ttft_s.mean is not None


@pytest.mark.parametrize("preset", ["vllm", "orca", "static"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_over_contiguous_memory(path: Path, preset: str) -> None:
    document = yaml.safe_load(path.read_text())
    engine, layout = document.get("engine", {}), document.get("layout", {})
    keys: dict[str, Any] = {"kv_allocation": "contiguous", "kv_reservation": "request", "block_size": 1}
    if preset == "vllm":
        keys["enable_prefix_caching"] = False
    spread = preset != "vllm" and layout.get("data_parallel_size", 1) > 1
    spread |= preset == "static" and layout.get("pipeline_parallel_size", 1) > 1
    apart = document.get("cluster", {}).get("disaggregation")
    beside = (
        engine.get("kv_offload") or engine.get("kv_retention") or engine.get("preemption", "recompute") != "recompute"
    )
    if spread or apart or beside or (preset == "vllm" and engine.get("speculative")):
        with pytest.raises(InputError) as problem:
            simulate(played_by(path, preset, **keys))
        assert problem.value.remedy
        return
    summary = simulate(played_by(path, preset, **keys)).summary
    assert summary.requests.completed >= 5
    assert summary.requests.preemptions == 0
    assert summary.kv.reserved_unused is not None
    assert summary.kv.reserved_unused > 0


def test_every_preset_has_an_example_of_its_own() -> None:
    shown = {yaml.safe_load(path.read_text()).get("engine", {}).get("preset", "vllm") for path in EXAMPLES}
    assert shown == set(PRESETS)
