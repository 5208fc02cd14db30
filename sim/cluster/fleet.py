"""Requests in, replicas behind a router, records out: one run of the discrete-event simulation."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy
from simpy.core import SimTime
from simpy.events import URGENT

from sim.cluster.router import Router
from sim.cost.shape import StepTimer
from sim.engine.config import EngineConfig
from sim.engine.log import Line, StepLog
from sim.engine.recorder import REJECTED, UNFINISHED, Recorder
from sim.engine.replica import Replica
from sim.engine.request import Request, Tick
from sim.engine.vllm import VllmScheduler
from sim.workload import Workload


class Arrival(simpy.Event):
    """A timeout that goes off before everything else of the same instant: arrivals join before a step is scheduled."""

    def __init__(self, env: simpy.Environment, delay: SimTime) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=URGENT, delay=delay)


@dataclass(frozen=True, slots=True)
class ClientPath:
    """Time outside the engine's steps, seconds: the API server and the client's stream.

    Attributes:
        to_queue_s: from the client's send to the engine's queue.
        first_token_s: from the first token's computation to the client.
        last_token_s: from the last token's computation to the client, per-token handling included.
    """

    to_queue_s: float = 0.0
    first_token_s: float = 0.0
    last_token_s: float = 0.0


class Fleet:
    """Replicas of one engine behind a router, fed by a workload.

    Args:
        workload: the requests, in id order.
        configs: one engine configuration a replica.
        timer: how long steps take; its ticks are ``tick_s`` seconds.
        router: where each arrival goes.
        report_interval_s: how often replicas report their loads to a router that does not know the truth; 0: never.
        jump: time by change (default) or one event a step.
        on_line: called with each step-log line; None = no step log.
        progress: called now and then with the finished share of requests, 0 to 1.
        arrival_steps: step number before which a request arrives, instead of its time (tests of scheduling).
    """

    def __init__(
        self,
        workload: Workload,
        configs: list[EngineConfig],
        timer: StepTimer,
        router: Router,
        *,
        report_interval_s: float = 0.0,
        tick_s: float = 1.0,
        path: ClientPath | None = None,
        jump: bool = True,
        on_line: Callable[[Line], None] | None = None,
        progress: Callable[[float], None] | None = None,
        arrival_steps: dict[int, int] | None = None,
    ) -> None:
        self.env = simpy.Environment()
        self.workload = workload
        path = path or ClientPath()
        self.recorder = Recorder(tick_s, (path.first_token_s, path.last_token_s))
        self._to_queue: Tick = path.to_queue_s / tick_s if path.to_queue_s else 0
        self._router = router
        self._report_interval = to_ticks(report_interval_s, tick_s)
        self._tick_s = tick_s
        self._progress = progress
        self._over = 0
        self._live: dict[int, Request] = {}
        self._due: deque[int] = deque()
        self._followers = _followers(workload)
        scripted = deque(sorted((step, index) for index, step in (arrival_steps or {}).items()))
        self.replicas = [
            self._replica(i, config, timer, jump, on_line, scripted if i == 0 else deque())
            for i, config in enumerate(configs)
        ]

    def _replica(
        self,
        index: int,
        config: EngineConfig,
        timer: StepTimer,
        jump: bool,
        on_line: Callable[[Line], None] | None,
        scripted: deque[tuple[int, int]],
    ) -> Replica:
        scheduler = VllmScheduler(config, timer.window)
        log = StepLog(on_line, self._to_us, scheduler) if on_line else None
        return Replica(
            self.env,
            scheduler,
            timer,
            self.recorder,
            self._done,
            index=index,
            jump=jump,
            log=log,
            scripted=scripted,
            arrive=self._submit_now,
        )

    def run(self) -> None:
        """Run until the last request is over.

        Raises:
            SimulationStalledError: nothing can move although requests wait.
        """
        self.env.process(self._source())
        if self._report_interval:
            self.env.process(self._report())
        self.env.run()
        for request in self._live.values():
            self.recorder.request(request, UNFINISHED)

    @property
    def events(self) -> int:
        """Times that replicas woke up."""
        return sum(replica.events for replica in self.replicas)

    @property
    def engine_steps(self) -> int:
        """Steps that engines ran."""
        return sum(replica.steps for replica in self.replicas)

    def _report(self) -> Generator[simpy.Event, Any, None]:
        """Loads become known from time to time, while anything can still change."""
        while self.env.peek() != simpy.core.Infinity:
            self._router.reports.take(self.replicas)
            yield Arrival(self.env, self._report_interval)

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def _source(self) -> Generator[simpy.Event, Any, None]:
        env = self.env
        for index, arrival in _arrivals(self.workload, self._tick_s):
            queued = arrival + self._to_queue
            if queued > env.now:
                yield Arrival(env, queued - env.now)
            self._submit(self._request(index, arrival))

    def _follow(self, index: int, think: Tick) -> Generator[simpy.Event, Any, None]:
        arrival = self.env.now + think
        yield Arrival(self.env, think + self._to_queue)
        self._submit(self._request(index, arrival))

    def _request(self, index: int, arrival: Tick) -> Request:
        load = self.workload
        request = Request(
            index,
            int(load.prompt_tokens[index]),
            int(load.output_tokens[index]),
            arrival=arrival,
            priority=0 if load.priority is None else int(load.priority[index]),
            session=-1 if load.session_id is None else int(load.session_id[index]),
            spans=None if load.prefixes is None else load.prefixes.of(index),
        )
        request.queued = arrival + self._to_queue
        return request

    def _submit(self, request: Request) -> None:
        replica = self.replicas[self._router.choose(request, self.replicas)]
        reason = replica.scheduler.rejects(request)
        if reason is None:
            self._live[request.id] = request
            replica.submit(request)
            return
        self.recorder.request(request, REJECTED, reason)
        self._over_with(request)

    # -- ends ---------------------------------------------------------------------------------------------------------

    def _done(self, request: Request) -> None:
        del self._live[request.id]
        self._over_with(request)

    def _over_with(self, request: Request) -> None:
        self._over += 1
        if self._progress and not self._over % 256:
            self._progress(self._over / len(self.workload))
        for follower in self._followers.get(request.id, ()):
            think = 0.0 if self.workload.think_s is None else float(self.workload.think_s[follower])
            ticks = to_ticks(think, self._tick_s)
            if ticks + self._to_queue > 0:
                self.env.process(self._follow(follower, ticks))
            else:
                self._submit_now(follower)

    def _submit_now(self, index: int) -> None:
        """Submit a follower in this very instant; a loop, since a chain of refused followers may be long."""
        self._due.append(index)
        if len(self._due) == 1:
            while self._due:
                self._submit(self._request(self._due[0], self.env.now))
                self._due.popleft()

    def _to_us(self, tick: Tick) -> int:
        return round(tick * self._tick_s * 1e6)


def to_ticks(seconds: float, tick_s: float) -> Tick:
    """Seconds as ticks: whole ones unless a tick is a second."""
    return seconds if tick_s == 1.0 else round(seconds / tick_s)


def _followers(workload: Workload) -> dict[int, list[int]]:
    """Requests that wait for each request to finish."""
    followers: dict[int, list[int]] = {}
    if workload.after is not None:
        for index in np.flatnonzero(workload.after >= 0).tolist():
            followers.setdefault(int(workload.after[index]), []).append(index)
    return followers


def _arrivals(workload: Workload, tick_s: float) -> Iterator[tuple[int, Tick]]:
    """(id, tick) of the requests that arrive by the clock, by time, then id."""
    timed = np.flatnonzero(~np.isnan(workload.arrival_s))
    order = timed[np.argsort(workload.arrival_s[timed], kind="stable")]
    for start in range(0, len(order), 4096):
        part = order[start : start + 4096]
        for index, arrival in zip(part.tolist(), workload.arrival_s[part].tolist(), strict=True):
            yield index, to_ticks(arrival, tick_s)
