"""TensorRT-LLM's in-flight batching, with both of its capacity schedulers.

The rules are those of TensorRT-LLM 1.0 (cpp/tensorrt_llm/batch_manager/{capacityScheduler,microBatchScheduler}.cpp):
a step gives every generating request its token and fills what is left of ``max_num_tokens`` with contexts (prompts), in
order of arrival. GUARANTEED_NO_EVICT admits a request only if blocks for everybody's longest possible length are there;
MAX_UTILIZATION admits as soon as the prompt fits, and pauses the last started when blocks run out. The blocks of a
whole prompt are taken with its first chunk. A first chunk waits a step if another context is about to compute the same
block. Apart from the source: a partly matching block is not reused; those behind a context without tokens wait too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.engine.config import EngineConfig
from sim.engine.kv.pool import text_rows
from sim.engine.policies.queues import ArrivalQueue
from sim.engine.policies.reserving import PROMPT_TOO_LONG
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, Scheduler
from sim.engine.step import Step

Block = tuple[int, int]  # text of its last token, index


@dataclass(frozen=True, slots=True)
class TensorRtLlmKnobs:
    """What only TensorRT-LLM has, under its own names."""

    capacity_scheduler_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"]


class TensorRtLlmScheduler(Scheduler):
    """The policy of TensorRT-LLM's batch manager."""

    waiting: ArrivalQueue

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        policy = TensorRtLlmKnobs(**config.knobs).capacity_scheduler_policy
        self._evicts = policy == "MAX_UTILIZATION"
        self._splits = config.enable_chunked_prefill and config.max_num_batched_tokens >= config.block_size
        self._promised = 0  # blocks that running requests may reach together
        self._computed: list[Request] = []  # contexts that the step before completed

    def make_queue(self) -> ArrivalQueue:
        """Paused requests go back to their place."""
        return ArrivalQueue()

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        if self._at_most(request) > self.config.usable_blocks:
            return TOO_LARGE
        if request.prompt > self.config.max_num_batched_tokens and not self._splits:
            return PROMPT_TOO_LONG
        return super().rejects(request)

    def _at_most(self, request: Request) -> int:
        """Blocks that the request may reach."""
        return self.blocks(request.prompt + self.may_output(request))

    # -- the step -----------------------------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        self._store_contexts()
        step = Step()
        self._pause(step)
        unpromised = self._unpromised_blocks()  # those that end in this very step have not given up theirs
        self.decode_all(step)
        left = self.config.max_num_batched_tokens - step.decodes
        contributed: set[Block] = set()
        for request in self.partial:
            left -= self._go_on(step, request, left, contributed)
        self.settle_partial()
        self.blocked = False
        if not step.preempted:
            self._admit(step, left, unpromised, contributed)
        if step.finishing:
            self.blocked = not self.waiting
        if not step.decodes and not step.chunks and not step.preempted:
            return None
        step.finishing.sort(key=lambda request: request.rank)
        return step

    def steps_ahead(self, limit: int) -> int:
        """As long as nobody can be admitted, until a member ends or blocks run out."""
        if self.partial or not self.blocked or not self.group.size or limit <= 0:
            return 0
        return self.group.steps_within(self.pool.free, self.group.steps_to_change(limit))

    def _pause(self, step: Step) -> None:
        """Blocks for the next token of everybody: where they are short, the last started give theirs back."""
        while self.group.size and self.group.blocks_needed() > self.pool.free:
            victim = next(request for request in reversed(self.running) if not request.draining)
            self._promised -= self._at_most(victim)
            self.preempt(step, victim, 0)

    def _unpromised_blocks(self) -> int:
        """Free blocks that no running request needs to come to its end."""
        held = sum(group.context - group.size + group.padding for group in self.groups) // self.config.block_size
        return self.pool.free - (self._promised - held - sum(map(self.held_blocks, self.partial)))

    def _go_on(self, step: Step, request: Request, left: int, contributed: set[Block]) -> int:
        """Compute the next chunk of a context that has begun; return its tokens."""
        if block := self._first_new_block(request):
            contributed.add(block)
        chunk = self._chunk(request.known - request.computed, left)
        if chunk:
            self.compute(step, request, chunk)
        return chunk

    def _chunk(self, rest: int, left: int) -> int:
        """Tokens of a context in this step: all, or as many whole blocks as fit."""
        return rest if rest <= left else left // self.config.block_size * self.config.block_size

    # -- contexts -----------------------------------------------------------------------------------------------------

    def _admit(self, step: Step, left: int, unpromised: int, contributed: set[Block]) -> None:
        aside: list[Request] = []
        while self.waiting and len(self.running) < self.config.max_num_seqs:
            request = self.waiting.head()
            block = self._first_new_block(request)
            if block in contributed:
                aside.append(self.waiting.pop())
                continue
            prompt, whole = self.blocks(request.known), self._at_most(request)
            if prompt > self.pool.free if self._evicts else whole > unpromised:
                break
            chunk = self._first_chunk(step, request, left)
            if not chunk:
                break
            if block:
                contributed.add(block)
            self._begin(step, request, chunk)
            left -= chunk
            unpromised -= whole
        for request in aside:
            self.waiting.requeue(request)
        self.blocked = not (self.waiting and step.chunks) and not aside

    def _first_chunk(self, step: Step, request: Request, left: int) -> int:
        """Tokens that a new context is charged, before it is known what it finds in the cache; 0: it must wait."""
        if self._splits:
            return self._chunk(request.known, left)
        alone = not step.chunks and request.known > self.config.max_num_batched_tokens  # grown by its own output
        return request.known if request.known <= left or alone else 0

    def _begin(self, step: Step, request: Request, chunk: int) -> None:
        hit = self.lookup(request)
        request.computed = hit.blocks * self.config.block_size
        request.reserved = request.known
        self.start(step, request, min(chunk, request.known - request.computed), hit)

    def enter(self, request: Request) -> None:
        """Give ``request`` the last place in the running order, and promise it its blocks."""
        super().enter(request)
        self._promised += self._at_most(request)

    def _drain(self, request: Request) -> None:
        """The last token is in flight: nothing more is promised."""
        super()._drain(request)
        self._promised -= self._at_most(request)
        self.blocked = not self.waiting

    # -- block reuse --------------------------------------------------------------------------------------------------

    def publish(self, request: Request) -> None:
        """Blocks can be reused once the step that completes the context is over."""
        if request.computed == request.known:
            self._computed.append(request)

    def _store_contexts(self) -> None:
        for request in self._computed:
            super().publish(request)
        self._computed.clear()

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output."""
        self._store_contexts()
        super().complete(finishing)

    def _first_new_block(self, request: Request) -> Block | None:
        """The first full block of the prompt that is not cached, if its text is shared."""
        if not request.spans or not self.config.enable_prefix_caching:
            return None
        size = self.config.block_size
        index = self.pool.lookup(request, request.prompt // size).blocks
        if index >= request.prompt // size:
            return None
        return next(text for text, end in text_rows(request, size) if end > index), index
