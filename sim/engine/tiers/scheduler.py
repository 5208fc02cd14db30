"""vLLM's scheduler with memory beside the GPU: preempted requests may be swapped, evicted prefixes come back.

A request whose cache lies elsewhere leaves the queue as soon as blocks for all that it knows are free, holds them while
the copy runs beside the steps, and joins the batch, ahead of those that wait, at the first schedule after the copy has
ended (vllm/v1/core/sched/scheduler.py, WAITING_FOR_REMOTE_KVS; there the blocks of what is not copied are taken on
joining). An engine that does not overlap host and GPU swaps as vLLM 0 did: the step waits for the copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sim.cost.shape import StepTimer
from sim.engine.config import EngineConfig
from sim.engine.kv.pool import NO_HIT, BlockPool, Hit, text_rows
from sim.engine.request import Request, Tick
from sim.engine.step import Step
from sim.engine.tiers.choice import recompute_ticks
from sim.engine.tiers.pool import SpillingPool
from sim.engine.tiers.store import TierStore
from sim.engine.tiers.swap import SwapSpace
from sim.engine.vllm import VllmScheduler

Run = tuple[TierStore, int, int, int]  # tier, node, first block, end block


class TieredScheduler(VllmScheduler):
    """The policy of vLLM V1 with a swap space, offload tiers, or both.

    Attributes:
        swap: caches of preempted requests; None: they are recomputed.
        tiers: evicted prefix blocks, nearest first.
        loading: requests whose cache is on its way, with the tick at which it is there.
        landed: those whose cache is there, and who have no seat yet.
        asked_tokens: tokens that requests knew when they were admitted, resumptions included.
        gpu_tokens: of these, tokens found in the GPU's own cache.
    """

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        whole = tick_s != 1.0
        self.swap = None if config.swap is None else SwapSpace(config.swap, whole_ticks=whole)
        self.tiers: list[TierStore] = []
        for plan in reversed(config.tiers):
            self.tiers.insert(0, TierStore(plan, self.tiers[0] if self.tiers else None, whole_ticks=whole))
        if self.tiers:
            assert isinstance(self.pool, SpillingPool)
            self.pool.tier = self.tiers[0]
        self.loading: dict[Request, Tick] = {}
        self.landed: deque[Request] = deque()
        self.gpu_tokens = self.asked_tokens = 0
        self._timer: StepTimer | None = None

    def make_pool(self) -> BlockPool:
        """The blocks."""
        if not self.config.tiers:
            return super().make_pool()
        return SpillingPool(self.config.usable_blocks, self.config.block_size)

    def learn_costs(self, timer: StepTimer) -> None:
        """What recomputing costs."""
        self._timer = timer

    # -- the policy ---------------------------------------------------------------------------------------------------

    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``."""
        if len(self.running) < self.config.max_num_seqs:
            if self.landed:
                return 0
            if self.tiers and self.waiting and not self.config.enable_chunked_prefill:
                return 0  # what a decode evicts may be what lets the head of the queue start without a whole prefill
        return super().steps_ahead(limit)

    def landing(self) -> Tick | None:
        """When the next copy ends that a request waits for."""
        return min(self.loading.values()) if self.loading else None

    @property
    def fetching(self) -> Sequence[Request]:
        """Requests that hold blocks and are neither running nor waiting."""
        return [*self.loading, *self.landed]

    def padding_tokens(self) -> int:
        """Unused slots in the blocks of all requests that hold some."""
        size = self.config.block_size
        held = sum(self.held_blocks(request) * size - request.computed for request in self.fetching)
        return super().padding_tokens() + held

    # -- going out ----------------------------------------------------------------------------------------------------

    def preempt(self, step: Step, victim: Request, tokens_in_step: int, undone: int = 0) -> None:
        """Take all blocks from ``victim`` and queue it again; its cache is kept in the host where that is chosen."""
        computed = victim.computed if not victim.in_group else victim.group_offset + (victim.group or self.group).step
        super().preempt(step, victim, tokens_in_step, undone)
        tokens = computed - undone
        if self.swap is not None and tokens > 0 and not victim.draining and self._swaps(tokens):
            end = self.swap.store(victim, tokens, self.blocks(tokens), self.now)
            self.hold = max(self.hold, end)

    def _swaps(self, tokens: int) -> bool:
        """Whether a victim's cache goes to the host: there is room and, if asked, it is cheaper than recomputing."""
        assert self.swap is not None
        blocks = self.blocks(tokens)
        if self.swap.plan.preemption == "auto":
            assert self._timer is not None
            recompute = recompute_ticks(self._timer, self.decode_shape(), tokens, self.config.max_num_batched_tokens)
            if recompute <= self.swap.price(blocks):
                return False
        if not self.swap.fits(blocks):
            self.swap.refused += 1
            return False
        return True

    # -- coming back --------------------------------------------------------------------------------------------------

    def _admit(self, step: Step, left: int) -> None:
        for request, end in list(self.loading.items()):
            if end <= self.now:
                del self.loading[request]
                self.landed.append(request)
        while self.landed and left > 0 and len(self.running) < self.config.max_num_seqs:
            left -= self._seat(step, self.landed.popleft(), left)
        super()._admit(step, left)

    def _seat(self, step: Step, request: Request, left: int) -> int:
        """Take a request whose cache has come into the batch; return the tokens that it computes."""
        chunk = min(self.wanted(request), left)
        self.join(step, request, NO_HIT)
        self.compute(step, request, chunk)
        if not (request.in_group or request.draining):
            self.partial.append(request)
        return chunk

    def fetch(self, request: Request, hit: Hit) -> bool | None:
        """See to it that what lies elsewhere of a waiting request comes back.

        Returns:
            None: it has nothing elsewhere, or what it has comes with the step. True: it has left the queue to load.
            False: it must wait for room.
        """
        tokens = 0 if self.swap is None else self.swap.kept.get(request, 0)
        if tokens > hit.blocks * self.config.block_size:
            assert self.swap is not None
            if self.swap.plan.overlaps:
                return self._load(request, hit, tokens, [])
            request.computed = tokens
            return None
        runs = self._beyond(request, hit) if self.tiers else []
        if not runs:
            return None
        return self._load(request, hit, runs[-1][3] * self.config.block_size, runs)

    def _beyond(self, request: Request, hit: Hit) -> list[Run]:
        """Runs of blocks that continue a hit, wherever they lie; at least the last token is left to compute."""
        limit, block = (request.known - 1) // self.config.block_size, hit.blocks
        runs: list[Run] = []
        for node, end in text_rows(request, self.config.block_size):
            last = min(end, limit)
            while block < last:
                until = block
                for tier in self.tiers:
                    until = min(tier.find(node, block), last)
                    if until > block:
                        runs.append((tier, node, block, until))
                        break
                if until == block:
                    return runs
                block = until
        return runs

    def _load(self, request: Request, hit: Hit, tokens: int, runs: list[Run]) -> bool:
        """Give ``request`` its blocks and start to load those beyond ``hit``, if all it needs is free."""
        need = self.blocks(request.known) - hit.blocks
        reserve = self.config.watermark_blocks if self.running else 0
        if need + hit.idle_blocks + reserve > self.pool.free:
            return False
        self.waiting.pop()
        if hit.blocks:
            self.pool.claim(request, hit)
        if runs:
            ready: Tick = max(
                tier.load([run[1:] for run in runs if run[0] is tier], self.now)
                for tier in dict.fromkeys(run[0] for run in runs)
            )
        else:
            assert self.swap is not None
            ready = self.swap.restore(request, self.blocks(tokens) - hit.blocks, self.now)
        self.pool.take(need)
        self.gpu_tokens += hit.blocks * self.config.block_size
        self.asked_tokens += request.known
        request.computed, request.reserved = tokens, request.known
        self.loading[request] = ready
        return True

    def admit(self, step: Step, request: Request, hit: Hit) -> None:
        """Take a waiting request into the batch with the blocks of ``hit``, and what the step brings back with it."""
        super().admit(step, request, hit)
        self.gpu_tokens += hit.blocks * self.config.block_size
        self.asked_tokens += request.known
        if self.swap is not None and request in self.swap.kept:
            missing = self.blocks(request.computed) - hit.blocks
            if missing > 0:
                self.hold = max(self.hold, self.swap.restore(request, missing, self.now))
            else:
                self.swap.forget(request)
