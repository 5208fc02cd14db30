"""Every engine runs every example."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sim import Scenario, simulate
from sim.scenario.presets import NATIVE_NAMES, OWNERS, PRESETS

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [p for p in sorted((ROOT / "examples").glob("*.yaml")) if "model" in yaml.safe_load(p.read_text())]


def played_by(path: Path, preset: str) -> Scenario:
    """The example with another engine: a short run, without the knobs that the engine does not have."""
    document = yaml.safe_load(path.read_text())
    engine = document.get("engine", {})
    names = NATIVE_NAMES.get(engine.get("preset", "vllm"), {})
    given = {names.get(key, key): value for key, value in engine.items()}
    kept = {key: value for key, value in given.items() if preset in OWNERS.get(key, (preset,))}
    if preset != "vllm":
        kept.pop("speculative", None)  # simulated with vLLM's scheduler alone
    document["workload"] = {**document["workload"], "num_requests": 40}
    return Scenario.from_dict({**document, "engine": {**kept, "preset": preset}}, path.parent)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_engine_runs_an_example(path: Path, preset: str) -> None:
    summary = simulate(played_by(path, preset)).summary
    assert summary.requests.completed + summary.requests.rejected == summary.requests.submitted >= 40
    assert summary.requests.completed >= 5  # TGI takes no prompt of more than 4,096 tokens
    assert summary.ttft_s.mean is not None


def test_every_preset_has_an_example_of_its_own() -> None:
    shown = {yaml.safe_load(path.read_text()).get("engine", {}).get("preset", "vllm") for path in EXAMPLES}
    assert shown == set(PRESETS)
