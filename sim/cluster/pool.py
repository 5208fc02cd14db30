"""Replicas of one kind behind a router."""

from __future__ import annotations

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
    """

    configs: Sequence[EngineConfig]
    timer: StepTimer
    router: Router
    report_interval_s: float = 0.0
    name: str = "engine"


class Pool:
    """The replicas of a plan, numbered from ``first``.

    Attributes:
        replicas: all of them.
    """

    def __init__(self, plan: PoolPlan, first: int, build: Callable[[PoolPlan, int, EngineConfig], Replica]) -> None:
        self.plan = plan
        self.replicas = [build(plan, first + place, config) for place, config in enumerate(plan.configs)]

    def choose(self, request: Request) -> Replica:
        """The replica for ``request``, by the router."""
        return self.replicas[self.plan.router.choose(request, self.replicas)]

    def rejects(self, request: Request) -> str | None:
        """Why no replica could ever serve ``request``, or None."""
        return self.replicas[0].scheduler.rejects(request)

    def state(self) -> str:
        """How many requests stand where, for the message of a run that cannot go on."""
        counts = dict.fromkeys(("running", "waiting", "waiting for room for their KV cache", "KV cache under way"), 0)
        kept = free = 0
        for replica in self.replicas:
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
