"""Which replica serves an arrival: policies that read the replicas' state and return an index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sim.engine.replica import Replica
from sim.engine.request import Request


class Router(Protocol):
    """Chooses a replica for each request as it arrives."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Index of the replica that gets ``request``."""
        ...


class RoundRobin:
    """Replicas in turn."""

    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """The next in turn."""
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded:
    """The replica with the fewest requests running and waiting; the first of equals."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Fewest requests."""
        return min(
            range(len(replicas)),
            key=lambda i: len(replicas[i].scheduler.running) + len(replicas[i].scheduler.waiting),
        )


ROUTERS: dict[str, type[Router]] = {"round_robin": RoundRobin, "least_loaded": LeastLoaded}
