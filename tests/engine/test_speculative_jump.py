"""With drafts too, time by change gives the records of one event a step, with any step time and any acceptance."""

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
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.conformance import engine_of, workload_of
from sim.cost.joint import JointSteps
from sim.cost.joint_pipeline import JointPipeline
from sim.cost.pipeline import PipelineTimer
from sim.cost.shape import AffineRun, StepShape
from sim.engine.config import EngineConfig
from sim.engine.speculative_acceptance import BetaSurvival, DrawnAcceptance, Survival, SurvivalByPosition
from sim.engine.stall import SimulationStalledError
from sim.records import Columns

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
from random_scenarios import from_seed

Arrays = dict[str, NDArray[Any]]


class UnevenTimer:
    """Seconds that depend on every aggregate, with a floor (host time) that growing contexts cross."""

    def __init__(self, rng: Random) -> None:
        self.window: int | None = rng.choice([None, 3, 17, 40])
        self.base, self.floor = rng.uniform(1e-3, 5e-3), rng.choice([0.0, rng.uniform(1e-3, 2e-2)])
        self.per_token, self.per_draft = rng.uniform(1e-5, 1e-4), rng.uniform(1e-6, 1e-4)
        self.per_context, self.per_windowed = rng.uniform(0, 3e-5), rng.uniform(0, 3e-5)

    def step(self, s: StepShape) -> float:
        if not s.tokens:
            return 0.0
        own = s.tokens * self.per_token + s.draft_tokens * self.per_draft + s.sampled_seqs * 1e-5
        pairs = (s.prefill_pairs + 3 * s.prefill_pairs_windowed + s.prefill_context_windowed) * 1e-7
        attended = s.decode_context * self.per_context + s.decode_context_windowed * self.per_windowed
        return max(self.floor, self.base + own + pairs + attended)

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        raise NotImplementedError("verify steps do not lie on a line")

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        rest = self.base + shape.tokens * self.per_token + shape.draft_tokens * self.per_draft
        rest += shape.sampled_seqs * 1e-5
        return np.maximum(self.floor, rest + context * self.per_context + windowed * self.per_windowed)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        return {"all": self.step(shape)}


def acceptance(rng: Random, drafts: int, seed: int) -> DrawnAcceptance:
    rate = rng.uniform(0.05, 0.95)
    models: list[Survival] = [
        SurvivalByPosition.constant(rate, drafts),
        SurvivalByPosition.by_position([rate ** (1 + i / 3) for i in range(drafts)]),
        SurvivalByPosition.measured([rng.randint(0, drafts) for _ in range(30)], drafts),
        BetaSurvival(rate, 4.0, drafts),
    ]
    return DrawnAcceptance(seed, rng.choice(models))


def drafting(document: dict[str, Any], rng: Random, seed: int) -> EngineConfig:
    """The engine of a random scenario with a random acceptance, and drafts switched off now and then."""
    config = engine_of(document["config"])
    assert config.speculation is not None
    drafts = config.speculation.num_speculative_tokens
    speculation = replace(
        config.speculation,
        acceptance=acceptance(rng, drafts, seed),
        disable_by_batch_size=rng.choice([None, None, 2, 3, 5]),
    )
    return replace(config, speculation=speculation)


def clock(rng: Random, ranks: int, stages: int) -> Any:
    """Step times of an engine of so many ranks and stages."""
    parts: list[Any] = [UnevenTimer(rng)] * stages
    if ranks > 1:
        parts = [JointSteps(part) for part in parts]
    if stages == 1:
        return parts[0]
    host, hops = (1e-4, 1e-5), [lambda tokens: 1e-5 * tokens] * (stages - 1)
    if ranks == 1:
        return PipelineTimer(parts, host, hops)
    return JointPipeline(parts, host, hops, dummies_block=rng.random() < 0.5)


def run(seed: int, *, jump: bool, ranks: int = 1, stages: int = 1) -> Fleet | None:
    """The run of a scenario; None where requests of equal rank preempt each other for ever."""
    rng = Random(seed)
    document = from_seed(500_000 + seed, speculative=True)
    workload = workload_of(document["requests"], document["config"]["block_size"])
    jitter = np.random.default_rng(seed).uniform(1e-6, 1e-4, len(workload))  # at a tie the last bit would decide
    assert workload.think_s is not None
    workload = replace(workload, arrival_s=workload.arrival_s + jitter, think_s=workload.think_s + jitter)
    fleet = Fleet(
        workload,
        [replace(drafting(document, rng, seed), pipeline_stages=stages)] * rng.choice([1, 1, 3]),
        clock(rng, ranks, stages),
        rng.choice([RoundRobin, LeastLoaded])(),
        path=rng.choice([ClientPath(), ClientPath(0.007, 0.001, 0.002)]),
        jump=jump,
        ranks=ranks,
        together=ranks > 1,
    )
    try:
        fleet.run()
    except SimulationStalledError:
        return None
    return fleet


def arrays(table: Columns) -> Arrays:
    return {name: np.asarray(table.column(name)) for name in table.names}


