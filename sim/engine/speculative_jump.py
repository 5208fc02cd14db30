"""A run of verify steps slept over at once: their times are summed up, since each request moves on unevenly."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np

from sim.cost.shape import StepShape, StepTimer
from sim.engine.jump import Jump
from sim.engine.request import Tick
from sim.engine.speculative_group import CONTEXT, WINDOWED, Floats, Ints, VerifyGroup

MOST_STEPS: Final = 256  # of one run, so that an early arrival wastes little; runs follow each other seamlessly


class VerifyJump(Jump):
    """Steps 1 to ``steps`` of a `VerifyGroup` after one that ends at ``base``; ``first`` and ``increment`` are unused.

    Attributes:
        ends: when the step before the run and each of its steps end.
        times: the same, in an array.
        sums: (5, steps) sums of the group's steps.
    """

    __slots__ = ("ends", "sums", "times")

    def __init__(
        self, times: Floats, sums: Ints, *, steps: int, next_schedule: Tick, shape: StepShape, waiting: int
    ) -> None:
        self.ends: list[Tick] = times.tolist()
        super().__init__(self.ends[0], 0, 0, steps, 1, next_schedule, shape, waiting)
        self.times = times
        self.sums = sums

    def end(self, step: int) -> Tick:
        """When step ``step`` ends (0: the step before the run)."""
        return self.ends[step]

    def scheduled_before(self, now: Tick) -> int:
        """Steps of the run that are scheduled before ``now``."""
        return bisect_left(self.ends, now, 0, self.steps)


def plan_verify(
    group: VerifyGroup, timer: StepTimer, shape: StepShape, *, base: Tick, steps: int, now: Tick, waiting: int
) -> VerifyJump:
    """The run of the next ``steps`` steps, or as many of them as are worth planning ahead.

    Args:
        group: its members stay for all ``steps`` steps.
        timer: how long steps take.
        shape: aggregates of the first step.
        base: when it starts.
        now: when it is scheduled.
        waiting: queue length.
    """
    steps = min(steps, MOST_STEPS)
    sums = group.rows(steps)
    context = sums[CONTEXT]
    durations = timer.decode_times(shape, context, context if group.window is None else sums[WINDOWED])
    times = np.empty(steps + 1, durations.dtype)
    times[0], times[1:] = base, durations
    np.cumsum(times, out=times)
    return VerifyJump(times, sums, steps=steps, next_schedule=now, shape=shape, waiting=waiting)
