"""A step in which blocks or budget run short: running requests are served one by one, in vLLM's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.request import Request
from sim.engine.step import Step

if TYPE_CHECKING:
    from sim.engine.vllm import VllmScheduler


class Contention:
    """Works out one step of a `VllmScheduler` request by request; O(running), and rare."""

    def __init__(self, scheduler: VllmScheduler, step: Step) -> None:
        self.scheduler = scheduler
        self.step = step
        self.left = scheduler.config.max_num_batched_tokens
        self.served: dict[Request, int] = {}

    def resolve(self) -> int:
        """Serve running requests until budget or blocks end; return the budget left."""
        for request in list(self.scheduler.running):
            if self.left == 0:
                break
            if request.draining or request not in self.scheduler.running or self.scheduler.flies(request):
                continue
            if not self._serve(request):
                break
        self._commit()
        return self.left

    def _serve(self, request: Request) -> bool:
        """Give one request its tokens, preempting others for blocks; false if it had to give way itself."""
        scheduler = self.scheduler
        if request.in_group and self.left < scheduler.group.width:
            scheduler.starve(self.step, request)  # it gets less than the other members
        if request.in_group:
            want, need = scheduler.group.width, scheduler.blocks_to_move(request)
        else:
            want = min(scheduler.wanted(request), self.left)
            need = scheduler.new_blocks(request, want)
        while need > scheduler.pool.free:
            victim = scheduler.victim()
            tokens = self.served.pop(victim, 0)
            self.left += tokens
            given, undone = (tokens, 0) if victim.in_group else (0, tokens)
            scheduler.preempt(self.step, victim, given, undone)
            self.step.chunks.pop(victim, None)
            if victim is request:
                return False
        scheduler.pool.take(need)
        self.served[request] = want
        self.left -= want
        if not request.in_group:
            request.computed += want
            scheduler.publish(request)
        return True

    def _commit(self) -> None:
        """Move the decode group on, without the members that got nothing, and account for the others' tokens."""
        scheduler, step = self.scheduler, self.step
        for request in scheduler.running:
            if request.in_group and request not in self.served and not self.scheduler.flies(request):
                scheduler.starve(step, request)
        scheduler.decode_all(step, blocks_taken=True)
        for request, chunk in self.served.items():
            if not (request.in_group or request.draining):
                request.computed -= chunk
                scheduler.compute(step, request, chunk)
        scheduler.settle_partial()
