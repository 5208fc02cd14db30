"""What a router knows of its replicas' loads: the truth, or what they last reported."""

from __future__ import annotations

from collections.abc import Iterable

from sim.engine.load import METRICS
from sim.engine.replica import Replica


class Reports:
    """Loads by one metric.

    Args:
        metric: ``requests``, ``tokens`` or ``kv`` (`sim.engine.load`).
        stale: replicas report from time to time (`take`); in between the router sees the last report, and a replica
            that never reported counts as empty.
    """

    def __init__(self, metric: str = "requests", *, stale: bool = False) -> None:
        self._measure = METRICS[metric]
        self._stale = stale
        self._told: dict[int, float] = {}

    def take(self, replicas: Iterable[Replica]) -> None:
        """All ``replicas`` report now."""
        self._told = {replica.index: self._measure(replica) for replica in replicas}

    def of(self, replica: Replica) -> float:
        """The load of ``replica`` as the router knows it."""
        return self._told.get(replica.index, 0.0) if self._stale else self._measure(replica)
