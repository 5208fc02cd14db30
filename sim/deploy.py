"""From a scenario and its assembled parts to the fleet that runs: pools, routers, transfers, and what befalls them."""

from __future__ import annotations

from typing import Any

from sim.assemble import Pace, Parts, as_predicted, assemble, steps_together
from sim.cluster.arrivals import to_ticks
from sim.cluster.fleet import Fleet
from sim.cluster.handover import Handoff
from sim.cluster.lifecycle import Change
from sim.cluster.pool import PoolPlan
from sim.cluster.routing import router_of
from sim.errors import InputError
from sim.scenario import Scenario
from sim.scenario.fleet_events import TimedEvent, timed_events
from sim.scenario.pools import pools_of
from sim.workload import Workload

Pools = dict[str, tuple[Scenario, Parts]]


def assemble_pools(scenario: Scenario, pace: Pace = as_predicted) -> Pools:
    """{pool: (the scenario of that pool alone, its parts)}, in the order in which their replicas are numbered.

    Steps of each pool take ``pace`` times what its profile says.

    Raises:
        InputError: what one of the pools cannot serve, its key named; an event that cannot be.
    """
    pools = pools_of(scenario)
    timed_events(scenario.cluster, [pool.layout.replicas for pool in pools.values()])
    if len(pools) == 1:
        return {name: (pool, assemble(pool, pace)) for name, pool in pools.items()}
    found = {}
    for name, pool in pools.items():
        try:
            found[name] = (pool, assemble(pool, pace))
        except InputError as error:
            field = f"cluster.disaggregation.{name}.{error.field}"
            raise InputError(field, error.problem, error.remedy) from None
    return found


def fleet_of(scenario: Scenario, pools: Pools, workload: Workload, **options: Any) -> Fleet:
    """The fleet of a scenario; ``options`` are those of `Fleet` that say how to run."""
    cluster = scenario.cluster
    events = timed_events(cluster, [pool.layout.replicas for pool, _ in pools.values()])
    plans = [
        _plan(name, pool, parts, scenario.seed, _most(number, pool, events))
        for number, (name, (pool, parts)) in enumerate(pools.items())
    ]
    first = plans[0]
    tick_s, path = next((parts.tick_s, parts.path) for _, parts in pools.values())
    return Fleet(
        workload,
        first.configs,
        first.timer,
        first.router,
        report_interval_s=first.report_interval_s,
        present=first.present,
        ranks=first.ranks,
        together=first.together,
        handoff=None if len(plans) == 1 else _handoff(scenario, pools["decode"][1], plans[1]),
        changes=[_change(timed, tick_s) for timed in events],
        max_retries=cluster.max_retries,
        retry_delay_s=cluster.retry_delay_s,
        tick_s=tick_s,
        path=path,
        **options,
    )


def _plan(name: str, pool: Scenario, parts: Parts, seed: int, most: int) -> PoolPlan:
    return PoolPlan(
        [parts.engine] * most,
        parts.timer,
        router_of(pool.cluster, seed),
        pool.cluster.router_staleness_s,
        name,
        pool.layout.replicas,
        pool.layout.data_parallel_size,
        steps_together(parts.served.arch, pool.layout),
    )


def _most(number: int, pool: Scenario, events: list[TimedEvent]) -> int:
    """Places of a pool: its replicas and those that events add."""
    named = [timed.event.replica + 1 for timed in events if timed.pool == number]
    return max([pool.layout.replicas, *named])


def _change(timed: TimedEvent, tick_s: float) -> Change:
    event = timed.event
    at, load = to_ticks(event.at_s, tick_s), timed.load_time_s
    if tick_s != 1.0:  # loaded before whatever comes next, also where both are rounded
        load = to_ticks(event.at_s + timed.load_time_s, tick_s) - at
    return Change(at, event.action, event.replica, timed.pool, load)


def _handoff(scenario: Scenario, decode: Parts, plan: PoolPlan) -> Handoff:
    """How caches pass from the prefill pool to the decode pool."""
    split = scenario.cluster.disaggregation
    assert split is not None
    return Handoff(
        plan,
        decode.kv_bytes_per_token,
        split.transfer_gb_per_s * 1e9,
        latency_s=split.transfer_latency_s,
        layers=decode.served.arch.num_layers,
        receive_s_per_token=split.receive_us_per_token * 1e-6,
        layerwise=split.overlap == "layerwise",
    )
