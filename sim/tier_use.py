"""Counts of the schedulers that keep KV cache outside the GPU, added up over a fleet."""

from __future__ import annotations

import numpy as np

from sim.assemble import Parts, assemble
from sim.cluster.fleet import Fleet
from sim.cost.shape import StepShape
from sim.engine.tiers.choice import crossover_tokens, recompute_ticks
from sim.engine.tiers.scheduler import TieredScheduler
from sim.engine.tiers.swap import SwapSpace
from sim.errors import InputError
from sim.records import Columns
from sim.scenario import Scenario
from sim.scenario.support import require_supported
from sim.summary_tiers import MemoryTiers, SwapUse, TierUse


def tiers_of(fleet: Fleet, pool: int, parts: Parts) -> MemoryTiers | None:
    """What the engines of pool number ``pool`` moved; None where they keep everything in the GPU."""
    schedulers = [replica.scheduler for replica in fleet.replicas_of(pool)]
    tiered = [scheduler for scheduler in schedulers if isinstance(scheduler, TieredScheduler)]
    if not tiered:
        return None
    engines = {replica.index for replica in fleet.replicas_of(pool)}
    return MemoryTiers(
        swap=_swap(tiered, _mean_batch(fleet.recorder.steps, engines), _preemptions(fleet, engines), parts),
        prefix=_prefix(tiered, parts),
    )


def _prefix(tiered: list[TieredScheduler], parts: Parts) -> tuple[TierUse, ...]:
    if not parts.engine.tiers:
        return ()
    size = parts.engine.block_size
    asked = sum(scheduler.asked_tokens for scheduler in tiered)
    found = sum(scheduler.gpu_tokens for scheduler in tiered)
    uses = [
        TierUse(
            name="gpu",
            capacity_tokens=parts.engine.usable_blocks * size,
            hit_tokens=found,
            hit_rate=found / asked if asked else None,
        )
    ]
    for number, plan in enumerate(parts.engine.tiers):
        loaded = size * sum(scheduler.tiers[number].found for scheduler in tiered)
        stored = size * sum(scheduler.tiers[number].stored for scheduler in tiered)
        uses.append(
            TierUse(
                name=plan.name,
                capacity_tokens=plan.blocks * size,
                hit_tokens=loaded,
                hit_rate=loaded / asked if asked else None,
                loaded_bytes=loaded * parts.kv_bytes_per_token,
                stored_bytes=stored * parts.kv_bytes_per_token,
            )
        )
    return tuple(uses)


def _swap(tiered: list[TieredScheduler], batch: StepShape, preemptions: int, parts: Parts) -> SwapUse | None:
    spaces = [scheduler.swap for scheduler in tiered if scheduler.swap is not None]
    if not spaces:
        return None
    size, swapped = parts.engine.block_size, sum(space.stores for space in spaces)
    return SwapUse(
        capacity_tokens=spaces[0].plan.blocks * size,
        peak_utilization=max(space.peak / space.plan.blocks for space in spaces),
        swapped=swapped,
        recomputed=preemptions - swapped,
        no_room=sum(space.refused for space in spaces),
        out_bytes=size * parts.kv_bytes_per_token * sum(space.out.blocks for space in spaces),
        in_bytes=size * parts.kv_bytes_per_token * sum(space.back.blocks for space in spaces),
        crossover_tokens=swap_crossover(parts, batch),
    )


def swap_crossover(parts: Parts, batch: StepShape) -> int | None:
    """The context from which a preempted request's cache is copied out and back sooner than computed again.

    Args:
        parts: of a scenario whose preempted requests swap.
        batch: decodes that run beside; empty: the prompt is computed alone.

    Returns:
        Tokens; None where copying never is the shorter way (`sim.engine.tiers.choice.crossover_tokens`).
    """
    engine = parts.engine
    assert engine.swap is not None
    space = SwapSpace(engine.swap, whole_ticks=parts.tick_s != 1.0)
    return crossover_tokens(
        lambda tokens: recompute_ticks(parts.timer, batch, tokens, engine.max_num_batched_tokens),
        lambda tokens: space.price(-(-tokens // engine.block_size)),
    )


def swap_outlook(scenario: Scenario) -> dict[str, int | None] | None:
    """Room for swapped caches, and the contexts from which copying one is quicker than computing it again.

    ``crossover_tokens`` with nothing else in the step, ``crossover_tokens_in_full_batch`` beside ``max_num_seqs``
    decodes that fill the pool; null where copying never is. None where preempted requests are recomputed, or where
    the simulator would refuse to swap them.
    """
    try:
        require_supported(scenario)
        parts = assemble(scenario)
    except InputError:
        return None
    engine = parts.engine
    if engine.swap is None:
        return None
    seqs = min(engine.max_num_seqs, engine.usable_blocks)
    context = min(engine.usable_blocks * engine.block_size // seqs, engine.max_model_len)
    windowed = context if parts.timer.window is None else min(context, parts.timer.window)
    full = StepShape(seqs, seqs * context, seqs * windowed, sampled_seqs=seqs)
    return {
        "room_tokens": engine.swap.blocks * engine.block_size,
        "crossover_tokens": swap_crossover(parts, StepShape()),
        "crossover_tokens_in_full_batch": swap_crossover(parts, full),
    }


def _mean_batch(steps: Columns, engines: set[int]) -> StepShape:
    """The mean decode batch of the steps of some engines, to whole sequences."""
    own = np.isin(np.asarray(steps.column("replica")), list(engines))
    count = np.asarray(steps.column("steps"))[own]
    total = int(count.sum())
    if not total:
        return StepShape()
    seqs, context, windowed = (
        float(np.dot(count, np.asarray(steps.column(name))[own])) / total
        for name in ("decode_seqs", "decode_context", "decode_context_windowed")
    )
    whole = round(seqs)
    return StepShape(whole, round(context), round(windowed), sampled_seqs=whole) if whole else StepShape()


def _preemptions(fleet: Fleet, engines: set[int]) -> int:
    own = np.isin(np.asarray(fleet.recorder.steps.column("replica")), list(engines))
    return int(np.asarray(fleet.recorder.steps.column("preempted"))[own].sum())