def by_step(table: Columns) -> Arrays:
    rows = arrays(table)
    order = np.lexsort((rows["step"], rows["replica"]))
    return {name: values[order] for name, values in rows.items()}


def merged(single: Arrays, runs: Arrays) -> Arrays:
    """Rows of single steps put together as ``runs`` has them."""
    assert (single["steps"] == 1).all()
    first = np.cumsum(runs["steps"]) - runs["steps"]
    last = first + runs["steps"] - 1
    out = {name: values[first] for name, values in single.items()}
    out["steps"] = runs["steps"]
    out["duration_s"] = np.add.reduceat(single["duration_s"], first) / runs["steps"]
    out["accepted_tokens"] = np.add.reduceat(single["accepted_tokens"], first)
    out["used_blocks_end"] = single["used_blocks_end"][last]
    out["gaps"] = runs["gaps"]  # compared apart: those of unequal steps are kept beside the rows
    return out


def all_gaps(fleet: Fleet) -> NDArray[Any]:
    """Every gap between two chunks of tokens of a request, sorted."""
    rows, recorder = arrays(fleet.recorder.steps), fleet.recorder
    gaps = np.concatenate([rows["duration_s"], np.asarray(recorder.gaps_s)])
    counts = np.concatenate([rows["gaps"], np.asarray(recorder.gap_tokens, int)])
    return np.sort(np.repeat(gaps, counts))


def assert_equal(got: Arrays, expected: Arrays) -> None:
    for name, values in expected.items():
        if name.endswith("_s"):
            np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-12, err_msg=name)
        else:
            np.testing.assert_array_equal(got[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("start", "spread"),
    [(n, {}) for n in range(0, 300, 10)]
    + [(n, {"ranks": 3}) for n in range(0, 100, 10)]
    + [(n, {"stages": 2 + n % 3}) for n in range(0, 100, 10)]
    + [(n, {"ranks": 2, "stages": 2}) for n in range(0, 100, 10)],
)
def test_jumps_change_no_record(start: int, spread: dict[str, int]) -> None:
    wakes = {True: 0, False: 0}
    for seed in range(start, start + 10):
        jumped, stepped = (run(seed, jump=jump, **spread) for jump in (True, False))
        if jumped is None or stepped is None:
            assert jumped is stepped
            continue
        assert_equal(
            arrays(jumped.recorder.requests.sorted_by("id")), arrays(stepped.recorder.requests.sorted_by("id"))
        )
        runs = by_step(jumped.recorder.steps)
        assert_equal(runs, merged(by_step(stepped.recorder.steps), runs))
        np.testing.assert_allclose(all_gaps(jumped), all_gaps(stepped), rtol=1e-9)
        wakes[True] += jumped.events
        wakes[False] += stepped.events
    assert wakes[True] < wakes[False]


@pytest.mark.parametrize("seed", range(40))
def test_every_output_token_is_counted_once(seed: int) -> None:
    fleet = run(seed, jump=True)
    assert fleet is not None
    requests, steps = arrays(fleet.recorder.requests), arrays(fleet.recorder.steps)
    given = (steps["sampled_seqs"] * steps["steps"] + steps["accepted_tokens"]).sum()
    assert given == requests["output_tokens"][requests["status"] == 0].sum()
    assert (steps["accepted_tokens"] <= steps["draft_tokens"] * steps["steps"]).all()


@pytest.mark.parametrize("seed", range(40))
def test_gaps_between_steps_that_gave_tokens_add_up_to_the_decode_time(seed: int) -> None:
    fleet = run(seed, jump=True)
    assert fleet is not None
    requests, steps = arrays(fleet.recorder.requests), arrays(fleet.recorder.steps)
    done = requests["status"] == 0
    recorder = fleet.recorder
    delays = (recorder._last_delay_s - recorder._first_delay_s) * done.sum()
    spans = (requests["finish_s"] - requests["first_token_s"])[done].sum() - delays
    gaps = all_gaps(fleet)
    assert gaps.sum() == pytest.approx(spans, rel=1e-9, abs=1e-9)
    assert len(gaps) == (steps["sampled_seqs"] * steps["steps"]).sum() - done.sum()


def test_more_drafts_that_are_accepted_take_fewer_steps() -> None:
    steps = [_one(rate).engine_steps for rate in (0.0, 0.5, 1.0)]
    assert steps[0] == 200  # nothing accepted: a step a token
    assert steps[2] == 1 + math.ceil(199 / 5)
    assert steps[2] < steps[1] < steps[0]


def _one(rate: float) -> Fleet:
    """One request of 200 tokens with 4 drafts a step."""
    document: dict[str, Any] = {
        "config": {"spec_method": "ngram", "num_speculative_tokens": 4},
        "requests": [{"prompt_len": 10, "output_len": 200, "arrival_us": 0}],
    }
    config = engine_of(document["config"])
    assert config.speculation is not None
    drawn = DrawnAcceptance(0, SurvivalByPosition.constant(rate, 4))
    config = replace(config, speculation=replace(config.speculation, acceptance=drawn))
    fleet = Fleet(workload_of(document["requests"], 16), [config], UnevenTimer(Random(1)), RoundRobin())
    fleet.run()
    return fleet
