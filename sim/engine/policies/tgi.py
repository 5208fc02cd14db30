"""Text Generation Inference: a running batch that pauses to let a waiting one catch up.

The rules are those of TGI 2.3 (backends/v3/src/{backend,queue,radix}.rs): memory for a request's whole possible length
is allocated when it leaves the queue; before each decode step the queue is asked for a batch, which must be a share
``waiting_served_ratio`` of the running one unless ``max_waiting_tokens`` decode steps have passed since the last
prefill; that batch is prefilled in a step of its own, and one decode step of all follows. A prompt enters the prefix
tree when its request is freed.
"""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.config import EngineConfig
from sim.engine.kv.pool import NO_HIT, BlockPool
from sim.engine.kv.radix import RadixPool
from sim.engine.policies.queues import OpenQueue
from sim.engine.policies.reserving import ReservingScheduler
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE
from sim.engine.step import Step


@dataclass(frozen=True, slots=True)
class TgiKnobs:
    """What only TGI has, under its own names. ``max_batch_total_tokens`` None: what the memory holds."""

    waiting_served_ratio: float
    max_waiting_tokens: int
    max_batch_total_tokens: int | None


class TgiScheduler(ReservingScheduler):
    """The policy of TGI's router."""

    waiting: OpenQueue

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.knobs = TgiKnobs(**config.knobs)
        capacity = config.usable_blocks * config.block_size
        self._total_tokens = min(self.knobs.max_batch_total_tokens or capacity, capacity)
        self._waited = 0  # ``waiting_tokens``: decode steps since the last prefill, and one
        self._concatenated = False  # a batch was just prefilled beside a running one: a decode step is next
        self._patient = False  # those that wait are too few, for now

    def make_pool(self) -> BlockPool:
        """A radix tree, or plain blocks without prefix caching."""
        usable, size = self.config.usable_blocks, self.config.block_size
        if not self.config.enable_prefix_caching:
            return BlockPool(usable, size)
        return RadixPool(usable, size, whole_leaves=False)

    def make_queue(self) -> OpenQueue:
        """First in, first out; what does not fit goes back to the front."""
        return OpenQueue()

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        if self.whole(request) + 1 > self._total_tokens:
            return TOO_LARGE
        return super().rejects(request)

    # -- the step -----------------------------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        step = Step()
        if self._concatenated or not self._prefill(step):
            self._concatenated = False
            self._waited += 1
            self.decode_all(step)
        if not step.decodes and not step.chunks:
            return None
        step.finishing.sort(key=lambda request: request.rank)
        return step

    def steps_ahead(self, limit: int) -> int:
        """As long as nobody can be admitted; with too few waiting, until they have waited long enough."""
        if self._patient and not self._concatenated and self.group.size:
            limit = min(limit, self.knobs.max_waiting_tokens - self._waited)
            return self.group.steps_to_change(limit) if limit > 0 else 0
        return super().steps_ahead(limit)

    def extend(self, steps: int) -> list[Request]:
        """Repeat the decode-only step."""
        self._waited += steps
        return super().extend(steps)

    def add(self, request: Request) -> bool:
        """Queue an arrival; true if the next step could differ because of it."""
        matters = self._patient or not self.waiting
        self.waiting.add(request)
        if matters:
            self.blocked = self._patient = False
        return matters

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output."""
        super().complete(finishing)
        if finishing:
            self._patient = False

    # -- asking the queue ---------------------------------------------------------------------------------------------

    def _prefill(self, step: Step) -> bool:
        """Take a batch out of the queue and prefill it; false if there is none to take."""
        running = len(self.running)
        enough = not running or self._waited >= self.knobs.max_waiting_tokens
        batch = self._next_batch(0 if enough else int(running * self.knobs.waiting_served_ratio))
        for request in batch:
            self.admit(step, request, NO_HIT)  # what it found in the cache it holds already
            self.compute(step, request, request.prompt - request.computed)
        if batch:
            self._concatenated, self._waited = running > 0, 1
        return bool(batch)

    def _next_batch(self, least: int) -> list[Request]:
        """Waiting requests that fit, with their blocks; none if they are fewer than ``least``."""
        batch: list[Request] = []
        self._patient, self.blocked = 0 < len(self.waiting) < least, False
        if self._patient:
            return batch
        prefill, total = (
            self.config.max_num_batched_tokens,
            self._total_tokens - self.reserved_blocks * self.config.block_size,
        )
        seats = self.config.max_num_seqs - len(self.running)
        for request in self.waiting:
            prefill -= request.prompt
            total -= request.prompt + self.may_output(request)
            if len(batch) == seats or prefill < 0 or total < 0 or not self._allocate(request):
                break
            batch.append(request)
        if len(batch) >= max(least, 1):
            return batch
        for request in batch:
            self.pool.release(request, self.blocks(self.whole(request)), request.cached_blocks)
            request.computed = 0
        self._patient = len(batch) > 0
        self.blocked = not batch
        return []

    def _allocate(self, request: Request) -> bool:
        """Hold the cached prefix of a request and blocks for all the rest, if they are there."""
        hit = self.lookup(request)
        missing = self.blocks(self.whole(request)) - hit.blocks
        if missing + hit.idle_blocks > self.pool.free:
            return False
        if hit.blocks:
            self.pool.claim(request, hit)
        self.pool.take(missing)
        request.computed = hit.blocks * self.config.block_size
        return True

    def full_blocks(self, request: Request, lag: int) -> int:
        """Only prompts stay in the tree."""
        return max(request.cached_blocks, request.prompt // self.config.block_size)
