"""Prefill in one pool, decode in another: a request's way from one to the other, its KV cache over a link."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from sim.cluster.arrivals import after
from sim.cluster.links import Flow, Links
from sim.cluster.pool import Pool, PoolPlan
from sim.engine.inbox import Inbox
from sim.engine.replica import Replica
from sim.engine.request import Request, Tick


@dataclass(frozen=True, slots=True)
class Handoff:
    """What the split adds to the prefill pool.

    Attributes:
        decode: the other pool.
        bytes_per_token: KV cache of one token, all GPUs of a decode replica together.
        bytes_per_s: of each replica's link, one direction.
        latency_s: from the decision to the first byte.
        layers: of the model: with ``layerwise``, all but the last one's share can be sent before the prefill ends.
        layerwise: the decode side takes blocks before the prefill begins, and layers are sent as they are computed;
            otherwise it takes them when the prefill has ended, and everything is sent then.
    """

    decode: PoolPlan
    bytes_per_token: float
    bytes_per_s: float
    latency_s: float = 0.0
    layers: int = 1
    layerwise: bool = False


@dataclass(slots=True)
class Journey:
    """A request between the pools: ``leg`` is the part of it that the prefill engine sees."""

    request: Request
    leg: Request
    source: Replica | None = None
    target: Replica | None = None
    flow: Flow | None = None
    size: float = 0.0
    prefilled: bool = False


class Handover:
    """Sends requests through both pools.

    Args:
        env: the clock.
        plan: sizes and order of the transfer.
        prefill, decode: the pools.
        tick_s: seconds of a tick.
    """

    def __init__(self, env: simpy.Environment, plan: Handoff, prefill: Pool, decode: Pool, tick_s: float) -> None:
        self.env = env
        self.prefill = prefill
        self.decode = decode
        self._plan = plan
        self._latency: Tick = plan.latency_s if tick_s == 1.0 else round(plan.latency_s / tick_s)
        self._links = Links(env, plan.bytes_per_s * tick_s, whole_ticks=tick_s != 1.0)
        self._journeys: dict[int, Journey] = {}
        for replica in prefill.replicas:
            self._connect(replica, self._unexpected)
            replica.on_start = self._started
        for replica in decode.replicas:
            self._connect(replica, self._room)

    def _connect(self, replica: Replica, on_room: Callable[[Request, int], None]) -> None:
        replica.inbox = Inbox(replica.scheduler, on_room)

    def _unexpected(self, request: Request, tokens: int) -> None:
        raise AssertionError(f"{request!r} was expected by a prefill engine")

    def rejects(self, request: Request) -> str | None:
        """Why one of the pools could never serve ``request``, or None."""
        for pool, part in ((self.prefill, _leg(request)), (self.decode, request)):
            reason = pool.rejects(part)
            if reason is not None:
                return f"{reason} of the {pool.plan.name} pool"
        return None

    def submit(self, request: Request) -> None:
        """Send a request of more than one output token on its way."""
        journey = self._journeys[request.id] = Journey(request, _leg(request))
        if self._plan.layerwise:
            self._expect(journey)
        else:
            self._start_prefill(journey)

    def prefilled(self, leg: Request) -> None:
        """A prefill engine has taken in the first token of ``leg``."""
        journey = self._journeys[leg.id]
        journey.prefilled = True
        request = journey.request
        request.admitted, request.preemptions = leg.admitted, leg.preemptions
        request.cached_tokens, request.resume_cached_tokens = leg.cached_tokens, leg.resume_cached_tokens
        if not self._plan.layerwise:
            self._expect(journey)
        elif journey.flow is None:
            self._send(journey, journey.size)
        else:
            self._links.close(journey.flow, journey.size / self._plan.layers)

    # -- the way ------------------------------------------------------------------------------------------------------

    def _start_prefill(self, journey: Journey) -> None:
        journey.source = self.prefill.choose(journey.leg)
        journey.source.submit(journey.leg)

    def _expect(self, journey: Journey) -> None:
        journey.target = self.decode.choose(journey.request)
        journey.request.replica = journey.target.index
        assert journey.target.inbox is not None
        journey.target.inbox.expect(journey.request)
        journey.target.poke()

    def _room(self, request: Request, tokens: int) -> None:
        """The decode side holds blocks for all of the prompt; ``tokens`` of it are not in its cache."""
        journey = self._journeys[request.id]
        journey.size = tokens * self._plan.bytes_per_token
        if self._plan.layerwise:
            self._start_prefill(journey)
        else:
            self._send(journey, journey.size)

    def _started(self, leg: Request, start: Tick) -> None:
        """The first chunk of ``leg`` begins to run at ``start``: its layers are sent as they are computed."""
        journey = self._journeys[leg.id]

        def begin() -> None:
            if not journey.prefilled:
                self._open(journey, journey.size * (1 - 1 / self._plan.layers))

        if self._plan.layerwise:
            after(self.env, start - self.env.now + self._latency, begin)

    def _send(self, journey: Journey, size: float) -> None:
        def begin() -> None:
            self._links.close(self._open(journey, size))

        after(self.env, self._latency, begin)

    def _open(self, journey: Journey, size: float) -> Flow:
        assert journey.source is not None
        assert journey.target is not None
        journey.flow = self._links.open(journey.source.index, journey.target.index, size, lambda: self._landed(journey))
        return journey.flow

    def _landed(self, journey: Journey) -> None:
        del self._journeys[journey.request.id]
        for replica in (journey.source, journey.target):
            assert replica is not None
            assert replica.inbox is not None
            if replica is journey.source:
                replica.inbox.free(journey.leg)
            else:
                replica.inbox.land(journey.request)
            replica.poke()


def _leg(request: Request) -> Request:
    """The prefill of ``request``: the same prompt, one token out, blocks kept."""
    leg = Request(
        request.id,
        request.prompt,
        1,
        arrival=request.arrival,
        priority=request.priority,
        session=request.session,
        spans=request.spans,
    )
    leg.queued = request.queued
    leg.keeps_kv = True
    return leg
