"""Prefill in one pool, decode in another: a request's way from one to the other, its KV cache over a link."""

from __future__ import annotations

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
        receive_s_per_token: host time of the decode engine for each prompt token of a request that joins its batch.
        layerwise: the decode side takes blocks before the prefill begins, and layers are sent as they are computed;
            otherwise it takes them when the prefill has ended, and everything is sent then.
    """

    decode: PoolPlan
    bytes_per_token: float
    bytes_per_s: float
    latency_s: float = 0.0
    layers: int = 1
    receive_s_per_token: float = 0.0
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
    room: bool = False
    prefill_asked: bool = False
    prefilled: bool = False


class Handover:
    """Sends requests through both pools.

    Args:
        env: the clock.
        plan: sizes and order of the transfer.
        tick_s: seconds of a tick.

    Attributes:
        prefill, decode: the pools, set by the fleet that builds them.
    """

    prefill: Pool
    decode: Pool

    def __init__(self, env: simpy.Environment, plan: Handoff, tick_s: float) -> None:
        self.env = env
        self._plan, self._tick_s = plan, tick_s
        self._latency: Tick = plan.latency_s if tick_s == 1.0 else round(plan.latency_s / tick_s)
        self._links = Links(env, plan.bytes_per_s * tick_s, whole_ticks=tick_s != 1.0)
        self._journeys: dict[int, Journey] = {}

    def connect(self, replica: Replica, decodes: bool) -> None:
        """Let caches pass to or from a new replica."""
        replica.inbox = Inbox(replica.scheduler, self._room)
        if not decodes:
            replica.on_start = self._started
        elif self._plan.receive_s_per_token:
            replica.inbox.host_work = self._host_work

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
        request.admitted, request.preemptions, request.prefill_replica = leg.admitted, leg.preemptions, leg.replica
        request.cached_tokens, request.resume_cached_tokens = leg.cached_tokens, leg.resume_cached_tokens
        if not self._plan.layerwise:
            self._expect(journey)
        elif journey.flow is not None:
            self._links.close(journey.flow, journey.size / self._plan.layers)
        elif journey.room:
            self._send(journey)

    def lost(self, replica: Replica, requests: list[Request]) -> list[Request]:
        """``replica`` failed with ``requests`` in it; return those that must begin anew, whose caches are gone.

        A cache that a prefill engine still keeps is sent to another decode engine.
        """
        begin_anew = [request for request in requests if request.id not in self._journeys]
        for journey in list(self._journeys.values()):
            if journey.source is replica:
                begin_anew.append(self._abandon(journey))
            elif journey.target is replica:
                self._drop(journey)
                self._expect(journey)
        return begin_anew

    def _abandon(self, journey: Journey) -> Request:
        """The prefill side is gone: the decode side need not wait."""
        del self._journeys[journey.request.id]
        self._drop(journey)
        if journey.target is not None:
            inbox = journey.target.inbox
            assert inbox is not None
            inbox.withdraw(journey.request)
            journey.target.poke()
        return journey.request

    def _drop(self, journey: Journey) -> None:
        if journey.flow is not None:
            self._links.drop(journey.flow)
        journey.flow, journey.room = None, False

    # -- the way ------------------------------------------------------------------------------------------------------

    def _start_prefill(self, journey: Journey) -> None:
        def begin(replica: Replica) -> None:
            journey.source = replica
            replica.submit(journey.leg)

        journey.prefill_asked = True
        self.prefill.assign(journey.leg, begin)

    def _expect(self, journey: Journey) -> None:
        def begin(replica: Replica) -> None:
            if self._journeys.get(journey.request.id) is not journey:
                return  # no replica accepted requests, and by now the prefill side is gone too
            journey.target = replica
            journey.request.replica = replica.index
            assert replica.inbox is not None
            replica.inbox.expect(journey.request)
            replica.poke()

        journey.target = None
        self.decode.assign(journey.request, begin)

    def _room(self, request: Request, tokens: int) -> None:
        """The decode side holds blocks for all of the prompt; ``tokens`` of it are not in its cache."""
        journey = self._journeys[request.id]
        journey.size, journey.room = tokens * self._plan.bytes_per_token, True
        if journey.prefilled:
            self._send(journey)
        elif not journey.prefill_asked:
            self._start_prefill(journey)

    def _host_work(self, tokens: int) -> Tick:
        """Ticks of a decode engine's host for so many prompt tokens that come in."""
        ticks = self._plan.receive_s_per_token * tokens / self._tick_s
        return ticks if self._tick_s == 1.0 else round(ticks)

    def _started(self, leg: Request, start: Tick) -> None:
        """The first chunk of ``leg`` begins to run at ``start``: its layers are sent as they are computed."""
        journey = self._journeys[leg.id]

        def begin() -> None:
            if journey.room and not journey.prefilled:
                self._open(journey, journey.size * (1 - 1 / self._plan.layers))

        if self._plan.layerwise:
            after(self.env, start - self.env.now + self._latency, begin)

    def _send(self, journey: Journey) -> None:
        target = journey.target

        def begin() -> None:
            if journey.target is target and self._journeys.get(journey.request.id) is journey:
                self._links.close(self._open(journey, journey.size))

        after(self.env, self._latency, begin)

    def _open(self, journey: Journey, size: float) -> Flow:
        source, target = journey.source, journey.target
        assert source is not None
        assert target is not None
        journey.flow = self._links.open(source.index, target.index, size, lambda: self._landed(journey))
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
