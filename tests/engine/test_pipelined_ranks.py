"""Ranks in lock-step over pipeline stages: by hand, in closed form, and against one event a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from fleets import assert_gaps_and_blocks_add_up, assert_same_requests, served
from preset_configs import random_pipeline_config

from sim.cluster.fleet import Fleet
from sim.cluster.lifecycle import Change
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.cost.joint import JointSteps
from sim.cost.joint_pipeline import JointPipeline
from sim.cost.shape import AffineRun, StepShape
from sim.engine.config import EngineConfig
from sim.workload import Workload

US = 1e-6
CONFIG = EngineConfig(
    num_gpu_blocks=10_001,
    max_num_seqs=64,
    max_num_batched_tokens=64,
    max_model_len=100_000,
    async_scheduling=False,
    pipeline_stages=2,
)


class PerToken:
    """A stage that takes so long, and longer for each token."""

    window = None

    def __init__(self, ticks: float, per_token: float = 0) -> None:
        self.ticks, self.per_token = ticks, per_token

    def step(self, shape: StepShape) -> float:
        return self.ticks + self.per_token * shape.tokens if shape.tokens else 0

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        return AffineRun(self.step(shape), 0, math.inf)

    def decode_times(self, shape: StepShape, context: Any, windowed: Any) -> Any:
        return np.full(len(context), self.step(shape))

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        return {"all": self.step(shape)}


def timer(
    *stages: float, per_token: float = 0, hop: float = 0, host: float = 0, dummies_block: bool = False
) -> JointPipeline:
    parts = [JointSteps(PerToken(ticks, per_token)) for ticks in stages]
    return JointPipeline(parts, (host, 0), [lambda tokens: hop] * (len(stages) - 1), dummies_block=dummies_block)


def run(workload: Workload, clock: JointPipeline, config: EngineConfig = CONFIG, ranks: int = 2, **more: Any) -> Fleet:
    fleet = Fleet(workload, [config], clock, RoundRobin(), ranks=ranks, together=True, tick_s=US, **more)
    fleet.run()
    return fleet


def load(n: int, prompt: Any = 64, output: Any = 5) -> Workload:
    return Workload(np.zeros(n), np.full(n, prompt), np.full(n, output))


def us(fleet: Fleet, name: str) -> list[int]:
    return [round(value / US) for value in fleet.recorder.requests.sorted_by("id").column(name)]


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("jump", [True, False])
def test_one_request_takes_every_stage_and_every_hop_a_token(jump: bool, block: bool) -> None:
    clock = timer(100, 200, 300, hop=7, host=3, dummies_block=block)
    fleet = run(load(1), clock, replace(CONFIG, pipeline_stages=3), jump=jump)
    step = 100 + 200 + 300 + 2 * 7 + 3
    assert us(fleet, "finish_s") == [5 * step]
    assert set(fleet.recorder.steps.column("replica")) == {0}


@pytest.mark.parametrize("jump", [True, False])
def test_the_slowest_rank_sets_the_time_in_every_stage(jump: bool) -> None:
    """Prompts of 60 and 10 tokens: both stages take as long as 60 tokens, decodes as one."""
    fleet = run(load(2, prompt=[60, 10], output=3), timer(100, 300, per_token=1), jump=jump)
    assert us(fleet, "first_token_s") == [160 + 360] * 2
    assert us(fleet, "finish_s") == [160 + 360 + 2 * (101 + 301)] * 2


@pytest.mark.parametrize("block", [True, False])
@pytest.mark.parametrize("jump", [True, False])
def test_a_second_round_follows_through_the_stages(jump: bool, block: bool) -> None:
    """Budget for one prompt a batch, two prompts a rank: the second round enters stage one as the first leaves it."""
    fleet = run(load(4), timer(100, 100, dummies_block=block), jump=jump)
    assert us(fleet, "first_token_s") == [200, 200, 300, 300]
    assert us(fleet, "finish_s") == [1000, 1000, 1100, 1100]


@pytest.mark.parametrize("block", [True, False])
def test_the_slowest_stage_sets_the_pace(block: bool) -> None:
    """Four rounds in flight in four stages: one leaves every 300."""
    config = replace(CONFIG, pipeline_stages=4)
    fleet = run(load(12, output=400), timer(100, 300, 200, 100, dummies_block=block), config, ranks=3)
    rate = 12 * 399 / (max(us(fleet, "finish_s")) - us(fleet, "first_token_s")[0])
    assert rate == pytest.approx(3 / 300, rel=0.01)


@pytest.mark.parametrize(("block", "expected"), [(False, [200, 200, 300]), (True, [200, 200, 400])])
def test_a_dummy_holds_up_the_next_round_where_the_engine_waits_for_it(block: bool, expected: list[int]) -> None:
    """Rank 0 has a second prompt, rank 1 a dummy in its place: vLLM waits for what rank 1 has in flight."""
    fleet = run(load(3, output=1), timer(100, 100, dummies_block=block))
    assert us(fleet, "first_token_s") == expected


class ToTheFirst:
    """Everything to one rank."""

    def __init__(self) -> None:
        self.reports = Reports()

    def choose(self, request: Any, replicas: Any) -> int:
        return 0

    def forget(self, replica: Any) -> None:
        pass


@pytest.mark.parametrize(("block", "expected"), [(False, [200, 300]), (True, [200, 400])])
def test_no_round_enters_before_a_blocking_dummy_is_through(block: bool, expected: list[int]) -> None:
    """Both prompts are on rank 0, and rank 1 runs a dummy in either round."""
    clock = timer(100, 100, dummies_block=block)
    fleet = Fleet(load(2, output=1), [CONFIG], clock, ToTheFirst(), ranks=2, together=True, tick_s=US)
    fleet.run()
    assert us(fleet, "first_token_s") == expected


def test_an_engine_fails_with_all_its_ranks() -> None:
    fleet = Fleet(
        load(4, output=10),
        [CONFIG] * 2,
        timer(500, 500),
        RoundRobin(),
        ranks=2,
        together=True,
        changes=[Change(3500, "fail", 0)],
        max_retries=1,
        tick_s=US,
    )
    fleet.run()
    requests = fleet.recorder.requests.sorted_by("id")
    assert list(requests.column("attempts")) == [2, 2, 1, 1]
    assert list(requests.column("replica")) == [2, 3, 2, 3]


# -- every gap, every block, every step


class Kinked:
    """A joint stage with every aggregate, a part that all ranks share, and a window."""

    def __init__(self, rng: Random, window: int | None) -> None:
        self.window = window
        self.base, self.per_token = rng.uniform(1e-3, 5e-3), rng.uniform(1e-5, 1e-4)
        self.per_context, self.per_windowed = rng.uniform(0, 3e-5), rng.uniform(0, 3e-5)
        self.shared = rng.uniform(0, 1e-4)

    def _own(self, s: StepShape) -> float:
        attended = s.decode_context * self.per_context + s.decode_context_windowed * self.per_windowed
        return self.base + s.tokens * self.per_token + attended + s.prefill_pairs * 1e-7

    def joint(self, shapes: Sequence[StepShape]) -> float:
        return max(map(self._own, shapes)) + self.shared * sum(shape.tokens for shape in shapes)

    def joint_run(self, shapes: Sequence[StepShape], growing: Sequence[int]) -> AffineRun:
        lines = [
            (self._own(s), s.decode_seqs * self.per_context + g * self.per_windowed)
            for s, g in zip(shapes, growing, strict=True)
        ]
        own, slope = max(lines)
        steps = math.inf
        for start, rise in lines:
            if rise > slope:
                steps = min(steps, math.floor((own - start) / (rise - slope)) + 1)
        return AffineRun(own + self.shared * sum(shape.tokens for shape in shapes), slope, steps)

    def step(self, shape: StepShape) -> float:
        raise AssertionError("ranks step together")

    decode_run: Any = step
    decode_times: Any = step
    breakdown: Any = step


def random_run(seed: int, jump: bool, calm: bool = False) -> Fleet | None:
    rng = Random(seed)
    n, stages = rng.randint(3, 60), rng.choice([2, 2, 3, 4])
    arrivals = np.cumsum([rng.expovariate(1 / rng.choice([1e-3, 1e-2, 0.1])) for _ in range(n)])
    prompts = np.array([rng.randint(1, rng.choice([20, 200])) for _ in range(n)])
    equal = rng.choice([None, 7, 40])  # answers of one length end together, on several ranks
    outputs = np.array([equal or rng.choice([1, 2, rng.randint(1, 60)]) for _ in range(n)])
    config = random_pipeline_config(
        rng,
        ["vllm", "vllm", "sglang", "tensorrt-llm"],
        num_gpu_blocks=rng.choice([20, 30, 60, 400]),
        max_num_seqs=rng.choice([2, 4, 16]),
        max_num_batched_tokens=rng.choice([16, 64, 300]),
        enable_prefix_caching=rng.random() < 0.5,
        watermark=rng.choice([0.0, 0.1]),
        scheduler_reserve_full_isl=rng.random() < 0.7,
        async_scheduling=False,
        pipeline_stages=stages,
    )
    changes = []
    if rng.random() < 0.3 and not calm:
        fails = float(rng.uniform(0, arrivals[-1]))
        changes = [Change(fails, "fail", 0), Change(fails + rng.uniform(0, 0.1), "recover", 0)]
    window = rng.choice([None, None, 17])
    clock = JointPipeline(
        [Kinked(rng, window) for _ in range(stages)],
        (rng.choice([0.0, 1e-3]), 1e-5),
        [lambda tokens: 1e-4 + tokens * 1e-6] * (stages - 1),
        dummies_block=rng.random() < 0.5,
    )
    fleet = Fleet(
        Workload(arrivals, prompts, outputs),
        [config] * (1 if calm else rng.choice([1, 2])),
        clock,
        rng.choice([RoundRobin, LeastLoaded])(),
        ranks=rng.choice([2, 3, 5]),
        together=True,
        changes=changes,
        max_retries=5,
        jump=jump,
    )
    return served(fleet)


@pytest.mark.parametrize("seed", range(150))
def test_jumps_change_no_record(seed: int) -> None:
    assert_same_requests(random_run(seed, True), random_run(seed, False))


@pytest.mark.parametrize("seed", range(60))
def test_every_gap_and_every_block_is_accounted_for(seed: int) -> None:
    fleet = random_run(seed, True)
    if fleet is None or max(fleet.recorder.requests.column("attempts")) > 1:
        return
    assert_gaps_and_blocks_add_up(fleet)


@pytest.mark.parametrize("seed", range(40))
def test_batches_of_one_round_share_its_span_and_no_more_are_in_flight_than_stages(seed: int) -> None:
    fleet = random_run(seed, False, calm=True)
    if fleet is None:
        return
    steps = fleet.recorder.steps
    start = np.asarray(steps.column("start_s"))
    spans = sorted({(a, a + b) for a, b in zip(start, steps.column("duration_s"), strict=True)})
    assert len({end for _, end in spans}) == len(spans)
    for moment, _ in spans:
        in_flight = sum(begin < moment + 1e-12 and end > moment + 1e-9 for begin, end in spans)
        assert in_flight <= fleet.replicas[0].scheduler.config.pipeline_stages
