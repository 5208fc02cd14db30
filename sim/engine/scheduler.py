"""What every scheduler shares: the batch, its blocks, and the verbs that move requests through it.

Requests that decode in lock-step are held as sums (`DecodeGroup`); the others one by one. A policy is a subclass that
says who is admitted, who gets how many tokens, and who gives way (`sim.engine.vllm`, `sim.engine.policies`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from sim.engine.config import EngineConfig
from sim.engine.decoding import DecodeGroup
from sim.engine.kv.pool import BlockPool, Hit
from sim.engine.kv.prefix import PrefixBlockPool
from sim.engine.queue import FcfsQueue, PriorityQueue, WaitingQueue
from sim.engine.request import Request, Tick
from sim.engine.step import Step

TOO_LONG = "prompt and output exceed max_model_len"
TOO_LARGE = "prompt and output exceed the KV cache"


class Scheduler(ABC):
    """State of one engine's queue, batch and blocks, and the policy that moves requests between them.

    Attributes:
        running: admitted requests in running order (those whose last token is in flight included).
        partial: running requests outside the decode group that still want tokens, in running order.
        draining: running requests whose last token is in flight.
        blocked: nobody can be admitted before a request ends or one that matters arrives.
        scribes: members of the decode group that write text which others may look up.
        now: the tick of the schedule, set by the process; for policies with a timeout.
    """

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        self.config = config
        self.tick_s = tick_s
        self.now: Tick = 0
        self.pool: BlockPool = self.make_pool()
        self.waiting: WaitingQueue = self.make_queue()
        self.group = DecodeGroup(config.block_size, window)
        self.running: dict[Request, None] = {}
        self.partial: list[Request] = []
        self.draining: list[Request] = []
        self.blocked = True
        self.hash_lag = 1 if config.async_scheduling else 0  # an unseen token cannot be hashed
        self.scribes: dict[Request, None] = {}
        self._next_rank = 0

    # -- the policy ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""

    @abstractmethod
    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``.

        0 is always right, and slow: the replica then asks `schedule` for every step.
        """

    def make_pool(self) -> BlockPool:
        """The blocks."""
        pool_class = PrefixBlockPool if self.config.enable_prefix_caching else BlockPool
        return pool_class(self.config.usable_blocks, self.config.block_size)

    def make_queue(self) -> WaitingQueue:
        """The queue of those that wait."""
        return PriorityQueue() if self.config.scheduling_policy == "priority" else FcfsQueue()

    def patience(self) -> Tick | None:
        """When to look again at those that wait, nothing running and nobody arriving; None: never."""
        return None

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        total = request.prompt + request.output
        if total > self.config.max_model_len:
            return TOO_LONG
        if self.blocks(total - 1) > self.config.usable_blocks:
            return TOO_LARGE
        return None

    def add(self, request: Request) -> bool:
        """Queue an arrival; true if the next step could differ because of it."""
        self.waiting.add(request)
        if len(self.running) < self.config.max_num_seqs and self.waiting.head() is request:
            self.blocked = False
            return True
        return False

    # -- taking in output ---------------------------------------------------------------------------------------------

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output: requests that got their last token leave, in running order."""
        for request in finishing:
            self.draining.remove(request)
            if request in self.running:
                del self.running[request]
                full = self.full_blocks(request, lag=0)
                self.pool.fill(full - self.full_blocks(request, lag=self.hash_lag))
                self.pool.release(request, self.held_blocks(request), full)
            else:
                self.waiting.remove(request)  # preempted while its last token was in flight
        if finishing:
            self.blocked = not self.waiting

    def extend(self, steps: int) -> list[Request]:
        """Repeat the decode-only step ``steps`` times; return the requests whose last token the last one samples."""
        self.grow(self._move_group(steps))
        return self._end_decodes()

    # -- computing ----------------------------------------------------------------------------------------------------

    def decode_all(self, step: Step, *, blocks_taken: bool = False) -> None:
        """Give every member of the decode group its token."""
        group, shape = self.group, step.shape
        if not group.size:
            return
        step.decodes = group.size
        shape.decode_seqs += group.size
        shape.decode_context += group.context
        shape.decode_context_windowed += group.windowed
        shape.sampled_seqs += group.size
        started = self._move_group(1)
        if not blocks_taken:
            self.grow(started)
        step.finishing = self._end_decodes()

    def compute(self, step: Step, request: Request, chunk: int) -> None:
        """Schedule ``chunk`` tokens of a request outside the group, blocks already taken."""
        before = request.computed
        request.computed = before + chunk
        step.chunks[request] = chunk
        self.pool.cache(request, request.computed // self.config.block_size)
        if chunk == 1 and request.issued and before:
            self._count_decode(step, before + 1)
        else:
            step.shape.add_prefill(chunk, before, self.group.window)
        if request.computed == request.known:
            self._sample(step, request)

    def _count_decode(self, step: Step, attended: int) -> None:
        window = self.group.window
        step.shape.decode_seqs += 1
        step.shape.decode_context += attended
        step.shape.decode_context_windowed += attended if window is None else min(attended, window)

    def _sample(self, step: Step, request: Request) -> None:
        step.shape.sampled_seqs += 1
        (step.late if request.issued else step.first).append(request)
        request.issued += 1
        if request.issued == request.output:
            self._drain(request)
            step.finishing.append(request)
            return
        self.group.join(request)
        if request.spans and request.spans[-1][1] > request.computed and self.config.enable_prefix_caching:
            self.scribes[request] = None

    def _move_group(self, steps: int) -> int:
        """Move all members on; return the blocks that they start, which are still to be taken."""
        started, filled = self.group.advance(steps)
        already_full = self.group.already_full()
        self.pool.fill(started - already_full if self.hash_lag else filled)
        for scribe in self.scribes:
            self.pool.settle(scribe, self.full_blocks(scribe, lag=self.hash_lag))
        return started

    def _end_decodes(self) -> list[Request]:
        done = self.group.ended()
        for request in done:
            self._drain(request)
        return done

    def _drain(self, request: Request) -> None:
        request.draining = True
        self.scribes.pop(request, None)
        self.draining.append(request)

    def hash_arrived(self) -> None:
        """Cache what is known by now of requests outside the group: one left out of a step has nothing in flight."""
        for request in self.partial:
            self.pool.cache(request, request.computed // self.config.block_size)

    def settle_partial(self) -> None:
        """Drop from `partial` those that joined the group or need nothing more; keep running order."""
        self.partial = [request for request in self.partial if not (request.in_group or request.draining)]
        self.partial.sort(key=lambda request: request.rank)

    # -- coming in ----------------------------------------------------------------------------------------------------

    def lookup(self, request: Request) -> Hit:
        """The cached prefix of a waiting request; at least its last token is left to compute."""
        return self.pool.lookup(request, (request.known - 1) // self.config.block_size)

    def start(self, step: Step, request: Request, chunk: int, hit: Hit) -> None:
        """Admit the head of the queue, ``request``, with the blocks of ``hit``, and compute ``chunk`` tokens of it."""
        self.admit(step, request, hit)
        self.pool.take(self.new_blocks(request, chunk, held=hit.blocks))
        self.compute(step, request, chunk)
        if not (request.in_group or request.draining):
            self.partial.append(request)

    def admit(self, step: Step, request: Request, hit: Hit) -> None:
        """Take the head of the queue, ``request``, into the batch with the blocks of ``hit``; nothing is computed yet."""
        self.waiting.pop()
        self.running[request] = None
        request.rank = self._next_rank
        self._next_rank += 1
        step.admitted.append((request, request.computed, request.preemptions > 0))
        if request.preemptions:
            request.resume_cached_tokens += request.computed
        else:
            request.cached_tokens = request.computed
        if hit.blocks:
            self.pool.claim(request, hit)

    # -- going out ----------------------------------------------------------------------------------------------------

    def preempt(self, step: Step, victim: Request, tokens_in_step: int) -> None:
        """Take all blocks from ``victim`` and queue it again; outputs are kept.

        ``tokens_in_step`` is what it got in this very step, blocks for them included.
        """
        full = self.full_blocks(victim, lag=self.hash_lag)
        if victim.in_group:
            self.group.leave(victim)
            self.scribes.pop(victim, None)
            step.interrupted.append(victim)
            victim.computed += tokens_in_step
            counted, full = full, max(full, (victim.computed - self.hash_lag) // self.config.block_size)
            self.pool.fill(full - counted)
        elif victim in self.partial:
            self.partial.remove(victim)
        del self.running[victim]
        self.pool.release(victim, self.held_blocks(victim), full)
        victim.computed = 0
        victim.preemptions += 1
        self.waiting.requeue(victim)
        step.preempted.append(victim)

    def starve(self, step: Step, request: Request) -> None:
        """Take a member that gets no token in this step out of the group."""
        full = self.full_blocks(request, lag=self.hash_lag)
        self.group.leave(request)
        self.scribes.pop(request, None)
        self.pool.settle(request, full)
        self.partial.append(request)
        step.interrupted.append(request)

    # -- counting -----------------------------------------------------------------------------------------------------

    def full_blocks(self, request: Request, lag: int) -> int:
        """Blocks whose tokens are all computed and known; the newest token of a decode is ``lag`` steps late."""
        computed = request.group_offset + self.group.step if request.in_group else request.computed
        return max(request.cached_blocks, (computed - lag) // self.config.block_size)

    def blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens need."""
        return -(-tokens // self.config.block_size)

    def held_blocks(self, request: Request) -> int:
        """Blocks that a running request outside the group holds."""
        return self.blocks(request.computed)

    def blocks_to_start(self) -> int:
        """Blocks that the next decode-only step takes."""
        return self.group.blocks_needed()

    def grow(self, blocks: int) -> None:
        """Take the blocks that decodes start."""
        self.pool.take(blocks)

    def may_output(self, request: Request) -> int:
        """Output tokens that the client of ``request`` allows: what engines that plan ahead reckon with."""
        asked = self.config.max_new_tokens
        if asked is None:
            return request.output
        return max(request.output, min(asked, self.config.max_model_len - request.prompt))

    def new_blocks(self, request: Request, chunk: int, held: int | None = None) -> int:
        """Blocks that ``chunk`` more tokens of a request outside the group need."""
        held = self.blocks(request.computed) if held is None else held
        return self.blocks(request.computed + chunk) - held

    def padding_tokens(self) -> int:
        """Unused slots in the last blocks of all running requests."""
        padding, size = self.group.padding, self.config.block_size
        for request in self.partial:
            padding += -request.computed % size
        for request in self.draining:
            padding += -request.computed % size
        return padding
