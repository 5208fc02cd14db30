"""Replicas of one kind behind a router."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sim.cluster.router import Router
from sim.cost.shape import StepTimer
from sim.engine.config import EngineConfig
from sim.engine.replica import Replica
from sim.engine.request import Request


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """What a pool is made of.

    Attributes:
        configs: one engine configuration a replica.
        timer: how long steps take.
        router: where each request goes.
        report_interval_s: how often replicas report their loads to a router that does not know the truth; 0: never.
        name: what messages call it.
        present: how many of the replicas are there from the beginning, at least one; None: all.
        ranks: data-parallel ranks of each, engines of their own for router and records.
        together: the ranks step together (`sim.engine.data_parallel`), since they share experts.
    """

    configs: Sequence[EngineConfig]
    timer: StepTimer
    router: Router
    report_interval_s: float = 0.0
    name: str = "engine"
    present: int | None = None
    ranks: int = 1
    together: bool = False


Build = Callable[["PoolPlan", int, EngineConfig], list[Replica]]


class Pool:
    """The replicas of a plan, each one engine or the data-parallel ranks of one; engines are numbered from ``first``.

    Attributes:
        replicas: the engines of each place at present; none where nothing was started yet.
        open: those that accept requests.
        gone: those that failed, or stopped and were replaced.
    """

    def __init__(self, plan: PoolPlan, first: int, build: Build) -> None:
        self.plan = plan
        self.first = first
        self.open: list[Replica] = []
        self.gone: list[Replica] = []
        self.replicas: list[list[Replica]] = [[] for _ in plan.configs]
        self._build = build
        self._held: deque[tuple[Request, Callable[[Replica], None]]] = deque()
        for place in range(len(plan.configs) if plan.present is None else plan.present):
            self.start(place)

    def assign(self, request: Request, then: Callable[[Replica], None]) -> None:
        """Choose an engine for ``request`` and call ``then`` with it: now, or as soon as one accepts requests."""
        if self.open:
            then(self.open[self.plan.router.choose(request, self.open)])
        else:
            self._held.append((request, then))

    def rejects(self, request: Request) -> str | None:
        """Why no engine could ever serve ``request``, or None."""
        return self._latest.scheduler.rejects(request)

    # -- coming and going ---------------------------------------------------------------------------------------------

    def start(self, place: int) -> None:
        """A replica accepts requests from now on, and those that waited for one go to it."""
        engines = self._build(self.plan, self.first + place * self.plan.ranks, self.plan.configs[place])
        for engine, former in zip(engines, self.replicas[place], strict=False):
            engine.steps = engine.first_step = former.steps + former.unsettled_steps
            self.gone.append(former)
        self.replicas[place], self._latest = engines, engines[0]
        at = bisect_left(self.open, engines[0].index, key=lambda one: one.index)
        self.open[at:at] = engines  # numbered in a row
        held, self._held = self._held, deque()
        for request, then in held:
            self.assign(request, then)

    def stop(self, place: int) -> list[Replica]:
        """A replica accepts no more requests, and ends those that it has; return its engines."""
        for engine in self.replicas[place]:
            if engine in self.open:
                self.open.remove(engine)
                self.plan.router.forget(engine)
        return self.replicas[place]

    def fail(self, place: int) -> list[tuple[Replica, list[Request]]]:
        """A replica is gone at once; return its engines, each with what it was serving."""
        return [(engine, engine.crash()) for engine in self.stop(place)]

    # -- looking ------------------------------------------------------------------------------------------------------

    def all(self) -> list[Replica]:
        """Every engine there ever was, the present ones first."""
        return [engine for engines in self.replicas for engine in engines] + self.gone

    def state(self) -> str:
        """How many requests stand where, for the message of a run that cannot go on."""
        counts: dict[str, int] = {}
        free = 0
        for engine in (engine for engines in self.replicas for engine in engines if engine.alive):
            scheduler, inbox = engine.scheduler, engine.inbox
            for name, requests in (
                ("running", scheduler.running),
                ("waiting", scheduler.waiting),
                ("waiting for room for their KV cache", inbox.waiting if inbox else ()),
                ("KV cache under way", inbox.coming if inbox else ()),
                ("done and keeping their KV cache", scheduler.kept),
            ):
                counts[name] = counts.get(name, 0) + len(requests)
            free += scheduler.pool.free
        listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        return f"{listed or 'no requests'}, {free} blocks free"
