"""Batches in a pipeline: by hand, in closed form, and against one event a step."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from fleets import assert_gaps_and_blocks_add_up, assert_same_requests, served
from preset_configs import preset_config, random_pipeline_config

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.cost import LinearStepTimer
from sim.cost.pipeline import PipelineTimer, Share
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


class Fixed:
    """A stage that takes as long whatever it computes."""

    window = None

    def __init__(self, ticks: float) -> None:
        self.ticks = ticks

    def step(self, shape: StepShape) -> float:
        return self.ticks if shape.tokens else 0

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        return AffineRun(self.ticks, 0, math.inf)

    def decode_times(self, shape: StepShape, context: Any, windowed: Any) -> Any:
        return np.full(len(context), self.ticks)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        return {"all": self.ticks}


def timer(*stages: float, hop: float = 0, host: float = 0) -> PipelineTimer:
    return PipelineTimer([Fixed(ticks) for ticks in stages], (host, 0), [lambda tokens: hop] * (len(stages) - 1))


def run(workload: Workload, clock: PipelineTimer, config: EngineConfig = CONFIG, **more: Any) -> Fleet:
    fleet = Fleet(workload, [config], clock, RoundRobin(), tick_s=US, **more)
    fleet.run()
    return fleet


def load(n: int, prompt: int = 64, output: int = 5, gap_us: float = 0.0) -> Workload:
    return Workload(np.arange(n) * gap_us * US, np.full(n, prompt), np.full(n, output))


def us(fleet: Fleet, name: str) -> list[int]:
    return [round(value / US) for value in fleet.recorder.requests.sorted_by("id").column(name)]


@pytest.mark.parametrize("jump", [True, False])
def test_one_request_takes_every_stage_and_every_hop_a_token(jump: bool) -> None:
    fleet = run(load(1), timer(100, 200, 300, hop=7, host=3), replace(CONFIG, pipeline_stages=3), jump=jump)
    step = 100 + 200 + 300 + 2 * 7 + 3
    assert us(fleet, "first_token_s") == [step]
    assert us(fleet, "finish_s") == [5 * step]


@pytest.mark.parametrize("jump", [True, False])
def test_a_second_batch_follows_through_the_stages(jump: bool) -> None:
    """Budget for one prompt a batch: the second enters stage one as the first leaves it, and both stay apart."""
    fleet = run(load(2), timer(100, 100), jump=jump)
    assert us(fleet, "scheduled_s") == [0, 0]
    assert us(fleet, "first_token_s") == [200, 300]
    assert us(fleet, "finish_s") == [1000, 1100]


def test_a_third_batch_waits_for_a_place() -> None:
    """Two stages, two batches: the third prompt joins the first batch when that has come back."""
    fleet = run(load(3), timer(100, 100), replace(CONFIG, max_num_batched_tokens=80))
    assert us(fleet, "scheduled_s") == [0, 0, 0]  # its first 16 tokens and 80 - 16 of the second fit the second batch
    assert us(fleet, "first_token_s") == [200, 300, 400]


def test_chunks_of_a_prompt_follow_each_other() -> None:
    """Four chunks through two stages of 100: the last leaves at 500, two in flight at any time."""
    fleet = run(load(1, prompt=256, output=1), timer(100, 100))
    assert us(fleet, "finish_s") == [500]


def test_the_slowest_stage_sets_the_pace() -> None:
    """Four batches in flight in four stages: one leaves every 300."""
    config = replace(CONFIG, pipeline_stages=4)
    fleet = run(load(4, output=400), timer(100, 300, 200, 100), config)
    rate = 4 * 399 / (max(us(fleet, "finish_s")) - us(fleet, "first_token_s")[0])
    assert rate == pytest.approx(1 / 300, rel=0.01)


def test_too_few_batches_leave_bubbles() -> None:
    """One batch in four stages: a token every 700, not every 300."""
    config = replace(CONFIG, pipeline_stages=4, max_num_batched_tokens=1000)
    fleet = run(load(4, output=400), timer(100, 300, 200, 100), config)
    assert max(us(fleet, "finish_s")) == 400 * 700


def test_an_arrival_waits_for_the_batch_in_flight() -> None:
    workload = Workload(np.array([0.0, 250 * US]), np.full(2, 64), np.array([9, 2]))
    for jump in (True, False):
        fleet = run(workload, timer(100, 100), replace(CONFIG, max_num_batched_tokens=100), jump=jump)
        assert us(fleet, "scheduled_s")[1] == 400
        assert us(fleet, "first_token_s")[1] == 600


def test_what_ends_in_one_batch_leaves_the_other_alone() -> None:
    workload = Workload(np.zeros(2), np.full(2, 64), np.array([3, 6]))
    assert us(run(workload, timer(100, 100)), "finish_s") == [600, 1300]


def test_stages_of_given_step_times_share_them() -> None:
    clock = PipelineTimer([Share(LinearStepTimer(100, 2, 0), 2)] * 2, (0, 0), [lambda tokens: 0])
    assert us(run(load(1, output=2), clock), "finish_s") == [2 * (50 + 64) + 2 * 51]


# -- other engines' batches


@pytest.mark.parametrize("jump", [True, False])
def test_each_micro_batch_of_sglang_has_its_share_of_the_seats(jump: bool) -> None:
    """Four seats, two stages: the third prompt goes into the second micro-batch, although it would fit the first."""
    config = preset_config("sglang", 1000, max_num_seqs=4, pipeline_stages=2, async_scheduling=False)
    fleet = run(load(5, prompt=16, output=3), timer(100, 100), config, jump=jump)
    assert us(fleet, "first_token_s") == [200, 200, 300, 300, 900]
    assert us(fleet, "finish_s") == [600, 600, 700, 700, 1300]  # the round that sees the first two ended is an idle one


@pytest.mark.parametrize(("seats", "expected"), [(4, [1000, 800]), (2, [800, 900])])
def test_a_prefill_of_sglang_pauses_its_own_micro_batch_alone(seats: int, expected: list[int]) -> None:
    """A request decodes as another arrives: into its micro-batch, which prefills, or, that being full, beside it."""
    config = preset_config("sglang", 1000, max_num_seqs=seats, pipeline_stages=2, async_scheduling=False)
    workload = Workload(np.array([0.0, 250 * US]), np.full(2, 16), np.array([4, 2]))
    fleet = run(workload, timer(100, 100), config)
    assert us(fleet, "scheduled_s") == [0, 400]
    assert us(fleet, "finish_s") == expected


def test_chunks_of_a_prompt_pass_through_the_micro_batches_of_sglang() -> None:
    """Four chunks through two stages of 100, as with vLLM; text is found once its step is over."""
    config = preset_config(
        "sglang", 1000, max_num_batched_tokens=64, max_num_seqs=8, pipeline_stages=2, async_scheduling=False
    )
    fleet = run(load(1, prompt=256, output=1), timer(100, 100), config)
    assert us(fleet, "finish_s") == [500]


@pytest.mark.parametrize("jump", [True, False])
def test_the_seats_of_orca_are_those_of_one_batch(jump: bool) -> None:
    """Two a batch and two batches under way: the fifth joins the batch that comes back with a seat."""
    config = preset_config("orca", 1000, max_num_seqs=2, pipeline_stages=2)
    fleet = run(load(5, prompt=16, output=3), timer(100, 100), config, jump=jump)
    assert us(fleet, "first_token_s") == [200, 200, 300, 300, 800]
    assert us(fleet, "finish_s") == [600, 600, 700, 700, 1200]


# -- every gap, every block, every step


class Kinked:
    """A stage with all aggregates in its times, and a window."""

    def __init__(self, rng: Random, window: int | None) -> None:
        self.window = window
        self.base, self.per_token = rng.uniform(1e-3, 5e-3), rng.uniform(1e-5, 1e-4)
        self.per_context, self.per_windowed = rng.uniform(0, 3e-5), rng.uniform(0, 3e-5)

    def step(self, s: StepShape) -> float:
        if not s.tokens:
            return 0.0
        attended = s.decode_context * self.per_context + s.decode_context_windowed * self.per_windowed
        return self.base + s.tokens * self.per_token + attended + s.prefill_pairs * 1e-7 + s.sampled_seqs * 1e-5

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        slope = self.per_context * shape.decode_seqs + self.per_windowed * growing_windowed
        return AffineRun(self.step(shape), slope, math.inf)

    def decode_times(self, shape: StepShape, context: Any, windowed: Any) -> Any:
        raise NotImplementedError

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        return {"all": self.step(shape)}


def random_run(seed: int, jump: bool) -> Fleet | None:
    rng = Random(seed)
    n, stages = rng.randint(3, 50), rng.choice([2, 2, 3, 4])
    arrivals = np.cumsum([rng.expovariate(1 / rng.choice([1e-3, 1e-2, 0.1])) for _ in range(n)])
    prompts = np.array([rng.randint(1, rng.choice([20, 200])) for _ in range(n)])
    equal = rng.choice([None, 7, 40])  # answers of one length end together, in several groups
    workload = Workload(
        arrivals, prompts, np.array([equal or rng.choice([1, 2, rng.randint(1, 60)]) for _ in range(n)])
    )
    config = random_pipeline_config(
        rng,
        ["vllm", "vllm", "sglang", "tensorrt-llm", "orca"],
        num_gpu_blocks=rng.choice([20, 30, 60, 400]),
        max_num_seqs=rng.choice([2, 4, 16, 40]),
        max_num_batched_tokens=rng.choice([16, 64, 300]),
        enable_prefix_caching=rng.random() < 0.5,
        scheduling_policy=rng.choice(["fcfs", "priority"]),
        watermark=rng.choice([0.0, 0.1]),
        scheduler_reserve_full_isl=rng.random() < 0.7,
        async_scheduling=False,
        pipeline_stages=stages,
    )
    window = rng.choice([None, None, 17])
    clock = PipelineTimer(
        [Kinked(rng, window) for _ in range(stages)],
        (rng.choice([0.0, 1e-3]), 1e-5),
        [lambda tokens: 1e-4 + tokens * 1e-6] * (stages - 1),
    )
    fleet = Fleet(workload, [config] * rng.choice([1, 2]), clock, RoundRobin(), jump=jump)
    return served(fleet)


@pytest.mark.parametrize("seed", range(120))
def test_jumps_change_no_record(seed: int) -> None:
    assert_same_requests(random_run(seed, True), random_run(seed, False))


@pytest.mark.parametrize("seed", range(60))
def test_every_gap_and_every_block_is_accounted_for(seed: int) -> None:
    fleet = random_run(seed, True)
    if fleet is not None:
        assert_gaps_and_blocks_add_up(fleet)


@pytest.mark.parametrize("seed", range(40))
def test_never_more_batches_in_flight_than_stages(seed: int) -> None:
    fleet = random_run(seed, False)
    if fleet is None:
        return
    steps = fleet.recorder.steps
    for replica in fleet.replicas:
        own = np.asarray(steps.column("replica")) == replica.index
        start = np.asarray(steps.column("start_s"))[own]
        end = start + np.asarray(steps.column("duration_s"))[own]
        in_flight = [int(((start < moment + 1e-12) & (end > moment + 1e-9)).sum()) for moment in start]
        assert max(in_flight, default=0) <= replica.scheduler.config.pipeline_stages
        assert (np.diff(end) >= -1e-12).all()
