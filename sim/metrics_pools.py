"""Prefill and decode apart: what each pool did, and both together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from sim.metrics_steps import busy_time_s, kv_of, step_utilization
from sim.result import PoolShare, RunContext
from sim.summary import Memory, PoolUse, Utilization

Arrays = Mapping[str, NDArray[Any]]


def runs_of(pool: PoolShare, runs: Arrays) -> Arrays:
    """The rows of steps that the engines of ``pool`` ran."""
    own = (runs["replica"] >= pool.first) & (runs["replica"] < pool.first + pool.context.engines)
    return {name: values[own] for name, values in runs.items()}


def pool_uses(rows: Arrays, runs: Arrays, context: RunContext, duration_s: float) -> dict[str, PoolUse]:
    """KV cache and hardware of each pool; nothing where the fleet is not split.

    The prefix hits are those of the prefill pool, where prompts are computed.
    """
    found = {}
    for pool in context.pools:
        own = runs_of(pool, runs)
        kv = kv_of(rows, own, pool.context)
        found[pool.name] = PoolUse(
            gpus=math.ceil(pool.context.gpus),
            replicas=pool.context.scenario.layout.replicas,
            kv=kv if pool is context.pools[0] else kv.model_copy(update={"prefix_hit_rate": None}),
            memory=pool.context.memory or Memory(),
            utilization=step_utilization(own, pool.context, duration_s),
            tiers=pool.context.tiers,
        )
    return found


def fleet_utilization(runs: Arrays, context: RunContext, duration_s: float) -> Utilization:
    """`step_utilization` over all pools: MFU and MBU are weighted by what each pool could have done while busy."""
    if not context.pools:
        return step_utilization(runs, context, duration_s)
    whole = step_utilization(runs, context, duration_s)
    if whole.busy_fraction is None:
        return whole
    could: dict[str, list[tuple[float, float]]] = {"mfu": [], "mbu": []}
    for pool in context.pools:
        own = runs_of(pool, runs)
        used, work = step_utilization(own, pool.context, duration_s), pool.context.work
        if work is None or used.mfu is None or used.mbu is None:
            continue
        busy_s = busy_time_s(own, overlap=pool.context.scenario.layout.pipeline_parallel_size > 1)
        could["mfu"].append((used.mfu, busy_s * work.peak_flops_per_s))
        could["mbu"].append((used.mbu, busy_s * work.peak_bytes_per_s))
    return whole.model_copy(update={name: _mean(parts) for name, parts in could.items()})


def _mean(parts: list[tuple[float, float]]) -> float | None:
    weight = sum(size for _, size in parts)
    return sum(value * size for value, size in parts) / weight if weight > 0 else None
