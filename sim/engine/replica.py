"""One serving engine as a SimPy process: schedule, ask the cost, wait, take in the output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import simpy
from mypy_extensions import mypyc_attr

from sim.cost.shape import StepShape, StepTimer
from sim.engine.inbox import Inbox
from sim.engine.jump import Jump
from sim.engine.log import StepLog
from sim.engine.pauses import TokenTimes
from sim.engine.process import EngineProcess
from sim.engine.recorder import Recorder
from sim.engine.request import Request, Tick
from sim.engine.scheduler import Scheduler
from sim.engine.speculative_group import VerifyGroup
from sim.engine.speculative_jump import VerifyJump, plan_verify
from sim.engine.speculative_rows import verify_row
from sim.engine.step import InFlight, Step

MANY = 1 << 40


@mypyc_attr(allow_interpreted_subclasses=True)
class Replica(EngineProcess):
    """Runs a scheduler against a clock.

    With ``jump`` the process sleeps once for a step and all decode-only steps that certainly follow it with the same
    members; an arrival that matters cuts the sleep short. Without, it sleeps once a step. Both decide the same.

    Args:
        on_done: called with each request as its last token has been taken in.
        scripted: step numbers before which a request arrives, instead of at a time (tests of scheduling).
        arrive: called with the request's id when that step comes.
    """

    def __init__(
        self,
        env: simpy.Environment,
        scheduler: Scheduler,
        timer: StepTimer,
        recorder: Recorder,
        on_done: Callable[[Request], None],
        *,
        index: int = 0,
        jump: bool = True,
        log: StepLog | None = None,
        scripted: deque[tuple[int, int]] | None = None,
        arrive: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__(env, scheduler, index)
        self.timer = timer
        scheduler.learn_costs(timer)
        self.recorder = recorder
        self._on_done = on_done
        self._may_jump = jump
        self._log = log
        self._scripted = scripted if scripted is not None else deque()
        self._arrive = arrive
        self._depth = scheduler.config.pipeline_depth
        self._in_flight: deque[InFlight] = deque()
        self._times = TokenTimes()
        self._futile = 0  # preemptions since a token came out

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def _submit_scripted(self) -> None:
        assert self._arrive is not None
        while self._scripted and self._scripted[0][0] <= self.steps:
            self._arrive(self._scripted.popleft()[1])

    # -- the loop -----------------------------------------------------------------------------------------------------

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while self._alive:
            ahead = self._decodes_ahead()
            if not ahead:
                step = self._schedule()
                if step is not None:
                    self._start(step)
                    if not self.scheduler.draining:
                        ahead = self._decodes_ahead()  # one sleep for this step and those that follow
                elif self._in_flight:
                    yield from self._take_in()
                elif self._scripted:
                    self.steps = self._scripted[0][0]
                elif self.inbox is None or not self.inbox.fresh:
                    yield self._wait()
                    self._idle = None
            if ahead:
                jump = self._take_off(ahead)
                if self._jump is not None:
                    yield self._sleep_until(jump.wake)
                    self._jump = None
                self._land(jump)
            while len(self._in_flight) >= self._depth:
                yield from self._take_in()

    def _schedule(self) -> Step | None:
        if self._scripted:
            self._submit_scripted()
        if self.inbox is not None:
            self._open(self.inbox)
        if self._log:
            self._log.before(len(self._in_flight))
        self.scheduler.now = self.env.now
        step = self.scheduler.schedule()
        if self.inbox is not None:
            self.inbox.reserve()
        return step

    def _open(self, inbox: Inbox) -> None:
        """Take in requests that were prefilled elsewhere: their first token reaches the client from here."""
        joined = inbox.settle()
        for request in joined:
            request.first_token = request.last_token = self.env.now
        if joined and inbox.host_work is not None:
            work = inbox.host_work(sum([request.prompt for request in joined]))
            self.scheduler.hold = max(self.env.now, self.scheduler.hold) + work
        self._times.joined(sum([request.in_group for request in joined]), self.env.now)

    def _start(self, step: Step) -> None:
        """Ask the cost, run the step as soon as the one before has ended, and stamp its tokens."""
        for request in step.interrupted:
            request.last_token = self._times_of(request).left(request)
        now = self.env.now
        start, end = self._occupy(step.shape)
        for request, _, _ in step.admitted:
            if request.admitted < 0:
                request.admitted = now
                if self.on_start is not None and request.keeps_kv:
                    self.on_start(request, start)
        for request in step.late:
            self.recorder.gap(end - request.last_token)
        waited = self._times.moved(step.decodes, self._previous_end(), end, self.recorder.gap) if step.decodes else 0
        if step.first or step.late:
            self._stamp(step, end)
        self.recorder.step(self, step, start, end, waited)
        self._watch(step)
        if self._log:
            self._log.scheduled(self.steps, step, now, start, end, len(self.scheduler.waiting))
        self.steps += 1
        self._launch(InFlight(end, step.finishing))

    def _occupy(self, shape: StepShape) -> tuple[Tick, Tick]:
        """When a step scheduled now begins and ends."""
        start = max(self.env.now, self._last_end)
        return start, max(start, self.scheduler.hold) + self.timer.step(shape)

    def _previous_end(self) -> Tick:
        """When those that decode in a step scheduled now got their last token."""
        return self._last_end

    def _times_of(self, request: Request) -> TokenTimes:
        """Where the last tokens of the members of a former member's group are kept."""
        return self._times

    def _stamp(self, step: Step, end: Tick) -> None:
        joined = 0
        for request in step.first:
            request.first_token = request.last_token = end
            joined += request.in_group
        for request in step.late:
            request.last_token = end
            joined += request.in_group
        self._times.joined(joined, end)

    def _watch(self, step: Step) -> None:
        """Raise if requests preempt each other in a circle: no token comes out although the engine works."""
        if step.shape.sampled_seqs:
            self._futile = 0
        elif step.preempted:
            self._futile += len(step.preempted)
            if self._futile > 1000 + 4 * self.scheduler.config.max_num_seqs:
                raise self._stalled(f"{self._futile} preemptions in a row without a token")

    def _launch(self, step: InFlight) -> None:
        for request in step.finishing:
            request.finish = step.end
        self._last_end = step.end
        self._in_flight.append(step)

    def _take_in(self) -> Generator[simpy.Event, Any, None]:
        """Wait for the oldest step in flight and process its output."""
        if self._in_flight[0].end > self.env.now:
            yield self._sleep_until(self._in_flight[0].end)
        self._process_output()

    def _process_output(self) -> None:
        """Take in the output of the oldest step in flight, which has ended."""
        step = self._in_flight.popleft()
        self.scheduler.complete(step.finishing)
        if self._log:
            self._log.before(len(self._in_flight))
        if self.inbox is not None and step.finishing:
            self.inbox.fresh = True
        for request in step.finishing:
            self._on_done(request)

    # -- time by change -----------------------------------------------------------------------------------------------

    def _decodes_ahead(self) -> int:
        """Decode-only steps that certainly come next, nothing else to decide."""
        if self.inbox is not None and (self.inbox.fresh or (self.inbox.waiting and self.scheduler.scribes)):
            return 0
        if not self._may_jump or self._times.paused(self.scheduler.group.size, self._previous_end()):
            return 0
        landing = self.scheduler.landing()
        if landing is not None and landing <= self.env.now:
            return 0
        limit = self._scripted[0][0] - self.steps if self._scripted else MANY
        return self.scheduler.steps_ahead(limit)

    def _take_off(self, ahead: int) -> Jump:
        """Plan a run of up to ``ahead`` decode-only steps; `_jump` holds it if it is to be slept over."""
        jump = self._plan(ahead)
        landing = self.scheduler.landing()
        if landing is not None:
            jump.shorten(landing)
        if self.scheduler.draining:  # their output comes in before the step after next is scheduled
            jump.steps = 1
        elif jump.wake > self.env.now:
            self._jump = jump
        return jump

    def _land(self, jump: Jump) -> None:
        """Account for the steps of a run that were done."""
        if jump.steps:
            if not self.scheduler.draining:
                self._in_flight.clear()
            self._launch(self._settle(jump))

    def _plan(self, ahead: int) -> Jump:
        now, scheduler, in_flight = self.env.now, self.scheduler, self._in_flight
        shape, base, waiting = scheduler.decode_shape(), max(now, self._last_end), len(scheduler.waiting)
        group = scheduler.group
        if isinstance(group, VerifyGroup):
            return plan_verify(group, self.timer, shape, base=base, steps=ahead, now=now, waiting=waiting)
        first, increment, straight = self.timer.decode_run(shape, scheduler.growing_windowed())
        next_schedule = in_flight[0].end if len(in_flight) >= self._depth else now
        steps = ahead if ahead <= straight else int(straight)
        return Jump(
            base, first, increment, steps, self._depth, next_schedule, shape, waiting, scheduler.stranded_blocks()
        )

    def _settle(self, jump: Jump) -> InFlight:
        """Account for the steps of a jump that were done; return the last of them, whose output is yet to come in."""
        steps = jump.steps
        row = verify_row(self, jump) if isinstance(jump, VerifyJump) else self.recorder.open_run(self, jump)
        if self._log:
            finishing = self._settle_one_by_one(jump, self._log)
        else:
            finishing = self.scheduler.extend(steps)
            self.steps += steps
        self.recorder.close_run(self, row)
        end = jump.end(steps)
        self._times.jumped(end)
        return InFlight(end, finishing)

    def _settle_one_by_one(self, jump: Jump, log: StepLog) -> list[Request]:
        finishing: list[Request] = []
        for i in range(1, jump.steps + 1):
            log.before(jump.depth - 1)
            decodes = self.scheduler.group.size
            finishing = self.scheduler.extend(1)
            step = Step()
            step.decodes, step.finishing = decodes, finishing
            log.scheduled(self.steps, step, jump.scheduled(i), jump.end(i - 1), jump.end(i), jump.waiting_at(i))
            self.steps += 1
        return finishing
