"""A run of decode-only steps slept over at once: closed forms for when each ends and what an arrival changes."""

from __future__ import annotations

import math
from bisect import bisect_right

from sim.cost.shape import StepShape
from sim.engine.request import Tick


class Jump:
    """Steps 1 to ``steps`` after a step that ends at ``base``; step i takes ``first + (i - 1) * increment``.

    Attributes:
        depth: steps in flight: step i is scheduled when step i - depth has ended.
        next_schedule: when step 1 is scheduled, if ``depth`` is 2.
        shape: aggregates of step 1.
        waiting: queue length when the run was planned.
        stranded: free blocks in gaps too small for the head of the queue, then.
        arrivals: ticks of arrivals since, in order.
    """

    __slots__ = (
        "arrivals",
        "base",
        "depth",
        "first",
        "increment",
        "next_schedule",
        "shape",
        "steps",
        "stranded",
        "waiting",
    )

    def __init__(
        self,
        base: Tick,
        first: float,
        increment: float,
        steps: int,
        depth: int,
        next_schedule: Tick,
        shape: StepShape,
        waiting: int,
        stranded: int = 0,
    ) -> None:
        self.base = base
        self.first = first
        self.increment = increment
        self.steps = steps
        self.depth = depth
        self.next_schedule = next_schedule
        self.shape = shape
        self.waiting = waiting
        self.stranded = stranded
        self.arrivals: list[Tick] = []

    def end(self, step: int) -> Tick:
        """When step ``step`` ends (0: the step before the run)."""
        if self.increment:
            return self.base + step * self.first + self.increment * (step * (step - 1) // 2)
        return self.base + step * self.first

    def scheduled(self, step: int) -> Tick:
        """When step ``step`` is scheduled."""
        if self.depth == 1 or step > 1:
            return self.end(step - self.depth)
        return self.next_schedule

    def again(self, shape: StepShape, waiting: int) -> Jump:
        """The same run for another rank, with its own aggregates and queue."""
        return Jump(
            self.base,
            self.first,
            self.increment,
            self.steps,
            self.depth,
            self.next_schedule,
            shape,
            waiting,
            self.stranded,
        )

    @property
    def wake(self) -> Tick:
        """When the step after the run is to be scheduled."""
        step = self.steps + 1 - self.depth
        return self.end(step) if step >= 0 else self.next_schedule

    def waiting_at(self, step: int) -> int:
        """Queue length when step ``step`` is scheduled."""
        return self.waiting + bisect_right(self.arrivals, self.scheduled(step)) if self.arrivals else self.waiting

    def scheduled_before(self, now: Tick) -> int:
        """Steps of the run that are scheduled before ``now``."""
        if now <= self.scheduled(1):
            return 0
        steps = max(0, self._whole_steps(now - self.base)) + self.depth - 1
        while steps > 0 and self.scheduled(steps) >= now:
            steps -= 1
        while steps < self.steps and self.scheduled(steps + 1) < now:
            steps += 1
        return min(steps, self.steps)

    def shorten(self, now: Tick) -> bool:
        """End the run before the first step that is scheduled at or after ``now``; true if that is earlier."""
        steps = self.scheduled_before(now)
        if steps >= self.steps:
            return False
        self.steps = steps
        return True

    def _whole_steps(self, elapsed: float) -> int:
        """About how many steps end within ``elapsed``; the caller settles the last digit."""
        if elapsed <= 0:
            return 0
        if not self.increment:
            return math.ceil(elapsed / self.first)
        b = self.first - self.increment / 2
        return math.ceil((math.sqrt(b * b + 2 * self.increment * elapsed) - b) / self.increment)
