"""Time by change gives the records of one event a step: same decisions, same times, with any step time."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.cluster.fleet import ClientPath, Fleet
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.conformance import CONFIG_DEFAULTS, workload_of
from sim.cost.shape import AffineRun, StepShape
from sim.engine.config import EngineConfig
from sim.records import Columns
from sim.workload import Workload

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from fleets import served
from preset_configs import OTHERS, random_preset_config
from random_scenarios import from_seed

Arrays = dict[str, NDArray[Any]]


class KinkedTimer:
    """Seconds that depend on every aggregate, with a floor (host time) that growing contexts cross."""

    def __init__(self, rng: Random) -> None:
        self.window: int | None = rng.choice([None, 3, 17, 40])
        self.base = rng.uniform(1e-3, 5e-3)
        self.per_token = rng.uniform(1e-5, 1e-4)
        self.per_context = rng.uniform(0, 3e-5)
        self.per_windowed = rng.uniform(0, 3e-5)
        self.floor = rng.choice([0.0, rng.uniform(1e-3, 2e-2)])

    def _affine(self, s: StepShape) -> float:
        attended = s.decode_context * self.per_context + s.decode_context_windowed * self.per_windowed
        pairs = (s.prefill_pairs + 3 * s.prefill_pairs_windowed + s.prefill_context_windowed) * 1e-7
        return self.base + s.tokens * self.per_token + attended + pairs + s.sampled_seqs * 1e-5

    def step(self, shape: StepShape) -> float:
        return max(self.floor, self._affine(shape)) if shape.tokens else 0.0

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        slope = self.per_context * shape.decode_seqs + self.per_windowed * growing_windowed
        hidden = self.floor - self._affine(shape)
        if hidden > 0:
            return AffineRun(self.floor, 0.0, math.floor(hidden / slope) + 1 if slope else math.inf)
        return AffineRun(self._affine(shape), slope, math.inf)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        return {"all": self.step(shape)}


def without_ties(workload: Workload, seed: int) -> Workload:
    """Move every arrival a little: at an exact tie the last bit of a float sum would decide."""
    jitter = np.random.default_rng(seed).uniform(1e-6, 1e-4, len(workload))
    arrival_s = np.where(np.isnan(workload.arrival_s), np.nan, workload.arrival_s + jitter)
    assert workload.think_s is not None
    return replace(workload, arrival_s=arrival_s, think_s=workload.think_s + jitter)


def vllm_config(document: dict[str, Any]) -> EngineConfig:
    config = {**CONFIG_DEFAULTS, **document["config"]}
    config.pop("spec_method")
    config.pop("num_speculative_tokens")
    config["scheduling_policy"] = config.pop("policy")
    return EngineConfig(**config)


def run(document: dict[str, Any], seed: int, *, jump: bool, preset: str = "vllm", load: str = "") -> Fleet | None:
    """The run of a scenario; None where requests of equal rank preempt each other for ever (vLLM too)."""
    rng = Random(seed)
    timer = KinkedTimer(rng)
    config = vllm_config(document) if preset == "vllm" else random_preset_config(preset, rng, document)
    fleet = Fleet(
        without_ties(workload_of(document["requests"], config.block_size), seed),
        [config] * (3 if load else rng.choice([1, 1, 3])),
        timer,
        LeastLoaded(Reports(load)) if load else rng.choice([RoundRobin, LeastLoaded])(),
        path=rng.choice([ClientPath(), ClientPath(0.007, 0.001, 0.002)]),
        jump=jump,
    )
    return served(fleet)


def arrays(table: Columns) -> Arrays:
    return {name: np.asarray(table.column(name)) for name in table.names}


def expanded(table: Columns) -> Arrays:
    """One row a step, of the columns that a run of steps implies, by replica and step."""
    rows = arrays(table)
    steps = rows["steps"]
    index = np.repeat(np.arange(len(steps)), steps)
    i = np.arange(len(index)) - np.repeat(np.cumsum(steps) - steps, steps)
    out = {name: rows[name][index] for name in ("replica", "decode_seqs", "prefill_tokens", "prefill_pairs", "gaps")}
    out["prefill_pairs_windowed"] = rows["prefill_pairs_windowed"][index]
    out["prefill_context_windowed"] = rows["prefill_context_windowed"][index]
    out["sampled_seqs"], out["preempted"] = rows["sampled_seqs"][index], rows["preempted"][index]
    out["running"] = rows["running"][index]
    out["stranded_tokens"], out["shared_tokens"] = rows["stranded_tokens"][index], rows["shared_tokens"][index]
    out["reserved_tokens"] = rows["reserved_tokens"][index]
    out["step"] = rows["step"][index] + i
    out["decode_context"] = rows["decode_context"][index] + i * out["decode_seqs"]
    out["held_tokens"] = rows["held_tokens"][index] + i * out["decode_seqs"]
    out["reserved_tokens"] -= np.where(out["reserved_tokens"], i * out["decode_seqs"], 0)
    first, rise = rows["duration_s"][index], rows["increment_s"][index]
    out["duration_s"] = first + i * rise
    out["start_s"] = rows["start_s"][index] + i * first + rise * (i * (i - 1) / 2)
    order = np.lexsort((out["step"], out["replica"]))
    return {name: values[order] for name, values in out.items()}


def assert_equal(got: Arrays, expected: Arrays) -> None:
    for name, values in expected.items():
        if name.endswith("_s"):
            np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], values, err_msg=name)


def assert_same_records(jumped: Fleet, stepped: Fleet) -> None:
    assert_equal(arrays(jumped.recorder.requests.sorted_by("id")), arrays(stepped.recorder.requests.sorted_by("id")))
    assert_equal(expanded(jumped.recorder.steps), expanded(stepped.recorder.steps))
    np.testing.assert_allclose(irregular_gaps(jumped), irregular_gaps(stepped), rtol=1e-9)
    assert jumped.engine_steps == stepped.engine_steps
    assert jumped.events <= stepped.events


def irregular_gaps(fleet: Fleet) -> NDArray[np.float64]:
    recorder = fleet.recorder
    return np.sort(np.repeat(np.asarray(recorder.gaps_s), np.asarray(recorder.gap_tokens)))


@pytest.mark.parametrize("seed", range(400))
def test_jumps_change_no_record(seed: int) -> None:
    document = from_seed(100_000 + seed)
    jumped, stepped = run(document, seed, jump=True), run(document, seed, jump=False)
    if jumped is None or stepped is None:
        assert jumped is stepped
        return
    assert_same_records(jumped, stepped)


@pytest.mark.parametrize("preset", OTHERS)
@pytest.mark.parametrize("seed", range(120))
def test_jumps_change_no_record_of_any_engine(seed: int, preset: str) -> None:
    document = from_seed(400_000 + seed)
    jumped, stepped = (run(document, seed, jump=jump, preset=preset) for jump in (True, False))
    assert jumped is not None
    assert stepped is not None
    assert_same_records(jumped, stepped)


@pytest.mark.parametrize("load", ["tokens", "kv"])
@pytest.mark.parametrize("preset", OTHERS)
@pytest.mark.parametrize("seed", range(20))
def test_a_router_sees_the_same_loads(seed: int, preset: str, load: str) -> None:
    document = from_seed(400_000 + seed)
    jumped, stepped = (run(document, seed, jump=jump, preset=preset, load=load) for jump in (True, False))
    assert jumped is not None
    assert stepped is not None
    assert_same_records(jumped, stepped)


@pytest.mark.parametrize("seed", range(60))
def test_every_token_has_its_gap(seed: int) -> None:
    fleet = run(from_seed(200_000 + seed), seed, jump=True)
    assert fleet is not None
    requests, steps = arrays(fleet.recorder.requests), arrays(fleet.recorder.steps)
    tokens = requests["output_tokens"][requests["status"] == 0]
    assert (steps["gaps"] * steps["steps"]).sum() + len(fleet.recorder.gaps_s) == (tokens - 1).sum()


@pytest.mark.parametrize("seed", range(60))
def test_gaps_add_up_to_the_decode_time(seed: int) -> None:
    fleet = run(from_seed(300_000 + seed), seed, jump=True)
    assert fleet is not None
    requests, rows = arrays(fleet.recorder.requests), expanded(fleet.recorder.steps)
    done = requests["status"] == 0
    path = fleet.recorder
    delays = (path._last_delay_s - path._first_delay_s) * done.sum()
    spans = (requests["finish_s"] - requests["first_token_s"])[done].sum() - delays
    gaps = (rows["gaps"] * rows["duration_s"]).sum() + sum(fleet.recorder.gaps_s)
    assert gaps == pytest.approx(spans, rel=1e-9, abs=1e-9)
