"""The step log: one line a step, in the format of the oracle files."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from sim.engine.request import Request, Tick
from sim.engine.scheduler import Scheduler
from sim.engine.speculative_group import VerifyGroup
from sim.engine.step import Step

Line = dict[str, Any]


class StepLog:
    """Writes what the scheduler decided. A line is finished when the step's output has been taken in.

    Args:
        emit: called with each finished line, in step order.
        to_us: ticks to whole microseconds.
        ids_of: the scheduler whose batch is logged.
    """

    def __init__(self, emit: Callable[[Line], None], to_us: Callable[[Tick], int], scheduler: Scheduler) -> None:
        self._emit = emit
        self._to_us = to_us
        self._scheduler = scheduler
        self._open: deque[tuple[Line, list[int], list[int]]] = deque()
        self._members: list[Request] = []

    def before(self, in_flight: int) -> None:
        """A step is about to be scheduled while ``in_flight`` others are: the older ones have their output."""
        while len(self._open) > in_flight:
            self._finish()
        group = self._scheduler.group
        self._members = [r for r in self._scheduler.running if r.in_group and r.group is group]

    def scheduled(self, number: int, step: Step, now: Tick, start: Tick, end: Tick, waiting: int) -> None:
        """Open the line of a step."""
        absent = set(step.interrupted)
        group = self._scheduler.group
        members = [request for request in self._members if request not in absent] if step.decodes else []
        batch = dict.fromkeys(members, group.width) | step.chunks
        order = [request for request in self._scheduler.running if request in batch]
        line: Line = {"step": number, "t_us": self._to_us(now), "dt_us": self._to_us(end - start)}
        self._add_batch(line, [request.id for request in order], [batch[request] for request in order])
        line["waiting"] = waiting
        if isinstance(group, VerifyGroup):
            drafted = {request: (group.drafts, group.accepted(request)) for request in members if group.drafts}
            drafted |= step.verified
            if drafted:
                line["spec"] = [[request.id, *drafted[request]] for request in order if request in drafted]
        if step.admitted:
            line["admitted"] = [[request.id, hit, int(resumes)] for request, hit, resumes in step.admitted]
        if step.preempted:
            line["preempted"] = [request.id for request in step.preempted]
        self._add_state(line, step, start)

    def _add_batch(self, line: Line, ids: list[int], tokens: list[int]) -> None:
        if ids:
            line["ids"] = ids
        if any(count != 1 for count in tokens):
            line["ntok"] = tokens
        line["running"] = len(self._scheduler.running)

    def _add_state(self, line: Line, step: Step, start: Tick) -> None:
        config, pool = self._scheduler.config, self._scheduler.pool
        line["free_blocks"] = pool.free
        if config.enable_prefix_caching:
            line["cached_blocks"] = pool.cached
        if config.async_scheduling:
            line["exec_start_us"] = self._to_us(start)
        self._open.append((line, [r.id for r in step.first], [r.id for r in step.finishing]))

    def _finish(self) -> None:
        line, first, finished = self._open.popleft()
        if first:
            line["first"] = first
        if finished:
            line["finished"] = finished
        if self._scheduler.pool.free != line["free_blocks"]:
            line["free_blocks_end"] = self._scheduler.pool.free
        self._emit(line)
