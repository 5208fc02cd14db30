"""Replicas that start, stop, fail and recover at given times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import simpy

from sim.cluster.arrivals import after
from sim.cluster.pool import Pool
from sim.engine.replica import Replica
from sim.engine.request import Request, Tick

Action = Literal["start", "stop", "fail", "recover"]


@dataclass(frozen=True, slots=True)
class Change:
    """One replica, at one time.

    Attributes:
        at: tick.
        action: ``start`` and ``recover`` begin to load, ``stop`` drains, ``fail`` loses everything.
        place: of the replica in its pool.
        pool: of the fleet's, by number.
        load: ticks from a start to the first request.
    """

    at: Tick
    action: Action
    place: int
    pool: int = 0
    load: Tick = 0


class Lifecycle:
    """Carries out changes, and knows when which replica was there.

    Args:
        env: the clock.
        pools: of the fleet.
        changes: in any order; those of one instant in the order given.
        on_fail: called with each engine of a replica that failed and the requests that it had.
    """

    def __init__(
        self,
        env: simpy.Environment,
        pools: Sequence[Pool],
        changes: Sequence[Change],
        on_fail: Callable[[Replica, list[Request]], None],
    ) -> None:
        self._env = env
        self._pools = pools
        self._on_fail = on_fail
        self._since: dict[tuple[int, int], Tick] = {
            (number, place): 0
            for number, pool in enumerate(pools)
            for place, engines in enumerate(pool.replicas)
            if engines
        }
        self._stopped: list[tuple[int, Tick, Tick, list[Replica]]] = []
        for change in sorted(changes, key=lambda one: one.at):
            self._plan(change)

    def _plan(self, change: Change) -> None:
        after(self._env, change.at, lambda: self._act(change))
        if change.action in (
            "start",
            "recover",
        ):  # planned here, so that a later change of the same instant finds it open
            after(self._env, change.at + change.load, lambda: self._open(change))

    def _act(self, change: Change) -> None:
        pool, key = self._pools[change.pool], (change.pool, change.place)
        if change.action in ("start", "recover"):
            self._since.setdefault(key, change.at)
        elif change.action == "fail":
            for engine, requests in pool.fail(change.place):
                self._on_fail(engine, requests)
        else:
            engines = pool.stop(change.place)
            self._stopped.append((change.pool, self._since.pop(key), change.at, engines))

    def _open(self, change: Change) -> None:
        self._pools[change.pool].start(change.place)

    def presence(self, pool: int) -> list[tuple[Tick, Tick | None]]:
        """(from, to) of each replica of a pool that was paid for; None: to the end. A stopped one ends with its work.

        Loading counts, and so does the time between a failure and the recovery: the machine is kept.
        """
        present: list[tuple[Tick, Tick | None]] = [
            (since, max(at, *(engine.last_end for engine in engines)))
            for number, since, at, engines in self._stopped
            if number == pool
        ]
        return present + [(since, None) for (number, _), since in self._since.items() if number == pool]
