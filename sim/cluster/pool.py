"""Replicas of one kind behind a router."""

from __future__ import annotations

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
    """

    configs: Sequence[EngineConfig]
    timer: StepTimer
    router: Router
    report_interval_s: float = 0.0
    name: str = "engine"
    present: int | None = None


class Pool:
    """The replicas of a plan, numbered from ``first``.

    Attributes:
        replicas: the present one of each place; None: there is none yet.
        open: those that accept requests.
        gone: those that failed, or stopped and were replaced.
    """

    def __init__(self, plan: PoolPlan, first: int, build: Callable[[PoolPlan, int, EngineConfig], Replica]) -> None:
        self.plan = plan
        self.first = first
        self.open: list[Replica] = []
        self.gone: list[Replica] = []
        self.replicas: list[Replica | None] = [None] * len(plan.configs)
        self._build = build
        self._held: deque[tuple[Request, Callable[[Replica], None]]] = deque()
        for place in range(len(plan.configs) if plan.present is None else plan.present):
            self.start(place)

    def assign(self, request: Request, then: Callable[[Replica], None]) -> None:
        """Choose a replica for ``request`` and call ``then`` with it: now, or as soon as one accepts requests."""
        if self.open:
            then(self.open[self.plan.router.choose(request, self.open)])
        else:
            self._held.append((request, then))

    def rejects(self, request: Request) -> str | None:
        """Why no replica could ever serve ``request``, or None."""
        return self._latest.scheduler.rejects(request)

    # -- coming and going ---------------------------------------------------------------------------------------------

    def start(self, place: int) -> Replica:
        """A replica accepts requests from now on, and those that waited for one go to it."""
        replica = self._build(self.plan, self.first + place, self.plan.configs[place])
        former = self.replicas[place]
        if former is not None:
            replica.steps = former.steps
            self.gone.append(former)
        self.replicas[place] = self._latest = replica
        self.open.append(replica)
        self.open.sort(key=lambda one: one.index)
        held, self._held = self._held, deque()
        for request, then in held:
            self.assign(request, then)
        return replica

    def stop(self, place: int) -> None:
        """A replica accepts no more requests, and ends those that it has."""
        replica = self.replicas[place]
        assert replica is not None
        self.open.remove(replica)
        self.plan.router.forget(replica)

    def fail(self, place: int) -> list[Request]:
        """A replica is gone at once; return what it was serving."""
        replica = self.replicas[place]
        assert replica is not None
        if replica in self.open:
            self.stop(place)
        return replica.crash()

    # -- looking ------------------------------------------------------------------------------------------------------

    def all(self) -> list[Replica]:
        """Every replica there ever was."""
        return [replica for replica in self.replicas if replica is not None] + self.gone

    def state(self) -> str:
        """How many requests stand where, for the message of a run that cannot go on."""
        counts = dict.fromkeys(("running", "waiting", "waiting for room for their KV cache", "KV cache under way"), 0)
        kept = free = 0
        for replica in self.replicas:
            if replica is None:
                continue
            scheduler, inbox = replica.scheduler, replica.inbox
            waiting, coming = (len(inbox.waiting), len(inbox.coming)) if inbox else (0, 0)
            for name, count in zip(
                counts, (len(scheduler.running), len(scheduler.waiting), waiting, coming), strict=True
            ):
                counts[name] += count
            kept += len(scheduler.kept)
            free += scheduler.pool.free
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"{listed}, {kept} done and keeping their KV cache, {free} blocks free"
