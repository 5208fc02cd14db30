"""What every scheduler shares: the batch, its blocks, and the verbs that move requests through it.

Requests that decode in lock-step are held as sums (`DecodeGroup`); the others one by one. A policy is a subclass that
says who is admitted, who gets how many tokens, and who gives way (`sim.engine.vllm`, `sim.engine.policies`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from mypy_extensions import mypyc_attr

from sim.cost.shape import StepTimer
from sim.engine.kv.pool import Hit
from sim.engine.request import Request, Tick
from sim.engine.state import EngineState
from sim.engine.step import Step

TOO_LONG = "prompt and output exceed max_model_len"
TOO_LARGE = "prompt and output exceed the KV cache"


@mypyc_attr(allow_interpreted_subclasses=True)
class Scheduler(EngineState, ABC):
    """The policy that moves requests between queue, batch and blocks, and the verbs it moves them with."""

    # -- the policy ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""

    @abstractmethod
    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``.

        0 is always right, and slow: the replica then asks `schedule` for every step.
        """

    def new_step(self) -> Step:
        """A step to fill."""
        return Step()

    def patience(self) -> Tick | None:
        """When to look again at those that wait, nothing running and nobody arriving; None: never."""
        return None

    def learn_costs(self, timer: StepTimer) -> None:
        """What steps cost, for policies that weigh one way against another."""

    def landing(self) -> Tick | None:
        """When the next cache arrives that a request of this engine waits for; None: none is on its way."""
        return None

    @property
    def fetching(self) -> Sequence[Request]:
        """Requests that hold blocks and are neither running nor waiting: their cache is on its way."""
        return ()

    # -- counting -----------------------------------------------------------------------------------------------------

    def cached_tokens(self) -> int:
        """Tokens computed for the requests that hold blocks; what requests share counts for each of them."""
        group = self.group
        tokens = group.context - group.tokens
        if self.flying:
            tokens += sum(flying.context - flying.tokens for flying in self.flying)
        for outside in (self.partial, self.draining, self.kept, self.fetching):
            if outside:
                tokens += sum([request.computed for request in outside])
        return tokens

    def shared_tokens(self, held_tokens: int) -> int:
        """Tokens that requests would hold beyond ``held_tokens`` if nothing were shared."""
        return self.cached_tokens() + self.coming_tokens() - held_tokens if self.pool.shares else 0

    def awaited_tokens(self) -> int:
        """Slots that are held for tokens to come, and will be filled; none where blocks are taken as tokens come."""
        return 0

    def stranded_blocks(self) -> int:
        """Free blocks in gaps too small for the head of the queue, although the batch has a seat for it."""
        return 0

    # -- arrivals -----------------------------------------------------------------------------------------------------

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        total = request.prompt + request.output
        if total > self.config.max_model_len:
            return TOO_LONG
        return TOO_LARGE if self.blocks(total - 1) > self.config.usable_blocks else None

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
                if request.keeps_kv:
                    self.kept[request] = None
                else:
                    self.pool.release(request, self.held_blocks(request), full)
            else:
                self.waiting.remove(request)  # preempted while its last token was in flight
        if finishing:
            self.blocked = not self.waiting

    def extend(self, steps: int) -> list[Request]:
        """Repeat the decode-only step ``steps`` times; return the requests whose last token the last one samples."""
        self.grow(self._move_group(steps))
        return self._end_decodes()

    def grow(self, blocks: int) -> None:
        """Take the blocks that decodes start."""
        self.pool.take(blocks)

    # -- computing ----------------------------------------------------------------------------------------------------

    def decode_all(self, step: Step, *, blocks_taken: bool = False) -> None:
        """Give every member of the decode group its token."""
        group, shape = self.group, step.shape
        if not group.size:
            return
        decodes = self.decode_shape()
        step.decodes = group.size
        shape.decode_seqs += decodes.decode_seqs
        shape.decode_context += decodes.decode_context
        shape.decode_context_windowed += decodes.decode_context_windowed
        shape.sampled_seqs += decodes.sampled_seqs
        started = self._move_group(1)
        if not blocks_taken:
            self.grow(started)
        step.finishing = self._end_decodes()

    def compute(self, step: Step, request: Request, chunk: int) -> None:
        """Schedule ``chunk`` tokens of a request outside the group, blocks already taken."""
        before = request.computed
        request.computed = before + chunk
        step.chunks[request] = chunk
        self.publish(request)
        if chunk == 1 and request.issued and before:
            self._count_decode(step, before + 1)
        else:
            step.shape.add_prefill(chunk, before, self.prefill_window)
        if request.computed == request.known:
            self._sample(step, request)

    def publish(self, request: Request) -> None:
        """Enter the full blocks of what was just computed into the prefix cache."""
        self.pool.cache(request, request.computed // self.config.block_size)

    def _count_decode(self, step: Step, attended: int) -> None:
        """Add one decode of a request outside the group to a step's aggregates."""
        window = self.group.window
        step.shape.decode_seqs += 1
        step.shape.decode_context += attended
        step.shape.decode_context_windowed += attended if window is None else min(attended, window)

    def _sample(self, step: Step, request: Request) -> None:
        """All tokens of a request are computed: it samples one, and joins the group or has its last token."""
        step.shape.sampled_seqs += 1
        (step.late if request.issued else step.first).append(request)
        request.issued += 1
        if request.issued == request.output:
            self._drain(request)
            step.finishing.append(request)
            return
        self.begin_decoding(request)

    def begin_decoding(self, request: Request) -> None:
        """Let a request join the decode group that has all but its newest token computed."""
        self.group.join(request)
        if request.spans and request.spans[-1][1] > request.computed and self.pool.finds_decodes:
            self.scribes[request] = None

    def _move_group(self, steps: int) -> int:
        """Move all members on; return the blocks that they start, which are still to be taken."""
        started, filled = self.group.advance(steps)
        if self.pool.shares:
            already_full = self.group.already_full()
            self.pool.fill(started - already_full if self.hash_lag else filled)
        for scribe in self.scribes:
            if scribe.group is self.group:
                self.pool.settle(scribe, self.full_blocks(scribe, lag=self.hash_lag))
        return started

    def _end_decodes(self) -> list[Request]:
        """Take members whose last token the last step samples out of the group; return them."""
        done = self.group.ended()
        for request in done:
            self._drain(request)
        return done

    def _drain(self, request: Request) -> None:
        """The last token of a request is in flight; it keeps its place until that comes in."""
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
        """Admit a waiting request with the blocks of ``hit``, and compute ``chunk`` tokens of it."""
        self.admit(step, request, hit)
        self.pool.take(self.new_blocks(request, chunk, held=hit.blocks))
        self.compute(step, request, chunk)
        if not (request.in_group or request.draining):
            self.partial.append(request)

    def admit(self, step: Step, request: Request, hit: Hit) -> None:
        """Take a waiting request into the batch with the blocks of ``hit``; nothing is computed yet."""
        if self.waiting.head() is request:
            self.waiting.pop()
        else:
            self.waiting.remove(request)
        self.join(step, request, hit)

    def join(self, step: Step, request: Request, hit: Hit) -> None:
        """`admit` for a request that is out of the queue already."""
        self.enter(request)
        step.admitted.append((request, request.computed, request.preemptions > 0))
        if request.preemptions:
            request.resume_cached_tokens += request.computed
        else:
            request.cached_tokens = request.computed
        if hit.blocks:
            self.pool.claim(request, hit)

    def enter(self, request: Request) -> None:
        """Give ``request`` the last place in the running order."""
        self.running[request] = None
        request.rank = self._next_rank
        self._next_rank += 1

    # -- going out ----------------------------------------------------------------------------------------------------

    def preempt(self, step: Step, victim: Request, tokens_in_step: int, undone: int = 0) -> None:
        """Take all blocks from ``victim`` and queue it again; outputs are kept.

        ``tokens_in_step`` is what a member of the group got in this very step, blocks for them included; ``undone`` is
        the part of ``computed`` of a request outside the group that it got in this step.
        """
        full = self.full_blocks(victim, lag=self.hash_lag)
        if victim.in_group:
            (victim.group or self.group).leave(victim)
            self.scribes.pop(victim, None)
            step.interrupted.append(victim)
            counted, full = full, max(full, self.count_served(victim, tokens_in_step))
            self.pool.fill(full - counted)
        elif victim in self.partial:
            self.partial.remove(victim)
        del self.running[victim]
        self.pool.release(victim, self.held_blocks(victim), full)
        victim.computed = victim.reserved = 0
        victim.preemptions += 1
        self.waiting.requeue(victim)
        step.preempted.append(victim)

    def count_served(self, victim: Request, tokens: int) -> int:
        """Account for tokens that a former member of the group was given in this very step; its full blocks then."""
        victim.computed += tokens
        return (victim.computed - self.hash_lag) // self.config.block_size

    def starve(self, step: Step, request: Request) -> None:
        """Take a member that gets no token in this step out of the group."""
        full = self.full_blocks(request, lag=self.hash_lag)
        self.group.leave(request)
        self.scribes.pop(request, None)
        self.pool.settle(request, full)
        self.partial.append(request)
        step.interrupted.append(request)
