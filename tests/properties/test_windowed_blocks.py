"""Blocks behind an attention window are freed: jumps equal single steps, and counts equal those of the rule."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from sim.cluster.fleet import Fleet
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded
from sim.conformance import workload_of
from sim.cost.pipeline import PipelineTimer
from sim.cost.shape import StepTimer
from sim.engine.windowed import WindowedScheduler

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from fleets import served
from random_scenarios import from_seed
from test_jump_equals_steps import Arrays, KinkedTimer, arrays, assert_equal, expanded, vllm_config, without_ties


def run(seed: int, *, jump: bool, checked: bool = False, stages: int = 1) -> Fleet | None:
    rng = Random(seed)
    timer = KinkedTimer(rng)
    timer.window = rng.choice([1, 3, 8, 17, 40, 100])
    document = from_seed(600_000 + seed)
    config = replace(
        vllm_config(document),
        enable_prefix_caching=False,
        kept_tokens=timer.window,
        keeps_prompts=rng.random() < 0.4,
    )
    clock: StepTimer = timer
    if stages > 1:
        config = replace(config, async_scheduling=False, pipeline_stages=stages)
        clock = PipelineTimer([timer] * stages, (1e-4, 1e-5), [lambda tokens: 1e-5 * tokens] * (stages - 1))
    workload = without_ties(workload_of(document["requests"], config.block_size), seed)
    count = rng.choice([1, 1, 2])
    fleet = Fleet(workload, [config] * count, clock, LeastLoaded(Reports(rng.choice(["requests", "kv"]))), jump=jump)
    if checked:
        for replica in fleet.replicas:
            check_every_step(replica.scheduler)  # type: ignore[arg-type]
    return served(fleet)


def check_every_step(scheduler: WindowedScheduler) -> None:
    """After each schedule the pool is short of exactly what the rule says that requests hold."""
    decide, size, window = scheduler.schedule, scheduler.config.block_size, scheduler.group.reach

    def schedule():  # type: ignore[no-untyped-def]
        step = decide()
        held = 0
        for request in scheduler.running:
            if request.in_group:
                assert request.group is not None
                computed = request.group_offset + request.group.step
                held += -(-computed // size) - max(0, computed - window) // size
                assert -(-computed // size) - max(0, computed - window) // size <= -(-window // size) + 1
            else:
                held += scheduler.held_blocks(request)
        assert scheduler.pool.free == scheduler.pool.usable_blocks - held
        return step

    scheduler.schedule = schedule  # type: ignore[method-assign]


@pytest.mark.parametrize(("seed", "stages"), [(n, 1) for n in range(300)] + [(n, 2 + n % 3) for n in range(150)])
def test_jumps_change_no_record(seed: int, stages: int) -> None:
    jumped, stepped = (run(seed, jump=jump, stages=stages) for jump in (True, False))
    if jumped is None or stepped is None:
        assert jumped is stepped
        return
    assert_equal(arrays(jumped.recorder.requests.sorted_by("id")), arrays(stepped.recorder.requests.sorted_by("id")))
    assert_equal(steps_of(jumped), steps_of(stepped))
    assert jumped.engine_steps == stepped.engine_steps


def steps_of(fleet: Fleet) -> Arrays:
    """One row a step; how many tokens are held in the middle of a row, the row does not say where some are freed."""
    rows = expanded(fleet.recorder.steps)
    del rows["held_tokens"]
    return rows


@pytest.mark.parametrize(("seed", "stages"), [(n, 1) for n in range(150)] + [(n, 2 + n % 3) for n in range(60)])
def test_the_pool_holds_what_the_window_needs(seed: int, stages: int) -> None:
    fleet = run(seed, jump=False, checked=True, stages=stages)
    if fleet is None:
        return
    assert set(arrays(fleet.recorder.requests)["status"].tolist()) <= {0, 1}
    for replica in fleet.replicas:
        assert replica.scheduler.pool.free == replica.scheduler.pool.usable_blocks
