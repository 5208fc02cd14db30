"""Replicas that start, stop, fail and recover: by hand, against one event a step, and as scenarios."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.cluster.fleet import Fleet
from sim.cluster.handover import Handoff
from sim.cluster.lifecycle import Change
from sim.cluster.pool import PoolPlan
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.cost import LinearStepTimer
from sim.engine.config import EngineConfig
from sim.errors import InputError
from sim.workload import Workload

US = 1e-6
CONFIG = EngineConfig(num_gpu_blocks=101, max_num_seqs=8, max_num_batched_tokens=256, async_scheduling=False)
COMPLETED, REJECTED, UNFINISHED, LOST = range(4)


def load(arrivals: list[float], prompt: Any = 16, output: Any = 4) -> Workload:
    n = len(arrivals)
    return Workload(np.array(arrivals), np.full(n, prompt), np.full(n, output))


def run(workload: Workload, changes: list[Change], places: int = 2, present: int | None = None, **more: Any) -> Fleet:
    """Steps of 1 ms, round robin."""
    fleet = Fleet(
        workload,
        [CONFIG] * places,
        LinearStepTimer(1000, 0, 0),
        RoundRobin(),
        changes=changes,
        present=present,
        tick_s=US,
        **more,
    )
    fleet.run()
    return fleet


def column(fleet: Fleet, name: str) -> list[float]:
    return list(fleet.recorder.requests.sorted_by("id").column(name))


def us(fleet: Fleet, name: str) -> list[int]:
    return [round(value / US) for value in column(fleet, name)]


def test_a_started_replica_serves_when_it_has_loaded() -> None:
    fleet = run(load([0.0, 0.001, 0.0031, 0.0032]), [Change(1000, "start", 1, load=2000)], present=1)
    assert column(fleet, "replica") == [0, 0, 1, 0]


def test_a_stopped_replica_ends_what_it_has() -> None:
    fleet = run(load([0.0, 0.0, 0.002], output=10), [Change(1500, "stop", 1)])
    assert column(fleet, "replica") == [0, 1, 0]
    assert us(fleet, "finish_s")[1] == 10_000
    assert set(column(fleet, "status")) == {COMPLETED}


def test_what_a_failed_replica_had_is_sent_again_and_counts_from_its_first_arrival() -> None:
    fleet = run(load([0.0, 0.0], output=10), [Change(3500, "fail", 1)], max_retries=1, retry_delay_s=0.0001)
    assert column(fleet, "replica") == [0, 0]
    assert column(fleet, "attempts") == [1, 2]
    assert us(fleet, "arrival_s") == [0, 0]
    assert us(fleet, "queued_s") == [0, 3600]
    assert us(fleet, "first_token_s") == [1000, 5000]
    assert us(fleet, "finish_s") == [10_000, 14_000]


def test_without_retries_it_is_lost_and_its_follower_goes_on() -> None:
    workload = Workload(
        np.array([0.0, 0.0, np.nan]), np.full(3, 16), np.full(3, 10), after=np.array([-1, -1, 1]), think_s=np.zeros(3)
    )
    fleet = run(workload, [Change(3500, "fail", 1)])
    assert column(fleet, "status") == [COMPLETED, LOST, COMPLETED]
    assert us(fleet, "arrival_s")[2] == 3500


def test_a_request_is_lost_when_it_fails_once_too_often() -> None:
    changes = [Change(3500, "fail", 0), Change(5500, "fail", 1)]
    fleet = run(load([0.0], output=10), changes, max_retries=1)
    assert column(fleet, "status") == [LOST]
    assert column(fleet, "attempts") == [2]


def test_requests_wait_while_nobody_is_there_and_go_on_after_the_recovery() -> None:
    changes = [Change(1500, "fail", 0), Change(2000, "recover", 0, load=3000)]
    fleet = run(load([0.0, 0.003]), changes, places=1, max_retries=1)
    assert us(fleet, "scheduled_s") == [5000, 5000]
    assert set(column(fleet, "status")) == {COMPLETED}


def test_if_nobody_ever_comes_back_requests_end_unfinished() -> None:
    fleet = run(load([0.0, 0.003]), [Change(1500, "fail", 0)], places=1, max_retries=1)
    assert column(fleet, "status") == [UNFINISHED, UNFINISHED]
    assert fleet.notes[0].startswith("2 requests can never end, since no replica accepts requests any more")


def test_a_recovered_replica_has_an_empty_cache_and_goes_on_counting_steps() -> None:
    changes = [Change(10_000, "fail", 0), Change(10_000, "recover", 0)]
    workload = load([0.0, 0.005, 0.02], prompt=64)
    fleet = run(workload, changes, places=1)
    steps = fleet.recorder.steps
    counted = [int(s) + int(n) for s, n in zip(steps.column("step"), steps.column("steps"), strict=True)]
    assert counted == sorted(counted)
    assert column(fleet, "cached_tokens") == [0, 0, 0]


@pytest.mark.parametrize("load_time", [0, 500])
def test_a_replica_that_fails_as_soon_as_it_has_loaded_fails_once(load_time: int) -> None:
    changes = [Change(1500, "fail", 1), Change(2500 - load_time, "recover", 1, load=load_time), Change(2500, "fail", 1)]
    fleet = run(load([0.0, 0.0, 0.004]), changes, max_retries=1)
    assert column(fleet, "replica") == [0, 0, 0]
    assert column(fleet, "attempts") == [1, 2, 1]
    assert set(column(fleet, "status")) == {COMPLETED}


def test_steps_of_a_former_replica_count_once() -> None:
    changes = [
        Change(4500, "stop", 0),
        Change(4500, "start", 0),
        Change(30_000, "fail", 0),
        Change(30_000, "recover", 0),
    ]
    for jump in (True, False):
        fleet = run(load([0.0, 0.005, 0.05], output=10), changes, places=1, jump=jump)
        assert fleet.engine_steps == sum(fleet.recorder.steps.column("steps")) == 30


def test_loaded_comes_before_failed_where_both_are_rounded_to_whole_microseconds() -> None:
    document = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"step_time": {"base_us": 1000, "per_token_us": 0, "per_seq_us": 0}},
        "cluster": {
            "max_retries": 1,
            "load_time_s": 6e-7,
            "events": [
                {"at_s": 0.0015, "action": "fail", "replica": 0},
                {"at_s": 0.0020006, "action": "recover", "replica": 0},
                {"at_s": 0.0020012, "action": "fail", "replica": 0},
            ],
        },
        "layout": {"replicas": 2},
        "workload": {
            "num_requests": 4,
            "arrivals": {"process": "constant", "rate_per_s": 2000.0},
            "prompt_tokens": 16,
            "output_tokens": 4,
        },
    }
    assert simulate(Scenario.from_dict(document)).summary.requests.completed == 4


def test_who_was_there_how_long() -> None:
    changes = [Change(2000, "start", 1, load=500), Change(4500, "stop", 1)]
    fleet = run(load([0.0, 0.003, 0.0031, 0.009], output=4), changes, present=1)
    assert sorted(fleet.lifecycle.presence(0), key=str) == [(0, None), (2000, 7000)]


def random_run(seed: int, jump: bool) -> Fleet:
    rng = Random(seed)
    n = rng.randint(10, 80)
    arrivals = np.cumsum([rng.expovariate(1 / rng.choice([3e-4, 1e-3])) for _ in range(n)])
    workload = Workload(
        arrivals,
        np.array([rng.randint(1, 200) for _ in range(n)]),
        np.array([rng.choice([1, 2, rng.randint(1, 60)]) for _ in range(n)]),
    )
    end = round(arrivals[-1] / US)
    split = rng.random() < 0.5
    changes = []
    for pool in range(2 if split else 1):
        at = [rng.randint(1, end) for _ in range(6)]
        changes += [
            Change(at[0], "fail", 0, pool),
            Change(at[0] + rng.randint(0, 20_000), "recover", 0, pool, load=rng.randint(0, 9000)),
            Change(at[1], "start", 2, pool, load=rng.choice([0, 5000])),
            Change(at[1] + 5000 + rng.randint(0, 9000), rng.choice(["stop", "fail"]), 2, pool),
        ]
    config = EngineConfig(
        num_gpu_blocks=rng.choice([30, 60, 200]),
        max_num_seqs=rng.choice([2, 4, 16]),
        max_num_batched_tokens=rng.choice([64, 300]),
        enable_prefix_caching=rng.random() < 0.5,
        async_scheduling=rng.random() < 0.5,
    )
    timer = LinearStepTimer(rng.choice([100, 1000]), rng.choice([0, 3]), rng.choice([0, 7]))
    handoff = None
    if split:
        plan = PoolPlan([config] * 3, timer, rng.choice([RoundRobin, LeastLoaded])(), name="decode", present=2)
        handoff = Handoff(plan, 1e3, rng.choice([1e7, 1e9]), 0.0002, 4, layerwise=rng.random() < 0.5)
    fleet = Fleet(
        workload,
        [config] * 3,
        timer,
        LeastLoaded(),
        present=2,
        handoff=handoff,
        changes=changes,
        max_retries=rng.choice([0, 2]),
        retry_delay_s=rng.choice([0.0, 0.001]),
        tick_s=US,
        jump=jump,
    )
    fleet.run()
    return fleet


@pytest.mark.parametrize("seed", range(80))
def test_jumps_change_no_record(seed: int) -> None:
    jumped, stepped = (random_run(seed, jump) for jump in (True, False))
    for name in jumped.recorder.requests.names:
        np.testing.assert_allclose(column(jumped, name), column(stepped, name), rtol=1e-9, err_msg=name)
    assert jumped.engine_steps == stepped.engine_steps
    assert sorted(column(jumped, "id")) == list(range(len(jumped.workload)))
    assert UNFINISHED not in column(jumped, "status")


# -- as scenarios


def scenario(events: list[dict[str, Any]], **cluster: Any) -> Scenario:
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": {"replicas": 2},
            "engine": {"max_model_len": 8192},
            "cluster": {"router": "least_loaded", "events": events, **cluster},
            "workload": {
                "num_requests": 400,
                "arrivals": {"process": "constant", "rate_per_s": 20.0},
                "prompt_tokens": {"distribution": "constant", "value": 500},
                "output_tokens": {"distribution": "constant", "value": 100},
            },
        }
    )


def test_a_failure_costs_latency_and_is_accounted_for() -> None:
    calm = simulate(scenario([])).summary
    failing = [{"at_s": 5, "action": "fail", "replica": 0}, {"at_s": 5, "action": "recover", "replica": 0}]
    hit = simulate(scenario(failing, load_time_s=5)).summary
    assert hit.requests.completed == 400
    assert hit.requests.retries > 5
    assert hit.e2e_s.max is not None
    assert calm.e2e_s.max is not None
    assert hit.e2e_s.max > 1.3 * calm.e2e_s.max
    lost = simulate(scenario(failing, load_time_s=5, max_retries=0)).summary
    assert lost.requests.lost == hit.requests.retries
    assert lost.requests.completed + lost.requests.lost == 400


def test_only_replicas_that_are_there_are_paid_for() -> None:
    two = simulate(scenario([])).summary
    half = simulate(scenario([{"at_s": 10, "action": "stop", "replica": 1}])).summary
    assert two.cost.usd_per_hour == 6.0
    assert half.cost.usd_per_hour == pytest.approx(3.0 * (1 + 10.9 / half.duration_s), rel=0.02)


@pytest.mark.parametrize(
    ("events", "field"),
    [
        ([{"at_s": 1, "action": "stop", "replica": 2}], "cluster.events.0.action"),
        ([{"at_s": 1, "action": "start", "replica": 1}], "cluster.events.0.action"),
        ([{"at_s": 1, "action": "recover", "replica": 2}], "cluster.events.0.action"),
        (
            [{"at_s": 1, "action": "start", "replica": 2}, {"at_s": 9, "action": "fail", "replica": 2}],
            "cluster.events.1.action",
        ),
        ([{"at_s": 1, "action": "fail", "replica": 0, "pool": "decode"}], "cluster.events.0.pool"),
        ([{"at_s": 1, "action": "pause", "replica": 0}], "cluster.events.0.action"),
    ],
)
def test_events_that_cannot_be_are_refused(events: list[dict[str, Any]], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        simulate(scenario(events))
    assert refusal.value.field == field
