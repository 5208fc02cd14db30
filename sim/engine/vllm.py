"""vLLM's V1 scheduler: one token stream, running requests first, then the queue, preemption by recompute.

The rules are those that the oracle scenarios in ``tests/conformance`` record. A step whose outcome depends on the order
of the running requests (blocks or budget run short) is worked out request by request (`sim.engine.contention`).
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from sim.engine.config import EngineConfig
from sim.engine.contention import Contention
from sim.engine.kv.pool import Hit
from sim.engine.request import Request
from sim.engine.scheduler import Scheduler
from sim.engine.step import Step


@mypyc_attr(allow_interpreted_subclasses=True)
class VllmScheduler(Scheduler):
    """The policy of vLLM V1.

    Attributes:
        budget: tokens of a step.
    """

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.budget = config.max_num_batched_tokens

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        step = self.new_step()
        if self.partial:
            self.hash_arrived()
        left = self._continue_running(step)
        if step.preempted:
            self.blocked = False
        else:
            self._admit(step, left)
        if not step.decodes and not step.chunks and not step.preempted:
            return None
        if len(step.finishing) > 1:
            step.finishing.sort(key=lambda request: request.rank)
        return step

    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``."""
        group = self.group
        if self.partial or not self.blocked or not group.size or limit <= 0:
            return 0
        if group.tokens > self.budget:
            return 0
        if self.waiting and (self.scribes or not self.blocked_for_any_budget()):
            return 0  # what a member writes may be what the head of the queue wants to hit
        return group.steps_within(self.pool.free, group.steps_to_change(limit))

    def blocked_for_any_budget(self) -> bool:
        """Whether a queue that is blocked stays so for any budget. Where batches follow each other through a pipeline
        it was found blocked by one that had all of it, and a shorter chunk beside decodes may need fewer blocks."""
        return self.config.pipeline_stages == 1 or self.config.scheduler_reserve_full_isl

    # -- running requests ---------------------------------------------------------------------------------------------

    def _continue_running(self, step: Step) -> int:
        """Give running requests their tokens; return the budget left."""
        group = self.group
        chunks = self._undisputed_chunks()
        if chunks is None:
            return Contention(self, step).resolve()
        need = self.blocks_to_start() if group.size else 0
        for request, chunk in chunks:
            need += self.new_blocks(request, chunk)
        if need > self.pool.free:
            return Contention(self, step).resolve()
        left = self.budget - group.tokens
        self.decode_all(step)
        for request, chunk in chunks:
            self.pool.take(self.new_blocks(request, chunk))
            self.compute(step, request, chunk)
            left -= chunk
        if chunks:
            self.settle_partial()
        return left

    def _undisputed_chunks(self) -> list[tuple[Request, int]] | None:
        """Tokens for each partial request; None where the budget's order matters."""
        left = self.budget - self.group.tokens
        if left < 0:
            return None
        chunks = []
        for request in self.partial:
            want = self.wanted(request)
            if want > left:
                if request is not next(reversed(self.running)):
                    return None
                want = left
            if want:
                chunks.append((request, want))
            left -= want
        return chunks

    def wanted(self, request: Request) -> int:
        """Tokens a request outside the group would compute, the long-prefill threshold applied."""
        want = request.known - request.computed
        threshold = self.config.long_prefill_token_threshold
        if 0 < threshold < want and len(self.running) + len(self.waiting) > 1:
            return threshold
        return want

    def victim(self) -> Request:
        """FCFS drops the last of the running; priority the worst by (priority, arrival), the first of equals."""
        if self.config.scheduling_policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.queued))
        return next(reversed(self.running))

    # -- waiting requests ---------------------------------------------------------------------------------------------

    def _admit(self, step: Step, left: int) -> None:
        config = self.config
        while self.waiting and left > 0 and len(self.running) < config.max_num_seqs:
            request = self.waiting.head()
            if request.draining:  # preempted with its last token in a pipeline: it leaves the queue with that
                self.blocked = True
                return
            hit = self.lookup(request)
            request.computed = hit.blocks * config.block_size
            fetched = self.fetch(request, hit)
            if fetched is not None:
                if fetched:
                    continue
                self.blocked = True
                return
            chunk = self.wanted(request)
            if chunk > left:
                if not self.may_cut(request):
                    self.blocked = not step.chunks
                    return
                chunk = left
            if not self._fits(request, chunk, hit):
                self.blocked = True
                return
            self.start(step, request, chunk, hit)
            left -= chunk
        self.blocked = not self.waiting or len(self.running) >= config.max_num_seqs

    def fetch(self, request: Request, hit: Hit) -> bool | None:
        """Take a waiting request out of the queue if parts of its cache lie outside the GPU; None: none do."""
        return None

    def may_cut(self, request: Request) -> bool:
        """Whether a waiting request may start with less than it wants."""
        return self.config.enable_chunked_prefill

    def _fits(self, request: Request, chunk: int, hit: Hit) -> bool:
        tokens = request.known if self.config.scheduler_reserve_full_isl else request.computed + chunk
        reserve = self.config.watermark_blocks if self.running else 0
        return self.blocks(tokens) - hit.blocks + hit.idle_blocks + reserve <= self.pool.free
