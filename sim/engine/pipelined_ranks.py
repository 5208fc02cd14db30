"""Data-parallel ranks whose layers lie in stages: the batches of all ranks pass each stage together."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import simpy

from sim.cost.joint_timer import JointStageTimer
from sim.engine.data_parallel import Rank, RankGroup
from sim.engine.pipelined import PipelinedReplica, Stages
from sim.engine.request import Tick
from sim.engine.step import Step


class PipelinedRank(Rank, PipelinedReplica):
    """One rank: schedules for itself, with as many batches in flight as there are stages."""


class PipelinedRankGroup(RankGroup):
    """Ranks in lock-step with as many rounds in flight as there are stages.

    A round is one batch of each rank, or a dummy token where a rank has none to run: the k-th batches of all ranks meet
    in every layer with experts, in each stage (vllm/v1/engine/core.py, DPEngineCoreProc over step_with_batch_queue;
    SGLang's event_loop_pp with idle batches). Rounds are scheduled on all ranks at one instant until the pipeline is
    full or no rank has anything that can run; then the oldest is waited for. A stage takes one round at a time.

    Where ``timer.dummies_block``, a rank without a batch first waits for its oldest one, then for the dummy it runs in
    its place (vLLM's execute_dummy_batch does not return before the last stage has run it), and so holds up all.
    """

    timer: JointStageTimer

    def __init__(
        self, env: simpy.Environment, ranks: Sequence[PipelinedRank], timer: JointStageTimer, *, jump: bool
    ) -> None:
        super().__init__(env, ranks, timer, jump=jump)
        self._stages = Stages(self._depth)
        self._jump_depth = 1

    def _run(self) -> Generator[simpy.Event, Any, None]:
        while self._alive:
            ahead = self._decodes_ahead()
            full = ahead or len(self._in_flight) >= self._depth
            steps = [] if full else [rank.plan() for rank in self.ranks]
            if ahead:
                yield from self._jump_over(ahead)
            elif any(step is not None for step in steps):
                self._start(steps)
            elif self._in_flight:
                yield from self._take_in()
            elif not any(rank.restless for rank in self.ranks):
                yield self._wait()
                self._idle = None

    def _start(self, steps: Sequence[Step | None]) -> None:
        now, timer = self.env.now, self.timer
        shapes = [step.shape for step in steps if step is not None]
        waits = timer.dummies_block and len(shapes) < len(steps)
        enters = max(now, self._oldest_of_idle(steps)) if waits else now
        end = self._stages.enter(enters, timer.joint_host(shapes), timer.joint_hops(shapes), timer.joint_stages(shapes))
        if waits:
            self._stages.close_until(end)
        self._begin(steps, (now, end))

    def _oldest_of_idle(self, steps: Sequence[Step | None]) -> Tick:
        """When the ranks without a batch in this round have the output of the oldest one that they wait for."""
        idle = {rank.index for rank, step in zip(self.ranks, steps, strict=True) if step is None}
        oldest: Tick = 0
        for end, ranks in self._in_flight:
            if any(rank.index in idle for rank in ranks):
                oldest = max(oldest, end)
                idle -= {rank.index for rank in ranks}
        return oldest

    def _decodes_ahead(self) -> int:
        """Steps of the one round there is."""
        return 0 if self._in_flight else super()._decodes_ahead()

    def _jump_over(self, ahead: int) -> Generator[simpy.Event, Any, None]:
        """Sleep over steps of the one round there is: nobody waits for a stage."""
        jump, flying = self._take_off(ahead)
        if jump.wake > self.env.now:
            self._jump = jump
            yield self._sleep_until(jump.wake)
            self._jump = None
        for rank in flying:
            rank.land(jump.steps)
        if jump.steps:
            self._launch(jump.end(jump.steps), flying)
            yield from self._take_in()
