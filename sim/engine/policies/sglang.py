"""SGLang's scheduler: prefill first, a radix tree of cached text, admission by an estimate, retraction where it fails.

The rules are those of SGLang 0.5 (python/sglang/srt/managers/{scheduler,schedule_policy,schedule_batch}.py and
mem_cache/radix_cache.py): whenever someone waits and the batch is not known to be full, a step is made of prefills
alone and the decodes pause, unless chunks are mixed with them; a prompt is entered into the tree when its step's output
comes in. Apart from the source: tokens in flight count as output where lengths are estimated, and the slot of a token
that is computed for a request already at its end is not held.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sim.engine.config import EngineConfig
from sim.engine.kv.pool import BlockPool, Hit
from sim.engine.kv.radix import RadixPool
from sim.engine.policies.queues import OpenQueue
from sim.engine.policies.sglang_admission import Admission, put_longest_prefix_first
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, Scheduler
from sim.engine.step import Step

RETRACT_DECODE_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class SglangKnobs:
    """What only SGLang has, under its own names (server arguments and SGLANG_* environment variables)."""

    schedule_policy: Literal["fcfs", "lpm"]
    max_prefill_tokens: int
    enable_mixed_chunk: bool
    schedule_conservativeness: float
    init_new_token_ratio: float
    min_new_token_ratio_factor: float
    new_token_ratio_decay_steps: int


class Computed(NamedTuple):
    """Blocks that are entered into the tree once the output of step ``step`` is in."""

    step: int
    request: Request
    blocks: int


class SglangScheduler(Scheduler):
    """The policy of SGLang.

    Attributes:
        full: nobody is tried before a running request ends or is retracted (``batch_is_full``).
        ended: requests that ended and count as running until the next decode step.
    """

    waiting: OpenQueue

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.knobs = SglangKnobs(**config.knobs)
        self.full = False
        self.ended = 0
        self._computed: deque[Computed] = deque()
        self._number = 0  # of the step to be scheduled
        self._prefilled = False  # the step before was a prefill
        self._mixed = False  # ... with decodes
        self._rested = True
        self._initial_ratio = min(1.0, self.knobs.init_new_token_ratio * self.knobs.schedule_conservativeness)
        self._least_ratio = self._initial_ratio * self.knobs.min_new_token_ratio_factor
        self._reckon(self._initial_ratio)

    def make_pool(self) -> BlockPool:
        """A radix tree, or plain pages where the radix cache is off."""
        pool_class = RadixPool if self.config.enable_prefix_caching else BlockPool
        return pool_class(self.config.usable_blocks, self.config.block_size)

    def make_queue(self) -> OpenQueue:
        """Retracted requests go to the end."""
        return OpenQueue()

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        page = self.config.block_size
        if request.prompt + min(self.may_output(request), Admission.CLIP) + page >= self.config.usable_blocks * page:
            return TOO_LARGE
        return super().rejects(request)

    def may_output(self, request: Request) -> int:
        """What the client allows, cut to what fits the pool, as the server cuts it."""
        room = (self.config.usable_blocks - 1) * self.config.block_size - request.prompt - 1
        return max(request.output, min(super().may_output(request), room))

    @property
    def new_token_ratio(self) -> float:
        """Share of the output still allowed that running requests are reckoned to need."""
        decay = (self._initial_ratio - self._least_ratio) / self.knobs.new_token_ratio_decay_steps
        return max(self._ratio - self._decays * decay, self._least_ratio)

    def _reckon(self, ratio: float) -> None:
        """Set the ratio; from here on it falls with every decode step."""
        self._ratio, self._decays = ratio, 0

    @property
    def running_requests(self) -> int:
        """Requests past their prefill, those that ended and were not yet filtered out included."""
        return self.group.size + len(self.draining) + self.ended

    @property
    def seats(self) -> int:
        """Requests that may be past their prefill at one time."""
        return self.config.max_num_seqs

    # -- the step -----------------------------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        self._take_in_computed()
        step = Step()
        self._prefilled = self._prefill(step)
        if not self._prefilled:
            filtered = self.ended > 0
            self._decode(step)
            if filtered and not (step.shape.tokens or step.preempted or self.flying):  # an idle round of the loop
                self._rest()
                self._prefilled = self._prefill(step)
        self._rested = not (step.shape.tokens or step.preempted or self.flying)
        if not (step.shape.tokens or step.preempted):
            self._rest()
            return None
        self._number += 1
        step.finishing.sort(key=lambda request: request.rank)
        return step

    @property
    def rested(self) -> bool:
        """Whether those that ended were filtered out and the estimate has begun anew."""
        return self._rested

    def _rest(self) -> None:
        """Nothing is to be done: where nothing is under way either, the estimate begins anew."""
        if not self.flying:
            self._reckon(self._initial_ratio)

    def steps_ahead(self, limit: int) -> int:
        """Decode-only steps that certainly come next: nothing waits to be entered, filtered or admitted."""
        busy = self.partial or self._computed or self.ended or self.draining or (self.waiting and not self.full)
        if busy or not self.group.size or limit <= 0:
            return 0
        return self.group.steps_within(self.pool.free, self.group.steps_to_change(limit))

    def add(self, request: Request) -> bool:
        """Queue an arrival; true if the next step could differ because of it."""
        self.waiting.add(request)
        return not self.full

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output."""
        gone = set(finishing)
        self._computed = deque(entry for entry in self._computed if entry.request not in gone)
        super().complete(finishing)
        if finishing and self._prefilled and (self._mixed or not self.config.async_scheduling):
            self.full = False
        else:
            self.ended += len(finishing)

    def extend(self, steps: int) -> list[Request]:
        """Repeat the decode-only step; the tree is evicted from step by step, as it is needed."""
        self._decays += steps
        self._number += steps
        self._prefilled = False
        pool = self.pool
        bound = self.blocks(steps) * self.group.size
        if isinstance(pool, RadixPool) and bound > pool.free - pool.evictable:
            for _ in range(steps - 1):
                super().extend(1)
            steps = 1
        return super().extend(steps)

    # -- prefill ------------------------------------------------------------------------------------------------------

    def _prefill(self, step: Step) -> bool:
        """Admit and continue prompts; false if there is nobody to prefill."""
        if not self.running_requests:  # an engine that only prefills keeps caches for others until they have them
            self.full = False
        if not self.partial and (self.full or not self.waiting):
            return False
        seats = self.seats - self.running_requests
        if seats <= 0 and not self.partial:
            self.full = True
            return False
        mixed = self.knobs.enable_mixed_chunk and self.group.size > 0
        kept = self.group.blocks_needed() if mixed else 0
        admission = Admission(self, self.running_requests if self.knobs.enable_mixed_chunk else 0, kept)
        if self.partial:
            admission.go_on(self.partial[0])
        if self.knobs.schedule_policy == "lpm" and isinstance(self.pool, RadixPool):
            put_longest_prefix_first(self)
        while self.waiting and not admission.over:
            if len(admission.chunks) >= seats:
                self.full = True
                break
            request, hit = self.waiting.head(), self.lookup(self.waiting.head())
            request.computed = hit.blocks * self.config.block_size
            if admission.admits(request, hit):
                self.admit(step, request, hit)
        self.full |= admission.no_token
        if not admission.chunks:
            return False
        alone, self._mixed = not self.running_requests, mixed
        self._compute(step, admission.chunks, mixed)
        if mixed or (alone and len(self.partial) < len(admission.chunks)):
            self.full = False  # this batch takes the place of the one that was full
        return True

    def _compute(self, step: Step, chunks: dict[Request, int], mixed: bool) -> None:
        self.pool.take(sum(self.new_blocks(request, chunk) for request, chunk in chunks.items()))
        if mixed:
            self.decode_all(step)
        for request, chunk in chunks.items():
            self.compute(step, request, chunk)
        self.partial = [request for request in chunks if not (request.in_group or request.draining)]

    def lookup(self, request: Request) -> Hit:
        """The cached prefix of a waiting request; at least its last token is left to compute."""
        return self.pool.lookup(request, (request.known - 1) // self.config.block_size)

    def publish(self, request: Request) -> None:
        """What was computed is entered into the tree when the step's output comes in."""
        if isinstance(self.pool, RadixPool):
            self._computed.append(Computed(self._number, request, request.computed // self.config.block_size))

    def _take_in_computed(self) -> None:
        """Enter prompts whose step is over; a chunk of a longer prompt at once, before the next chunk is cut."""
        pool, before = self.pool, self._last_known()
        assert isinstance(pool, RadixPool) or not self._computed
        kept: deque[Computed] = deque()
        for entry in self._computed:
            if entry.step <= before or entry.request in self.partial:
                pool.insert(entry.request, entry.blocks)  # type: ignore[attr-defined]
            else:
                kept.append(entry)
        self._computed = kept

    def _last_known(self) -> int:
        """The last step whose output is in."""
        return self._number - self.config.pipeline_depth

    # -- decode -------------------------------------------------------------------------------------------------------

    def _decode(self, step: Step) -> None:
        if self.ended:
            self.full, self.ended = False, 0
        wasted = list(self.draining) if self.config.async_scheduling else []
        if not self.group.size and not wasted:
            return
        if self.group.blocks_needed() > self.pool.free:
            self._retract(step)
        else:
            self._decays += 1
        self.decode_all(step)
        for request in wasted:  # its end is not known yet: one token more is computed, and thrown away
            self._count_decode(step, request.computed + 1)

    def _retract(self, step: Step) -> None:
        """Free blocks: the requests with the fewest outputs go, of equals those with the longest prompts."""
        group = self.group
        members = [request for request in self.running if request.in_group and request.group is group]
        members.sort(key=lambda request: (self._outputs(request), -request.prompt), reverse=True)
        while members and (not step.preempted or group.blocks_needed() > self.pool.free):  # one alone has room
            self._drop(step, members.pop())
            if isinstance(self.pool, RadixPool):
                self.pool.make_room(-(-len(members) * RETRACT_DECODE_STEPS // self.config.block_size))
        outputs = sum(map(self._outputs, members)) + RETRACT_DECODE_STEPS * len(members)
        self._reckon(min(1.0, outputs / max(1, sum(map(self.may_output, members)))))
        self.full = False

    def _drop(self, step: Step, victim: Request) -> None:
        """Give a member's pages back, but for what the tree holds, and queue it again; its outputs are kept."""
        self.group.leave(victim)
        self.scribes.pop(victim, None)
        del self.running[victim]
        self._computed = deque(entry for entry in self._computed if entry.request is not victim)
        self.pool.release(victim, self.held_blocks(victim), victim.cached_blocks)
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.requeue(victim)
        step.interrupted.append(victim)
        step.preempted.append(victim)

    def _outputs(self, request: Request) -> int:
        return request.output - (request.last_group_step - self.group.step)
