"""Ranks in lock-step: by hand, and against one event a step."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from fleets import assert_gaps_and_blocks_add_up, assert_same_requests, served

from sim.cluster.fleet import Fleet
from sim.cluster.lifecycle import Change
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.cost import LinearStepTimer
from sim.cost.joint import JointSteps
from sim.cost.shape import AffineRun, StepShape
from sim.engine.config import EngineConfig
from sim.workload import Workload

US = 1e-6
CONFIG = EngineConfig(num_gpu_blocks=101, max_num_seqs=8, max_num_batched_tokens=256, async_scheduling=False)


def load(arrivals: list[float], prompt: Any = 16, output: Any = 4) -> Workload:
    n = len(arrivals)
    return Workload(np.array(arrivals), np.full(n, prompt), np.full(n, output))


def run(
    workload: Workload, config: EngineConfig = CONFIG, ranks: int = 2, per_token_us: int = 10, **more: Any
) -> Fleet:
    timer = JointSteps(LinearStepTimer(1000, per_token_us, 0))
    fleet = Fleet(workload, [config], timer, RoundRobin(), ranks=ranks, together=True, tick_s=US, **more)
    fleet.run()
    return fleet


def us(fleet: Fleet, name: str) -> list[int]:
    return [round(value / US) for value in fleet.recorder.requests.sorted_by("id").column(name)]


@pytest.mark.parametrize("jump", [True, False])
def test_the_slowest_rank_sets_the_step(jump: bool) -> None:
    """100 prompt tokens on rank 0 and 16 on rank 1: both prompts take 2,000 us, decodes 1,010."""
    fleet = run(load([0.0, 0.0], prompt=[100, 16]), jump=jump)
    assert us(fleet, "replica") == [round(rank / US) for rank in (0, 1)]
    assert us(fleet, "first_token_s") == [2000, 2000]
    assert us(fleet, "finish_s") == [5030, 5030]


@pytest.mark.parametrize("jump", [True, False])
def test_a_prefill_on_one_rank_holds_up_the_decodes_of_the_others(jump: bool) -> None:
    fleet = run(load([0.0, 0.0015], prompt=[16, 200], output=[6, 1]), jump=jump)
    assert us(fleet, "first_token_s") == [1160, 2170 + 3000]
    assert us(fleet, "finish_s")[0] == 1160 + 1010 + 3000 + 3 * 1010


@pytest.mark.parametrize("jump", [True, False])
def test_an_idle_rank_costs_nothing_and_records_nothing(jump: bool) -> None:
    fleet = run(load([0.0], output=20), jump=jump)
    assert us(fleet, "finish_s") == [1160 + 19 * 1010]
    assert set(fleet.recorder.steps.column("replica")) == {0}


def test_each_rank_has_its_own_cache_and_queue() -> None:
    """One seat a rank: the third and fourth request wait on their own rank."""
    fleet = run(load([0.0] * 4, output=[10, 2, 2, 2]), replace(CONFIG, max_num_seqs=1))
    assert [int(r) for r in fleet.recorder.requests.sorted_by("id").column("replica")] == [0, 1, 0, 1]
    scheduled = us(fleet, "scheduled_s")
    assert scheduled[3] < scheduled[2]


def test_an_engine_fails_with_all_its_ranks() -> None:
    timer = JointSteps(LinearStepTimer(1000, 0, 0))
    fleet = Fleet(
        load([0.0] * 4, output=10),
        [CONFIG] * 2,
        timer,
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


class Kinked:
    """Joint times with every aggregate, host time as a floor, and a part that all ranks share."""

    def __init__(self, rng: Random) -> None:
        self.window: int | None = rng.choice([None, None, 17])
        self.base, self.per_token = rng.uniform(1e-3, 5e-3), rng.uniform(1e-5, 1e-4)
        self.per_context, self.per_windowed = rng.uniform(0, 3e-5), rng.uniform(0, 3e-5)
        self.shared = rng.uniform(0, 1e-4)
        self.floor = rng.choice([0.0, rng.uniform(1e-3, 1e-2)])

    def _own(self, s: StepShape) -> float:
        attended = s.decode_context * self.per_context + s.decode_context_windowed * self.per_windowed
        return self.base + s.tokens * self.per_token + attended + s.prefill_pairs * 1e-7

    def joint(self, shapes: Sequence[StepShape]) -> float:
        return max(self.floor, max(map(self._own, shapes)) + self.shared * sum(shape.tokens for shape in shapes))

    def joint_run(self, shapes: Sequence[StepShape], growing: Sequence[int]) -> AffineRun:
        slopes = [
            s.decode_seqs * self.per_context + g * self.per_windowed for s, g in zip(shapes, growing, strict=True)
        ]
        lines = list(zip(map(self._own, shapes), slopes, strict=True))
        own, slope = max(lines)
        steps = math.inf
        for start, rise in lines:
            if rise > slope:
                steps = min(steps, math.floor((own - start) / (rise - slope)) + 1)
        first = own + self.shared * sum(shape.tokens for shape in shapes)
        if first >= self.floor or slope <= 0:
            return AffineRun(max(first, self.floor), slope if first >= self.floor else 0.0, steps)
        return AffineRun(self.floor, 0.0, min(steps, math.floor((self.floor - first) / slope) + 1))

    def step(self, shape: StepShape) -> float:
        raise AssertionError("ranks step together")

    decode_run = decode_times = breakdown = step


def random_run(seed: int, jump: bool, calm: bool = False) -> Fleet | None:
    rng = Random(seed)
    n = rng.randint(3, 60)
    arrivals = np.cumsum([rng.expovariate(1 / rng.choice([1e-3, 1e-2, 0.1])) for _ in range(n)])
    prompts = np.array([rng.randint(1, rng.choice([20, 200])) for _ in range(n)])
    workload = Workload(arrivals, prompts, np.array([rng.choice([1, 2, rng.randint(1, 80)]) for _ in range(n)]))
    config = EngineConfig(
        num_gpu_blocks=rng.choice([20, 30, 60, 400]),
        max_num_seqs=rng.choice([2, 4, 16]),
        max_num_batched_tokens=rng.choice([16, 64, 300]),
        enable_prefix_caching=rng.random() < 0.5,
        async_scheduling=rng.random() < 0.5,
        watermark=rng.choice([0.0, 0.1]),
    )
    changes = []
    if rng.random() < 0.3 and not calm:
        fails = float(rng.uniform(0, arrivals[-1]))
        changes = [Change(fails, "fail", 0), Change(fails + rng.uniform(0, 0.1), "recover", 0)]
    router = rng.choice([RoundRobin, LeastLoaded])()
    timer: Any = Kinked(rng)
    fleet = Fleet(
        workload,
        [config] * (1 if calm else rng.choice([1, 2])),
        timer,
        router,
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


@pytest.mark.parametrize("seed", range(30))
def test_all_ranks_of_an_engine_start_and_end_their_steps_together(seed: int) -> None:
    fleet = random_run(seed, False, calm=True)
    if fleet is None:
        return
    steps = fleet.recorder.steps
    spans = sorted(zip(steps.column("start_s"), steps.column("duration_s"), strict=True))
    for (start, lasted), (other, _) in itertools.pairwise(spans):
        assert other == start or other >= start + lasted - 1e-12
