"""What went through memory beside the GPU: swapped requests, and prefix blocks by the tier in which they were found."""

from __future__ import annotations

from sim.schema import StrictModel


class TierUse(StrictModel):
    """One tier of the prefix cache, ``gpu`` the first.

    ``hit_rate`` is its share of the tokens that requests knew when they were admitted, resumptions included: rates of
    all tiers add up to what was not computed. Bytes are over all GPUs.
    """

    name: str
    capacity_tokens: int
    hit_tokens: int
    hit_rate: float | None = None
    loaded_bytes: int = 0
    stored_bytes: int = 0


class SwapUse(StrictModel):
    """Host memory for preempted requests. ``recomputed`` are preemptions that did not use it.

    ``no_room`` of them found it full. ``crossover_tokens``: from this context on copying out and back takes less than
    computing anew adds to steps with the run's mean batch (`sim.engine.tiers.choice`); None: it never does.
    """

    capacity_tokens: int
    peak_utilization: float
    swapped: int
    recomputed: int
    no_room: int
    out_bytes: int
    in_bytes: int
    crossover_tokens: int | None = None


class MemoryTiers(StrictModel):
    """Both, over all engines."""

    swap: SwapUse | None = None
    prefix: tuple[TierUse, ...] = ()
