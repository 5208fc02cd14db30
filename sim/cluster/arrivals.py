"""When requests reach the engines: events ahead of all others of their instant, and the order of arrivals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import simpy
from simpy.core import SimTime
from simpy.events import URGENT

from sim.engine.request import Request, Tick
from sim.workload import Workload


class Arrival(simpy.Event):
    """A timeout that goes off before everything else of the same instant: arrivals join before a step is scheduled."""

    def __init__(self, env: simpy.Environment, delay: SimTime) -> None:
        self.env = env  # without a call of the base class, as SimPy's own timeouts
        self.callbacks = []
        self._ok = True
        self._value = None
        env.schedule(self, URGENT, delay)


def after(env: simpy.Environment, delay: Tick, act: Callable[[], None]) -> simpy.Event:
    """Call ``act`` after ``delay``, ahead of all else of that instant; without its callbacks the event does nothing."""
    event = Arrival(env, delay)
    assert event.callbacks is not None
    event.callbacks.append(lambda _: act())
    return event


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


def to_ticks(seconds: float, tick_s: float) -> Tick:
    """Seconds as ticks: whole ones unless a tick is a second."""
    return seconds if tick_s == 1.0 else round(seconds / tick_s)


class Followers:
    """Requests that wait for others to end: for a certain one, for any, or for the last of a warm-up.

    Args:
        workload: with its columns ``after``, ``in_turn`` and ``warmup``.
    """

    def __init__(self, workload: Workload) -> None:
        self._chained: dict[int, list[int]] = {}
        follows = np.zeros(len(workload), bool)
        if workload.after is not None:
            follows = workload.after >= 0
            for index in np.flatnonzero(follows).tolist():
                self._chained.setdefault(int(workload.after[index]), []).append(index)
        self._in_turn: deque[int] = deque()
        if workload.in_turn is not None:
            self._in_turn.extend(workload.in_turn.tolist())
            follows[workload.in_turn] = True
        self._warmup = self.warming = workload.warmup
        self._openers = np.flatnonzero(np.isnan(workload.arrival_s) & ~follows).tolist() if workload.warmup else []

    def after(self, index: int) -> list[int]:
        """Who is to be sent now that request ``index`` is over; a warm-up lets nobody follow from beyond it."""
        due = list(self._chained.get(index, ()))
        warm = index < self._warmup
        if self._in_turn and (self._in_turn[0] < self._warmup) == warm:
            due.append(self._in_turn.popleft())
        if warm:
            self.warming -= 1
            if not self.warming:
                due += self._openers
        return due


def timed_requests(workload: Workload, tick_s: float, to_queue: Tick) -> Iterator[Request]:
    """The requests that arrive by the clock, by time, then id; each is queued ``to_queue`` after its arrival."""
    timed = np.flatnonzero(~np.isnan(workload.arrival_s))
    order = timed[np.argsort(workload.arrival_s[timed], kind="stable")]
    for start in range(0, len(order), 4096):
        part = order[start : start + 4096]
        columns = part, workload.arrival_s[part], workload.prompt_tokens[part], workload.output_tokens[part]
        for index, arrival_s, prompt, output in zip(*(column.tolist() for column in columns), strict=True):
            arrival = to_ticks(arrival_s, tick_s)
            yield _request(workload, index, prompt, output, arrival, arrival + to_queue)


def request_of(workload: Workload, index: int, arrival: Tick, queued: Tick) -> Request:
    """Request ``index`` as an engine sees it."""
    prompt, output = int(workload.prompt_tokens[index]), int(workload.output_tokens[index])
    return _request(workload, index, prompt, output, arrival, queued)


def _request(workload: Workload, index: int, prompt: int, output: int, arrival: Tick, queued: Tick) -> Request:
    request = Request(
        index,
        prompt,
        output,
        arrival=arrival,
        priority=0 if workload.priority is None else int(workload.priority[index]),
        session=-1 if workload.session_id is None else int(workload.session_id[index]),
        spans=None if workload.prefixes is None else workload.prefixes.of(index),
    )
    request.queued = queued
    return request
