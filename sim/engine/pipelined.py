"""An engine whose layers lie in stages: several batches are under way at once, each in another stage."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol

import simpy

from sim.cost.shape import StepShape, StepTimer
from sim.engine.jump import Jump
from sim.engine.lockstep import Lockstep
from sim.engine.pauses import TokenTimes
from sim.engine.replica import Replica
from sim.engine.request import Request, Tick
from sim.engine.speculative_group import VerifyGroup
from sim.engine.step import InFlight


class StageTimer(StepTimer, Protocol):
    """How long a batch takes in each stage. ``step`` is that of a batch alone: host, stages and hops in a row."""

    def host(self, shape: StepShape) -> float:
        """Ticks until the batch can enter the first stage."""
        ...

    def stages(self, shape: StepShape) -> list[float]:
        """Ticks in each stage."""
        ...

    def hops(self, shape: StepShape) -> list[float]:
        """Ticks from each stage but the last to the next."""
        ...


class Stages:
    """When batches pass the stages: one at a time in each, in the order in which they were scheduled."""

    def __init__(self, count: int) -> None:
        self._free: list[Tick] = [0] * count
        self._host_free: Tick = 0

    def enter(self, now: Tick, host: float, hops: Sequence[float], durations: Sequence[float]) -> Tick:
        """Send a batch in; return when it leaves the last stage."""
        self._host_free = ready = max(now, self._host_free) + host
        for stage, (hop, duration) in enumerate(zip([0, *hops], durations, strict=True)):
            self._free[stage] = ready = max(ready + hop, self._free[stage]) + duration
        return ready

    def close_until(self, tick: Tick) -> None:
        """Let nothing enter before ``tick``."""
        self._host_free = max(self._host_free, tick)


class PipelinedReplica(Replica):
    """A replica with as many batches in flight as it has stages, as vLLM's batch queue does.

    Batches are scheduled until the pipeline is full or nothing more can be; then the oldest is waited for. A decode
    needs its last token, so the decodes of a batch are out of reach until the batch has come back, and form a group of
    their own; a prompt's chunks may follow each other through the stages (vllm/v1/engine/core.py,
    step_with_batch_queue). A stage takes one batch at a time, in the order they were scheduled.

    A row of steps lasts from the schedule of its batch to its end, so rows of different batches overlap.
    """

    timer: StageTimer

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stages = Stages(self._depth)
        self._returned: Tick = 0.0
        self._times_by_group: dict[Lockstep, TokenTimes] = {self.scheduler.group: self._times}

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while self._alive:
            ahead = self._decodes_ahead()
            step = self._schedule() if not ahead and len(self._in_flight) < self._depth else None
            if ahead:
                yield from self._jump_over(ahead)
            elif step is not None:
                self._start(step)
            elif self._in_flight:
                yield from self._take_in()
            elif self._scripted:
                self.steps = self._scripted[0][0]
            elif self.inbox is None or not self.inbox.fresh:
                yield self._wait()
                self._idle = None

    # -- batches under way --------------------------------------------------------------------------------------------

    def _occupy(self, shape: StepShape) -> tuple[Tick, Tick]:
        timer, now = self.timer, self.env.now
        return now, self._stages.enter(now, timer.host(shape), timer.hops(shape), timer.stages(shape))

    def _previous_end(self) -> Tick:
        """When the batch whose group is at hand came back; the clock may be off by its last digit."""
        return self._returned

    def _times_of(self, request: Request) -> TokenTimes:
        assert request.group is not None
        return self._times_by_group[request.group]

    def _launch(self, step: InFlight) -> None:
        """Send the decode group off with its batch."""
        super()._launch(step)
        self.scheduler.send_off()
        self._times = self._times_by_group[self.scheduler.group] = TokenTimes()

    def _process_output(self) -> None:
        """Take in the output of the oldest batch: its decode group is back."""
        self._returned = self._in_flight[0].end
        del self._times_by_group[self.scheduler.group]
        self.scheduler.bring_back()
        self._times = self._times_by_group[self.scheduler.group]
        super()._process_output()

    def _decodes_ahead(self) -> int:
        """Steps of the one batch there is; not the one in which a member ends: another batch may follow it at once."""
        return 0 if self._in_flight else max(0, super()._decodes_ahead() - 1)

    # -- one batch alone ----------------------------------------------------------------------------------------------

    def _jump_over(self, ahead: int) -> Generator[simpy.Event, Any, None]:
        """Sleep over steps of the one batch there is: nobody waits for a stage."""
        jump, landing = self._plan(ahead), self.scheduler.landing()
        if landing is not None:
            jump.shorten(landing)
        if jump.wake > self.env.now:
            self._jump = jump
            yield self._sleep_until(jump.wake)
            self._jump = None
        if jump.steps:
            self._launch(self._settle(jump))
            yield from self._take_in()

    def _plan(self, ahead: int) -> Jump:
        if isinstance(self.scheduler.group, VerifyGroup):
            return super()._plan(ahead)
        first, increment, steps = self.timer.decode_run(
            self.scheduler.decode_shape(), self.scheduler.growing_windowed()
        )
        return Jump(
            base=self.env.now,
            first=first,
            increment=increment,
            steps=ahead if ahead <= steps else int(steps),
            depth=1,
            next_schedule=self.env.now,
            shape=self.scheduler.decode_shape(),
            waiting=len(self.scheduler.waiting),
        )
