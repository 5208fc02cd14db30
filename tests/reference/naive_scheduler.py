"""One call of vLLM's V1 ``Scheduler.schedule``, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass, field

from naive_state import Block, BlockPool, Line, Request

DEFAULTS: Line = {
    "num_gpu_blocks": 1000,
    "block_size": 16,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "max_model_len": 4096,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "async_scheduling": False,
    "spec_method": None,
    "num_speculative_tokens": 0,
}


@dataclass(eq=False)
class Share:
    """What one request got in one step."""

    tokens: int
    drafts: int = 0
    samples: bool = False
    preemptions: int = 0  # of the request at that time: if it grew, the output comes from before a preemption


@dataclass
class Batch:
    """What one call decided."""

    shares: dict[Request, Share] = field(default_factory=dict)
    admitted: list[list[int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)


class NaiveScheduler:
    """Queue, running list and block pool."""

    def __init__(self, config: Line) -> None:
        settings = {**DEFAULTS, **config}
        self.block_size: int = settings["block_size"]
        self.max_num_seqs: int = settings["max_num_seqs"]
        self.budget: int = settings["max_num_batched_tokens"]
        self.max_model_len: int = settings["max_model_len"]
        self.chunked: bool = settings["enable_chunked_prefill"]
        self.caching: bool = settings["enable_prefix_caching"]
        self.long_prefill: int = settings["long_prefill_token_threshold"]
        self.priority: bool = settings["policy"] == "priority"
        self.watermark = int(settings["watermark"] * settings["num_gpu_blocks"])
        self.reserve_full: bool = settings["scheduler_reserve_full_isl"]
        self.asynchronous: bool = settings["async_scheduling"]
        self.spec_tokens: int = settings["num_speculative_tokens"] if settings["spec_method"] else 0
        self.eagle: bool = settings["spec_method"] == "eagle"
        self.lookahead = self.spec_tokens if self.eagle else 0
        self.pool = BlockPool(settings["num_gpu_blocks"])
        self.usable_blocks: int = settings["num_gpu_blocks"] - 1
        self.waiting: list[Request] = []
        self.running: list[Request] = []

    # -- the queue

    def enqueue(self, request: Request) -> None:
        """A new request joins."""
        self.waiting.append(request)
        self._keep_order()

    def _keep_order(self) -> None:
        if self.priority:
            self.waiting.sort(key=lambda request: request.order)

    # -- blocks

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold ``tokens`` tokens."""
        return -(-tokens // self.block_size)

    def hits(self, request: Request) -> list[Block]:
        """Cached blocks from the start of the request's known tokens, at least one token left to compute."""
        found: list[Block] = []
        if not self.caching:
            return found
        for index in range((request.known - 1) // self.block_size):
            holders = self.pool.cache.get(request.key(index))
            if holders is None:
                break
            found.append(holders[0])
        if self.eagle and found:
            found.pop()
        return found

    def cache_up_to(self, request: Request, tokens: int) -> None:
        """Full blocks within the first ``tokens`` tokens enter the prefix cache."""
        if not self.caching:
            return
        for index in range(request.cached, tokens // self.block_size):
            self.pool.remember(request.blocks[index], request.key(index))
            request.cached = index + 1

    def grow(self, request: Request, new: int) -> bool:
        """Slots for ``new`` more tokens of a running request; False if they do not fit."""
        slots = min(request.computed + new + self.lookahead, self.max_model_len)
        missing = max(self.blocks_for(slots) - len(request.blocks), 0)
        if missing > len(self.pool.free):
            return False
        request.blocks += [self.pool.take() for _ in range(missing)]
        self.cache_up_to(request, min(request.computed + new, request.known))
        return True

    def admit(self, request: Request, hits: list[Block], new: int) -> bool:
        """Slots for the first chunk of a waiting request; False if it must wait."""
        leaving = sum(block.users == 0 for block in hits)  # hits that leave the free list
        free = len(self.pool.free) - (self.watermark if self.running else 0)
        whole = max(self.blocks_for(min(request.known, self.max_model_len)) - len(hits), 0) + leaving
        if self.reserve_full and whole > free:
            return False
        computed = len(hits) * self.block_size
        slots = min(computed + new + self.lookahead, self.max_model_len)
        missing = max(self.blocks_for(slots) - len(hits), 0)
        if missing + leaving > free:
            return False
        for block in hits:
            self.pool.share(block)
        request.blocks = hits + [self.pool.take() for _ in range(missing)]
        request.computed = computed
        request.cached = len(hits)
        self.cache_up_to(request, min(computed + new, request.known))
        return True

    # -- one step

    def schedule(self) -> Batch:
        """Running requests in order, then, if nobody was preempted, waiting ones from the head."""
        batch = Batch()
        alone = len(self.running) + len(self.waiting) == 1
        cap = 0 if alone else self.long_prefill
        left = self._schedule_running(batch, cap)
        if not batch.preempted:
            self._schedule_waiting(batch, cap, left)
        for request, share in batch.shares.items():
            request.computed += share.tokens
            share.samples = request.computed >= request.known + request.placeholders
            share.preemptions = request.preemptions
            request.mid_prefill = not share.samples
            if share.samples and self.asynchronous:
                request.placeholders += 1
        return batch

    def _schedule_running(self, batch: Batch, cap: int) -> int:
        left = self.budget
        index = 0
        while index < len(self.running) and left > 0:
            request = self.running[index]
            last_in_flight = request.placeholders and request.outputs + request.placeholders >= request.output_len
            new = request.known + request.drafts + request.placeholders - request.computed
            if 0 < cap < new:
                new = cap
            new = min(new, left, self.max_model_len - 1 - request.computed)
            if last_in_flight or new <= 0:
                index += 1
                continue
            while not self.grow(request, new):
                victim = self._victim()
                if self.running.index(victim) < index:
                    index -= 1
                self.running.remove(victim)
                if victim in batch.shares:
                    left += batch.shares.pop(victim).tokens
                self._preempt(victim)
                batch.preempted.append(victim)
                if victim is request:
                    return left
            drafts = max(new + request.computed - request.known, 0) if request.drafts else 0
            batch.shares[request] = Share(new, drafts)
            request.drafts = 0
            left -= new
            index += 1
        return left

    def _victim(self) -> Request:
        """FCFS: the last of the running; priority: the largest (priority, arrival), the first such."""
        if self.priority:
            return max(self.running, key=lambda request: (request.priority, request.arrival_us))
        return self.running[-1]

    def _preempt(self, request: Request) -> None:
        self.pool.release(request.blocks)
        request.blocks = []
        request.cached = request.computed = request.placeholders = request.drafts = 0
        request.preemptions += 1
        self.waiting.insert(0, request)
        self._keep_order()

    def _schedule_waiting(self, batch: Batch, cap: int, left: int) -> None:
        decoding = bool(batch.shares)
        prefilling = any(request.mid_prefill for request in batch.shares)
        while self.waiting and len(self.running) < self.max_num_seqs and left > 0:
            request = self.waiting[0]
            hits = self.hits(request)
            new = request.known - len(hits) * self.block_size
            drafts = 0
            padded = 1 + self.spec_tokens
            room = request.known + padded <= self.max_model_len
            if self.spec_tokens and new == 1 and not prefilling and (decoding or hits) and room:
                # A request that wants a single token is padded with drafts to look like the decodes around it.
                if padded > left:
                    return
                new, drafts = padded, self.spec_tokens
            if 0 < cap < new:
                new = cap
            if not self.chunked and new > left:
                return
            new = min(new, left)
            if not self.admit(request, hits, new):
                return
            self.waiting.pop(0)
            self.running.append(request)
            batch.shares[request] = Share(new, drafts)
            batch.admitted.append([request.id, request.computed, int(request.preemptions > 0)])
            left -= new
