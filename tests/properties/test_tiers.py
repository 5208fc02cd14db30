"""Swapping and offload tiers: time by change gives the records of single steps, and no block is lost or held twice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.fleet import Fleet
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded
from sim.conformance import workload_of
from sim.cost.pipeline import PipelineTimer
from sim.cost.shape import StepTimer
from sim.engine.config import EngineConfig
from sim.engine.tiers.plan import SwapPlan, TierPlan
from sim.engine.tiers.scheduler import TieredScheduler
from sim.engine.tiers.store import TierStore

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from fleets import served
from random_scenarios import from_seed
from test_jump_equals_steps import KinkedTimer, arrays, assert_same_records, vllm_config, without_ties


def tiered_config(config: EngineConfig, rng: Random) -> EngineConfig:
    """The same engine with a swap space, offload tiers, or both; rooms from a block to all, links from slow to fast."""
    ticks = rng.choice([1e-6, 1e-4, 3e-3])
    rooms = [1, 4, 30, 1000]
    kind = rng.choice(["swap", "tiers", "both"]) if config.enable_prefix_caching else "swap"
    swap = SwapPlan(rng.choice(["swap", "swap", "auto"]), rng.choice(rooms), ticks, config.async_scheduling)
    names = ["host", "nvme", "remote"][: rng.randint(1, 3)]
    tiers = tuple(TierPlan(name, rng.choice(rooms), ticks * 3**index) for index, name in enumerate(names))
    return replace(config, swap=None if kind == "tiers" else swap, tiers=() if kind == "swap" else tiers)


def schedulers(fleet: Fleet) -> list[TieredScheduler]:
    found = [replica.scheduler for replica in fleet.replicas]
    assert all(isinstance(scheduler, TieredScheduler) for scheduler in found)
    return found  # type: ignore[return-value]


def run(seed: int, *, jump: bool, checked: bool = False, stages: int = 1) -> Fleet | None:
    rng = Random(seed)
    timer: StepTimer = KinkedTimer(rng)
    document = from_seed(500_000 + seed)
    config = tiered_config(vllm_config(document), rng)
    if stages > 1:
        if not config.tiers:
            return None
        config = replace(config, swap=None, async_scheduling=False, pipeline_stages=stages)
        timer = PipelineTimer([timer] * stages, (1e-4, 1e-5), [lambda tokens: 1e-5 * tokens] * (stages - 1))
    workload = without_ties(workload_of(document["requests"], config.block_size), seed)
    count = rng.choice([1, 1, 2])
    fleet = Fleet(workload, [config] * count, timer, LeastLoaded(Reports(rng.choice(["requests", "kv"]))), jump=jump)
    if checked:
        for scheduler in schedulers(fleet):
            check_every_step(scheduler)
    return served(fleet)


def check_every_step(scheduler: TieredScheduler) -> None:
    decide = scheduler.schedule

    def schedule():  # type: ignore[no-untyped-def]
        step = decide()
        check(scheduler)
        return step

    scheduler.schedule = schedule  # type: ignore[method-assign]


def check(scheduler: TieredScheduler) -> None:
    held = []
    for request in scheduler.running:
        if request.in_group:
            held.append((request, scheduler.blocks(request.group_offset + scheduler.group.step)))
        else:
            held.append((request, scheduler.held_blocks(request)))
        if request.in_group:
            full = scheduler.full_blocks(request, lag=scheduler.hash_lag)
            scheduler.pool.settle(request, full)
    held += [(request, scheduler.held_blocks(request)) for request in scheduler.fetching]
    scheduler.pool.check(held)
    for tier in scheduler.tiers:
        tier.check()
    if scheduler.swap is not None:
        assert 0 <= scheduler.swap.used <= scheduler.swap.plan.blocks
        assert all(0 < tokens < request.known for request, tokens in scheduler.swap.kept.items())


@pytest.mark.parametrize(("seed", "stages"), [(n, 1) for n in range(300)] + [(n, 2 + n % 3) for n in range(200)])
def test_jumps_change_no_record(seed: int, stages: int) -> None:
    jumped, stepped = (run(seed, jump=jump, stages=stages) for jump in (True, False))
    if jumped is None or stepped is None:
        assert jumped is stepped
        return
    assert_same_records(jumped, stepped)
    for one, other in zip(schedulers(jumped), schedulers(stepped), strict=True):
        assert (one.asked_tokens, one.gpu_tokens) == (other.asked_tokens, other.gpu_tokens)
        assert [(tier.found, tier.stored) for tier in one.tiers] == [(tier.found, tier.stored) for tier in other.tiers]


@pytest.mark.parametrize("seed", range(150))
def test_every_block_has_one_place(seed: int) -> None:
    fleet = run(seed, jump=False, checked=True)
    if fleet is None:
        return
    requests = arrays(fleet.recorder.requests)
    assert set(requests["status"].tolist()) <= {0, 1}
    for scheduler in schedulers(fleet):
        assert not scheduler.fetching
        assert scheduler.pool.free == scheduler.pool.usable_blocks
        assert scheduler.swap is None or not scheduler.swap.used


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.integers(1, 9)), max_size=25),
    st.integers(1, 12),
    st.integers(1, 12),
)
def test_what_a_tier_holds_does_not_depend_on_how_many_calls_it_came_in(
    evictions: list[tuple[int, int, int]], room: int, room_below: int
) -> None:
    whole, pieces = ([TierStore(TierPlan("nvme", room_below, 1), None, whole_ticks=False)] for _ in range(2))
    for tiers in (whole, pieces):
        tiers.insert(0, TierStore(TierPlan("host", room, 1), tiers[0], whole_ticks=False))
    for node, first, count in evictions:
        whole[0].put(node, first, first + count)
        for block in reversed(range(first, first + count)):
            pieces[0].put(node, block, block + 1)
        for one, other in zip(whole, pieces, strict=True):
            one.check()
            assert (one.held, one.stored) == (other.held, other.stored)
            assert all(one.find(n, b) == other.find(n, b) for n in range(4) for b in range(22))
