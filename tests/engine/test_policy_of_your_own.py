"""The page on engines says how to add a policy; its example is run here as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from sim import InputError, Scenario, simulate
from sim.engine.policies import POLICIES, add_policy, scheduler_for
from sim.engine.policies.orca import OrcaScheduler
from sim.scenario import EngineSpec
from sim.scenario.presets import _LIKE, PRESETS, family

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _forget_added_policies() -> Any:
    before = [dict(table) for table in (POLICIES, PRESETS, _LIKE)]
    yield
    for table, content in zip((POLICIES, PRESETS, _LIKE), before, strict=True):
        table.clear()
        table.update(content)


def test_the_example_on_the_page_runs_and_does_what_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "engines.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.S)
    assert example is not None
    monkeypatch.chdir(ROOT)
    exec(compile(example.group(1), "docs/engines.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) < 1
    busy = ["workload.arrivals.rate_per_s=9", "engine.max_num_seqs=32", "workload.num_requests=300"]
    scenario = Scenario.from_file(ROOT / "examples" / "llama-70b-h100.yaml").with_overrides(busy)
    plain = simulate(scenario)
    shortest = simulate(scenario.with_overrides(["engine.preset=shortest-first", "engine.max_num_seqs=32"]))
    assert shortest.summary.requests.completed == 300
    assert shortest.summary.queue_s.p50 < plain.summary.queue_s.p50 / 2
    assert shortest.summary.queue_s.max > plain.summary.queue_s.max
    exact = simulate(scenario.with_overrides(["engine.preset=shortest-first", "engine.max_num_seqs=32"]), exact=True)
    assert exact.summary.e2e_s.model_dump() == pytest.approx(shortest.summary.e2e_s.model_dump(), rel=1e-9)


def test_an_added_policy_has_the_keys_of_the_engine_it_is_like() -> None:
    add_policy("greedy", OrcaScheduler, like="static", max_num_seqs=7)
    spec = EngineSpec.parse({"preset": "greedy", "max_queue_delay_s": 1.0})
    assert (spec.max_num_seqs, spec.max_queue_delay_s, family("greedy")) == (7, 1.0, "static")
    with pytest.raises(InputError, match="knob of sglang, and the preset is greedy"):
        EngineSpec.parse({"preset": "greedy", "schedule_policy": "lpm"})


def test_a_preset_that_nobody_plays_is_refused() -> None:
    from preset_configs import preset_config

    PRESETS["nobody"] = PRESETS["vllm"]
    with pytest.raises(InputError, match="no policy plays 'nobody'"):
        scheduler_for(preset_config("nobody", 10), None)
