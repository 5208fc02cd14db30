"""The error of a run in which nothing can move, with the state that explains it."""

from __future__ import annotations

from sim.engine.request import Tick
from sim.engine.scheduler import Scheduler


class SimulationStalledError(RuntimeError):
    """Nothing can move, or requests only take blocks from each other: the message holds the state that explains it."""


def stalled(index: int, now: Tick, scheduler: Scheduler, what: str) -> SimulationStalledError:
    """The error of replica ``index`` at tick ``now``."""
    pool, config = scheduler.pool, scheduler.config
    names = [repr(request) for request in list(scheduler.running)[:4]]
    head = repr(scheduler.waiting.head()) if scheduler.waiting else "none"
    return SimulationStalledError(
        f"replica {index} at tick {now}: {what}; "
        f"{len(scheduler.running)} running ({', '.join(names)}), "
        f"{len(scheduler.waiting)} waiting (first: {head}), {pool.free} of {pool.usable_blocks} blocks free, "
        f"max_num_batched_tokens {config.max_num_batched_tokens}, policy {config.scheduling_policy}"
    )
