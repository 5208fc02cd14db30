"""What must hold in every run of every engine, whatever its policy decides."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from preset_configs import OTHERS, random_preset_config
from random_scenarios import from_seed

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import workload_of
from sim.cost.linear import LinearStepTimer
from sim.engine.log import Line
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler

CASES = [(preset, seed) for preset in OTHERS for seed in range(7000, 7040)]
TICK_S = 1e-6


def played(preset: str, seed: int, on_line: Any = None, *, jump: bool = True) -> Fleet:
    document = from_seed(seed)
    config = random_preset_config(preset, Random(seed), document)
    timer = LinearStepTimer(**{**document["latency"], "base_us": 1 + document["latency"]["base_us"]})
    load = workload_of(document["requests"], config.block_size)
    return Fleet(load, [config], timer, RoundRobin(), tick_s=TICK_S, jump=jump, on_line=on_line)


def held_blocks(scheduler: Scheduler) -> list[tuple[Request, int]]:
    """Each running request and the blocks it holds."""
    step = scheduler.group.step
    return [
        (r, scheduler.blocks(max(r.group_offset + step, r.reserved)) if r.in_group else scheduler.held_blocks(r))
        for r in scheduler.running
    ]


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_no_block_is_lost_or_owned_twice(preset: str, seed: int) -> None:
    checks = 0

    def check(line: Line) -> None:
        nonlocal checks
        checks += 1
        scheduler.pool.check(held_blocks(scheduler))

    fleet = played(preset, seed, check, jump=False)
    scheduler = fleet.replicas[0].scheduler
    fleet.run()
    assert checks == fleet.engine_steps
    scheduler.pool.check([])
    assert scheduler.pool.free == scheduler.pool.usable_blocks


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_every_request_ends_once_with_all_its_tokens(preset: str, seed: int) -> None:
    fleet = played(preset, seed)
    fleet.run()
    requests, steps = fleet.recorder.requests, fleet.recorder.steps
    done = np.asarray(requests.column("status")) == 0
    outputs = np.asarray(requests.column("output_tokens"))[done]
    sampled = np.asarray(steps.column("sampled_seqs")) * np.asarray(steps.column("steps"))
    assert sorted(requests.column("id")) == list(range(len(done)))
    assert sampled.sum() == outputs.sum()
    gaps = np.asarray(steps.column("gaps")) * np.asarray(steps.column("steps"))
    assert gaps.sum() + sum(fleet.recorder.gap_tokens) == (outputs - 1).sum()


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_limits_and_counts_hold_in_every_step(preset: str, seed: int) -> None:
    fleet = played(preset, seed)
    fleet.run()
    config = fleet.replicas[0].scheduler.config
    table = {name: np.asarray(fleet.recorder.steps.column(name)) for name in fleet.recorder.steps.names}
    assert (table["running"] <= config.max_num_seqs).all()
    assert (table["used_blocks"] <= config.usable_blocks).all()
    assert (table["used_blocks_end"] <= config.usable_blocks).all()
    assert (table["held_tokens"] >= 0).all()
    assert (table["held_tokens"] + table["reserved_tokens"] <= table["used_blocks"] * config.block_size).all()
    assert (table["reserved_tokens"] >= 0).all()
    assert (table["shared_tokens"] >= 0).all()
    assert config.enable_prefix_caching or not table["shared_tokens"].any()
    assert not table["stranded_tokens"].any()  # blocks lie anywhere


@pytest.mark.parametrize(("preset", "seed"), [case for case in CASES if case[0] != "static"])
def test_gaps_add_up_to_the_decode_time(preset: str, seed: int) -> None:
    fleet = played(preset, seed)
    fleet.run()
    requests = {name: np.asarray(fleet.recorder.requests.column(name)) for name in fleet.recorder.requests.names}
    steps = {name: np.asarray(fleet.recorder.steps.column(name)) for name in fleet.recorder.steps.names}
    done = requests["status"] == 0
    spans = (requests["finish_s"] - requests["first_token_s"])[done].sum()
    regular = (steps["gaps"] * steps["steps"] * steps["duration_s"]).sum()
    irregular = np.dot(fleet.recorder.gaps_s, fleet.recorder.gap_tokens)
    assert regular + irregular == pytest.approx(spans, rel=1e-9, abs=1e-9)
