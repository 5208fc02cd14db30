"""Data-parallel ranks of one engine: each with its own scheduler and KV cache, all stepping together."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

import simpy

from sim.cost.joint_timer import JointTimer
from sim.cost.shape import StepShape
from sim.engine.jump import Jump
from sim.engine.process import Alarm
from sim.engine.replica import MANY, Replica
from sim.engine.request import Request, Tick
from sim.engine.speculative_group import VerifyGroup
from sim.engine.speculative_jump import VerifyJump, plan_together
from sim.engine.step import Step


class Rank(Replica):
    """One rank: schedules for itself, and runs when its group does."""

    group: RankGroup

    def _live(self) -> Generator[simpy.Event, Any, None]:
        yield from ()  # the group's process is the only one

    def poke(self) -> None:
        """Let the next schedule of all ranks come as soon as it may."""
        self.group.poke()

    def submit(self, request: Request) -> None:
        """Queue a request now."""
        request.replica = self.index
        matters = self.scheduler.add(request)
        if self._jump is not None:
            self._jump.arrivals.append(self.env.now)
        if matters or self.group.idle:
            self.poke()

    def _halt(self) -> None:
        self._alive = False
        self.group.halt()

    # -- for the group ------------------------------------------------------------------------------------------------

    def plan(self) -> Step | None:
        """What this rank does in the next step; None: a dummy token."""
        return self._schedule()

    def begin(self, step: Step, span: tuple[Tick, Tick]) -> None:
        """Run ``step`` from and to the ticks of ``span``."""
        self._span = span
        self._start(step)

    def _occupy(self, shape: StepShape) -> tuple[Tick, Tick]:
        return self._span

    def finish(self) -> None:
        """Take in the output of the oldest step."""
        self._process_output()

    def ahead(self) -> int:
        """Decode-only steps that certainly come next for this rank, as many as you like where it has no requests."""
        if self.scheduler.running:
            return self._decodes_ahead()
        landing = self.scheduler.landing()
        idle = not self.scheduler.waiting and (self.inbox is None or not self.inbox.fresh)
        idle = idle and self.scheduler.rested and (landing is None or landing > self.env.now)
        return MANY if idle else 0

    def fly(self, jump: Jump) -> None:
        """Take part in a jump."""
        self._jump = own = jump.again(self.scheduler.decode_shape(), len(self.scheduler.waiting))
        group = self.scheduler.group
        if isinstance(own, VerifyJump) and isinstance(group, VerifyGroup):
            own.sums = group.rows(jump.steps)

    def land(self, steps: int) -> None:
        """Account for the first ``steps`` of the jump; the last of them is in flight."""
        jump, self._jump = self._jump, None
        assert jump is not None
        if steps:
            jump.steps = steps
            self._launch(self._settle(jump))

    def forget_steps(self) -> None:
        """Nothing comes of the steps in flight: no request ends in them."""
        self._in_flight.clear()

    def shorten(self, steps: int) -> None:
        """The jump ends after ``steps``."""
        if self._jump is not None:
            self._jump.steps = steps

    @property
    def draining(self) -> bool:
        """Whether the last token of a request is in flight."""
        return bool(self.scheduler.draining)

    @property
    def restless(self) -> bool:
        """Whether something happened that no schedule has seen."""
        return self.inbox is not None and self.inbox.fresh

    def look_again(self) -> Tick | None:
        """When the scheduler wants to look again at those that wait."""
        return self._look_again()


class RankGroup:
    """Ranks in lock-step: all schedule at one instant, run for the same time, and take in their output together.

    A rank without anything to do takes part with a dummy token, since experts are spread over all ranks
    (vllm/v1/engine/core.py, DPEngineCoreProc). A group without any requests sleeps.

    Args:
        env: the clock.
        ranks: in order.
        timer: how long a step of all takes.
        jump: time by change, or one event a step.
    """

    def __init__(self, env: simpy.Environment, ranks: Sequence[Rank], timer: JointTimer, *, jump: bool) -> None:
        self.env = env
        self.ranks = list(ranks)
        self.timer = timer
        self._may_jump = jump
        self._depth = self._jump_depth = ranks[0].scheduler.config.pipeline_depth
        self._in_flight: deque[tuple[Tick, list[Rank]]] = deque()
        self._last_end: Tick = 0
        self._jump: Jump | None = None
        self._alarm: Alarm | None = None
        self._idle: simpy.Event | None = None
        self._alive = True
        for rank in self.ranks:
            rank.group = self
        env.process(self._run())

    # -- from outside -------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Whether no rank has anything to do."""
        return self._idle is not None

    def poke(self) -> None:
        """Let the next schedule come as soon as it may."""
        if self._idle is not None:
            self._idle.succeed()
            self._idle = None
        elif self._jump is not None and self._jump.shorten(self.env.now):
            for rank in self.ranks:
                rank.shorten(self._jump.steps)
            assert self._alarm is not None
            self._alarm = self._alarm.moved(self._jump.wake - self.env.now, self.ranks[0].alarm_priority)

    def halt(self) -> None:
        """Stop at once and for good: the engine failed with all its ranks."""
        if not self._alive:
            return
        self._alive = False
        if self._jump is not None:
            steps = self._jump.scheduled_before(self.env.now)
            for rank in self._flying():
                rank.land(steps)
        if self._alarm is not None:
            self._alarm.callbacks = []
        self._idle = self._jump = None

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while self._alive:
            ahead = self._decodes_ahead()
            if ahead:
                yield from self._jump_over(ahead)
            else:
                steps = [rank.plan() for rank in self.ranks]
                if any(step is not None for step in steps):
                    self._start(steps)
                    if not self._draining() and self._decodes_ahead():
                        continue  # one sleep for this step and those that follow
                elif self._in_flight:
                    yield from self._take_in()
                elif not any(rank.restless for rank in self.ranks):
                    yield self._wait()
                    self._idle = None
            while len(self._in_flight) >= self._depth:
                yield from self._take_in()

    def _start(self, steps: Sequence[Step | None]) -> None:
        start = max(self.env.now, self._last_end)
        copied = max(start, *(rank.scheduler.hold for rank in self.ranks))
        end = copied + self.timer.joint([step.shape for step in steps if step is not None])
        self._begin(steps, (start, end))

    def _begin(self, steps: Sequence[Step | None], span: tuple[Tick, Tick]) -> None:
        """Run a step on every rank that has one, from and to the ticks of ``span``."""
        taking_part = []
        for rank, step in zip(self.ranks, steps, strict=True):
            if step is not None:
                rank.begin(step, span)
                taking_part.append(rank)
        self._launch(span[1], taking_part)

    def _launch(self, end: Tick, ranks: list[Rank]) -> None:
        self._last_end = end
        self._in_flight.append((end, ranks))

    def _take_in(self) -> Generator[simpy.Event, Any, None]:
        end, ranks = self._in_flight[0]
        if end > self.env.now:
            yield self._sleep_until(end)
        self._in_flight.popleft()
        for rank in ranks:
            rank.finish()

    def _wait(self) -> simpy.Event:
        moments = [moment for rank in self.ranks if (moment := rank.look_again()) is not None]
        self._idle = self.env.event()
        return self._idle | self._sleep_until(min(moments)) if moments else self._idle

    def _sleep_until(self, tick: Tick) -> simpy.Event:
        self.ranks[0].events += 1
        self._alarm = Alarm(self.env, tick - self.env.now, self.ranks[0].alarm_priority)
        return self._alarm

    # -- time by change -----------------------------------------------------------------------------------------------

    def _flying(self) -> list[Rank]:
        return [rank for rank in self.ranks if rank.scheduler.group.size]

    def _draining(self) -> bool:
        return any(rank.draining for rank in self.ranks)

    def _decodes_ahead(self) -> int:
        """Steps in which every rank that has requests only decodes; 0 where none has."""
        if not self._may_jump or not self._flying():
            return 0
        return min(rank.ahead() for rank in self.ranks)

    def _jump_over(self, ahead: int) -> Generator[simpy.Event, Any, None]:
        jump, flying = self._take_off(ahead)
        if self._draining():  # their output comes in before the step after next is scheduled
            jump.steps = 1
        elif jump.wake > self.env.now:
            self._jump = jump
            yield self._sleep_until(jump.wake)
            self._jump = None
        if jump.steps and not self._draining():
            self._in_flight.clear()
            for rank in self.ranks:
                rank.forget_steps()
        for rank in flying:
            rank.land(jump.steps)
        if jump.steps:
            self._launch(jump.end(jump.steps), flying)

    def _take_off(self, ahead: int) -> tuple[Jump, list[Rank]]:
        """Plan a run of up to ``ahead`` steps; return it with the ranks that take part."""
        jump, flying = self._plan(ahead), self._flying()
        for rank in flying:
            rank.fly(jump)
        landings = [landing for rank in self.ranks if (landing := rank.scheduler.landing()) is not None]
        if landings:
            jump.shorten(min(landings))
            for rank in flying:
                rank.shorten(jump.steps)
        return jump, flying

    def _plan(self, ahead: int) -> Jump:
        schedulers = [rank.scheduler for rank in self._flying()]
        shapes = [scheduler.decode_shape() for scheduler in schedulers]
        base = max(self.env.now, self._last_end)
        groups = [scheduler.group for scheduler in schedulers if isinstance(scheduler.group, VerifyGroup)]
        if groups:
            return plan_together(groups, self.timer, shapes, base=base, steps=ahead)
        run = self.timer.joint_run(shapes, [scheduler.growing_windowed() for scheduler in schedulers])
        now = self.env.now
        return Jump(
            base=base,
            first=run.first,
            increment=run.increment,
            steps=ahead if ahead <= run.steps else int(run.steps),
            depth=self._jump_depth,
            next_schedule=self._in_flight[0][0] if len(self._in_flight) >= self._depth else now,
            shape=shapes[0],
            waiting=0,
        )
