"""A run of verify steps slept over at once: their times are summed up, since each request moves on unevenly."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, Protocol

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

    def again(self, shape: StepShape, waiting: int) -> VerifyJump:
        """The same run for another rank, with its own aggregates and queue; its sums are to be set."""
        steps, scheduled = self.steps, self.next_schedule
        return VerifyJump(self.times, self.sums, steps=steps, next_schedule=scheduled, shape=shape, waiting=waiting)

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
    times = _ends(base, timer.decode_times(shape, *_contexts(group, sums)))
    return VerifyJump(times, sums, steps=steps, next_schedule=now, shape=shape, waiting=waiting)


class RanksTimer(Protocol):
    """How long decode-only steps of several ranks take."""

    def joint_times(self, shapes: Sequence[StepShape], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(n,) ticks, given n contexts and n windowed ones of each rank."""
        ...


def plan_together(
    groups: Sequence[VerifyGroup], timer: RanksTimer, shapes: Sequence[StepShape], *, base: Tick, steps: int
) -> VerifyJump:
    """The same for ranks in lock-step: their ``groups``, and the shapes of their first steps."""
    steps = min(steps, MOST_STEPS)
    sums = [group.rows(steps) for group in groups]
    contexts = [_contexts(group, rows) for group, rows in zip(groups, sums, strict=True)]
    times = _ends(base, timer.joint_times(shapes, contexts))
    return VerifyJump(times, sums[0], steps=steps, next_schedule=base, shape=shapes[0], waiting=0)


def _contexts(group: VerifyGroup, sums: Ints) -> tuple[Ints, Ints]:
    """(n,) contexts of the next steps, and the same cut to the window."""
    return sums[CONTEXT], sums[CONTEXT] if group.window is None else sums[WINDOWED]


def _ends(base: Tick, durations: Floats) -> Floats:
    """(n + 1,) when the step before a run and each of its steps end."""
    times = np.empty(len(durations) + 1, durations.dtype)
    times[0], times[1:] = base, durations
    return np.cumsum(times, out=times)
