"""vLLM's scheduler without its paged memory: every request lies in one piece of the longest length it may reach.

No engine is built like this. It tells what paging alone is worth, everything else being equal: the same order, chunks
and budget, but a request is admitted only if its piece fits, and then nobody is ever preempted.
"""

from __future__ import annotations

from sim.engine.kv.pool import Hit
from sim.engine.policies.reserving import ReservingScheduler
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, Scheduler
from sim.engine.vllm import VllmScheduler


class ContiguousScheduler(ReservingScheduler, VllmScheduler):
    """vLLM's policy over reservations."""

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None; prompts are split."""
        if self.blocks(self.whole(request)) > self.config.usable_blocks:
            return TOO_LARGE
        return Scheduler.rejects(self, request)

    def steps_ahead(self, limit: int) -> int:
        """As long as nobody can be admitted and all decodes fit a step, until a member ends."""
        if self.partial or self.group.tokens > self.config.max_num_batched_tokens:
            return 0
        return super().steps_ahead(limit)

    def _fits(self, request: Request, chunk: int, hit: Hit) -> bool:
        piece = self.blocks(self.whole(request))
        reserve = self.config.watermark_blocks if self.running else 0
        return piece + reserve <= self.pool.free and self.pool.fits(piece)
