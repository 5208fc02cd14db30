"""Which replica serves an arrival: policies that know loads and look at a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from sim.cluster.reports import Reports
from sim.engine.replica import Replica
from sim.engine.request import Request

_STREAM: Final = 0x726F757465  # spawn key of the routers' random numbers, apart from the workload's


class Router(Protocol):
    """Chooses a replica for each request as it arrives.

    Attributes:
        reports: the loads it goes by; a fleet with stale reports renews them.
    """

    reports: Reports

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Position in ``replicas`` (those that accept requests now, at least one) of the one that gets ``request``."""
        ...

    def forget(self, replica: Replica) -> None:
        """``replica`` is gone, and its cache with it."""
        ...


class _Stateless:
    """What routers without memory of single replicas have in common."""

    def __init__(self, reports: Reports | None = None) -> None:
        self.reports = reports or Reports()

    def forget(self, replica: Replica) -> None:
        """Nothing is remembered of a replica."""


class RoundRobin(_Stateless):
    """Replicas in turn."""

    def __init__(self, reports: Reports | None = None) -> None:
        super().__init__(reports)
        self._next = 0

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """The next in turn."""
        chosen = self._next % len(replicas)
        self._next = chosen + 1
        return chosen


class LeastLoaded(_Stateless):
    """The replica with the smallest load; the first of equals."""

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Smallest load."""
        return least_loaded(self.reports, replicas)


class Random(_Stateless):
    """Any replica, all equally likely."""

    def __init__(self, seed: int = 0, reports: Reports | None = None) -> None:
        super().__init__(reports)
        self._rng = generator(seed)

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Uniform."""
        return int(self._rng.integers(len(replicas)))


class PowerOfTwo(_Stateless):
    """The less loaded of two drawn at random (Mitzenmacher, IEEE TPDS 12(10), 2001); the first drawn of equals."""

    def __init__(self, seed: int = 0, reports: Reports | None = None) -> None:
        super().__init__(reports)
        self._rng = generator(seed)

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """The better of two."""
        count = len(replicas)
        if count == 1:
            return 0
        first = int(self._rng.integers(count))
        second = (first + 1 + int(self._rng.integers(count - 1))) % count
        return second if self.reports.of(replicas[second]) < self.reports.of(replicas[first]) else first


class SessionSticky(_Stateless):
    """A conversation stays where it began; a new one, or a request without one, goes to the smallest load."""

    def __init__(self, reports: Reports | None = None) -> None:
        super().__init__(reports)
        self._home: dict[int, int] = {}

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """The conversation's replica while it accepts requests."""
        home = self._home.get(request.session)
        if home is not None:
            for position, replica in enumerate(replicas):
                if replica.index == home:
                    return position
        chosen = least_loaded(self.reports, replicas)
        if request.session >= 0:
            self._home[request.session] = replicas[chosen].index
        return chosen


def least_loaded(reports: Reports, replicas: Sequence[Replica]) -> int:
    """Position of the smallest load, the first of equals."""
    return min(range(len(replicas)), key=lambda position: reports.of(replicas[position]))


def generator(seed: int) -> np.random.Generator:
    """Random numbers of a router, independent of those that made the workload."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_STREAM,))))
