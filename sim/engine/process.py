"""An engine as a process that others can reach: requests come in, changes wake it up, a failure ends it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

import simpy
from mypy_extensions import mypyc_attr
from simpy.core import SimTime
from simpy.events import NORMAL, EventPriority

from sim.engine.inbox import Inbox
from sim.engine.jump import Jump
from sim.engine.request import Request, Tick
from sim.engine.scheduler import Scheduler
from sim.engine.stall import SimulationStalledError, stalled
from sim.engine.step import InFlight


class Alarm(simpy.Event):
    """A timeout with an engine's ``alarm_priority``: of several at one instant the first engine's goes off first."""

    def __init__(self, env: simpy.Environment, delay: SimTime, priority: EventPriority) -> None:
        self.env = env  # without a call of the base class, as SimPy's own timeouts
        self.callbacks = []
        self._ok = True
        self._value = None
        env.schedule(self, priority, delay)

    def moved(self, delay: SimTime, priority: EventPriority) -> Alarm:
        """Another that wakes who waits for this one, after ``delay`` from now; this one goes off unheard."""
        other = Alarm(self.env, delay, priority)
        other.callbacks, self.callbacks = self.callbacks, []
        return other


@mypyc_attr(allow_interpreted_subclasses=True)
class EngineProcess(ABC):
    """What a running engine shows to the rest of a fleet, and how it sleeps.

    Attributes:
        index: its number in the records.
        steps: steps scheduled so far, after those of a former engine in its place.
        first_step: steps of that former engine.
        events: times the process woke up.
        inbox: where KV caches pass between engines; None: they do not.
        on_start: called as a request that keeps its KV cache for another engine begins to run, with the tick.
    """

    def __init__(self, env: simpy.Environment, scheduler: Scheduler, index: int) -> None:
        self.env = env
        self.scheduler = scheduler
        self.index = index
        self.alarm_priority = EventPriority(NORMAL + index)
        self.steps = self.first_step = 0
        self.events = 0
        self.inbox: Inbox | None = None
        self.on_start: Callable[[Request, Tick], None] | None = None
        self._last_end: Tick = 0.0
        self._jump: Jump | None = None
        self._alarm: Alarm | None = None
        self._idle: simpy.Event | None = None
        self._alive = True
        env.process(self._live())

    @abstractmethod
    def _run(self) -> Generator[simpy.Event, Any, None]:
        """Serve as long as the engine is alive."""

    @abstractmethod
    def _settle(self, jump: Jump) -> InFlight:
        """Account for the steps of a jump that were done; return the last of them, whose output is yet to come in."""

    def _live(self) -> Generator[simpy.Event, Any, None]:
        return self._run()

    # -- from outside -------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """Queue a request now."""
        request.replica = self.index
        matters = self.scheduler.add(request)
        if self._jump is not None:
            self._jump.arrivals.append(self.env.now)
        if matters or self._idle is not None:
            self.poke()

    def poke(self) -> None:
        """Let the next schedule come as soon as it may: something changed that it must see."""
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None
        elif self._jump is not None and self._jump.shorten(self.env.now):
            assert self._alarm is not None
            self._alarm = self._alarm.moved(self._jump.wake - self.env.now, self.alarm_priority)

    def crash(self) -> list[Request]:
        """Stop at once and for good; return the requests that were here, those running first."""
        self._halt()
        lost = list(self.scheduler.running)
        while self.scheduler.waiting:
            lost.append(self.scheduler.waiting.pop())
        lost += self.scheduler.fetching
        return lost + (self.inbox.lost() if self.inbox is not None else [])

    def _halt(self) -> None:
        """Account for the steps of a jump that were scheduled by now, and wake up no more."""
        if self._jump is not None:
            self._jump.steps = self._jump.scheduled_before(self.env.now)
            if self._jump.steps:
                self._settle(self._jump)
        self._alive = False
        if self._alarm is not None:
            self._alarm.callbacks = []
        self._idle = self._jump = None

    @property
    def alive(self) -> bool:
        """Whether the engine did not fail."""
        return self._alive

    @property
    def last_end(self) -> Tick:
        """When the last step scheduled so far ends."""
        return self._last_end

    @property
    def unsettled_steps(self) -> int:
        """Steps of a jump that are scheduled by now, beyond the state that the scheduler shows."""
        return self._jump.scheduled_before(self.env.now) if self._jump is not None else 0

    # -- sleeping -----------------------------------------------------------------------------------------------------

    def _wait(self) -> simpy.Event:
        """Until something comes from outside, or until the scheduler wants to look again at those that wait."""
        until = self._look_again()
        self._idle = self.env.event()
        return self._idle if until is None else self._idle | self._sleep_until(until)

    def _look_again(self) -> Tick | None:
        """When the scheduler wants to look again at those that wait; None: when something comes from outside.

        Raises:
            SimulationStalledError: nothing will come for those that wait.
        """
        moments = (self.scheduler.patience() if self.scheduler.waiting else None, self.scheduler.landing())
        until = min((moment for moment in moments if moment is not None), default=None)
        inbox = self.inbox
        if until is None and not (inbox is not None and inbox.pending):
            if self.scheduler.waiting:
                raise self._stalled("requests wait and none runs")
            if inbox is not None and inbox.waiting:
                raise self._stalled(f"{len(inbox.waiting)} requests wait for room for their KV cache and none runs")
        return until

    def _stalled(self, what: str) -> SimulationStalledError:
        return stalled(self.index, self.env.now, self.scheduler, what)

    def _sleep_until(self, tick: Tick) -> simpy.Event:
        self.events += 1
        env = self.env
        alarm = self._alarm = Alarm(env, tick - env.now, self.alarm_priority)
        return alarm
