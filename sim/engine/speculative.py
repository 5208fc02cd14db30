"""vLLM's V1 scheduler with speculative decoding: a decode is a verify step of 1 + k tokens.

The rules are those that the oracle scenarios record (README there, "Speculative decoding"): every request that sampled
gets k drafts; they are cut where the budget is short; rejected ones go back, the blocks taken for them stay; only what
was known when a step was scheduled enters the prefix cache.
"""

from __future__ import annotations

from collections import deque

from sim.cost.shape import StepShape
from sim.engine.config import EngineConfig
from sim.engine.kv.pool import Hit
from sim.engine.lockstep import Lockstep
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE
from sim.engine.speculative_group import TOKENS, VerifyGroup
from sim.engine.step import Step
from sim.engine.vllm import VllmScheduler


class SpeculativeScheduler(VllmScheduler):
    """The policy of vLLM V1 with drafts; decisions are synchronous (a step is scheduled after the one before)."""

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        if config.speculation is None:
            raise ValueError("an engine without speculation needs no speculative scheduler")
        self.speculation = config.speculation
        self._window = window
        self.group: Lockstep = self.make_group()
        self._outgrown: list[Request] = []  # left the group by itself in the last step
        self._alone: list[Request] = []  # verified outside the group in this step
        self._away: deque[list[Request]] = deque()  # of each batch in a pipeline, those
        self._decoding = False  # the step began with running requests
        self._prefilling = False  # and one of them is in the middle of its prompt

    @property
    def _verifying(self) -> VerifyGroup:
        assert isinstance(self.group, VerifyGroup)
        return self.group

    # -- pipelines ----------------------------------------------------------------------------------------------------

    def make_group(self) -> VerifyGroup:
        """A group without members, like the others."""
        return VerifyGroup(self.config, self.speculation, self._window)

    def send_off(self) -> None:
        """The batch just scheduled enters a pipeline, with those that verify outside its group."""
        super().send_off()
        self._away.append(self._alone)
        self._alone = []

    def bring_back(self) -> None:
        """The oldest batch in the pipeline is through."""
        super().bring_back()
        self._away.popleft()

    def flies(self, request: Request) -> bool:
        """Whether what the request verified is not known yet, since its batch is in a pipeline."""
        return super().flies(request) or any(request in batch for batch in self._away)

    # -- the policy ---------------------------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        if self._drafts_now() != self._verifying.drafts:
            self._switch(self._drafts_now())
        self._decoding = bool(self.running)
        self._prefilling = any(not request.drafts for request in self.partial)
        step = super().schedule()
        if step is not None and step.chunks and self.waiting:
            self.blocked = False  # verifying may leave less of the next budget than this step: a shorter chunk may fit
        return step

    def new_step(self) -> Step:
        """A step to fill; those that left the group by themselves did not miss a token, but look as if."""
        step = Step()
        step.interrupted = self._outgrown
        self._outgrown, self._alone = [], []
        return step

    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``."""
        return super().steps_ahead(limit) if self._drafts_now() == self._verifying.drafts else 0

    def blocked_for_any_budget(self) -> bool:
        """Lookahead slots go with the chunk, so that a shorter one needs fewer."""
        return self.config.pipeline_stages == 1

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None: its last verify step needs slots for all drafts."""
        reason = super().rejects(request)
        if reason is None:
            last = request.prompt + request.output - 2 + self._width + self.speculation.lookahead_tokens
            if self.blocks(min(last, self.config.max_model_len)) > self.config.usable_blocks:
                return TOO_LARGE
        return reason

    @property
    def _width(self) -> int:
        return 1 + self.speculation.num_speculative_tokens

    # -- drafting on and off ------------------------------------------------------------------------------------------

    def _drafts_now(self) -> int:
        limit = self.speculation.disable_by_batch_size
        return 0 if limit is not None and len(self.running) >= limit else self.speculation.num_speculative_tokens

    def _switch(self, drafts: int) -> None:
        """From now on members verify ``drafts`` drafts a step; O(members)."""
        members = [request for request in self.running if request.in_group and request.group is self.group]
        for request in members:
            self.group.leave(request)
        self._verifying.switch(drafts)
        for request in members:
            if not self.group.join(request):
                self._outgrow(request)

    def _outgrow(self, request: Request) -> None:
        """Serve a request that left the group by itself one by one."""
        request.drafts = self.speculation.num_speculative_tokens
        self.scribes.pop(request, None)
        self.pool.settle(request, self.full_blocks(request, 0))
        self.partial.append(request)
        self.partial.sort(key=lambda request: request.rank)
        self._outgrown.append(request)

    # -- what is asked ------------------------------------------------------------------------------------------------

    def wanted(self, request: Request) -> int:
        """Tokens a request outside the group would compute, drafts included."""
        if self._away and self.flies(request):
            return 0
        want = request.known + min(request.drafts, self._verifying.drafts) - request.computed
        threshold = self.config.long_prefill_token_threshold
        if 0 < threshold < want and len(self.running) + len(self.waiting) > 1:
            want = threshold
        return min(want, self.config.max_model_len - 1 - request.computed)

    def lookup(self, request: Request) -> Hit:
        """The cached prefix of a waiting request. One that then wants a single token gets drafts that cannot be
        accepted by plan, to look like the decodes around it (vLLM keeps its CUDA graphs that way)."""
        limit = (request.known - 1) // self.config.block_size
        hit = self.pool.lookup(request, limit)
        if hit.blocks and self.speculation.drops_last_hit:
            hit = self.pool.lookup(request, hit.blocks - 1)
        single = request.known - hit.blocks * self.config.block_size == 1
        room = request.known + self._width <= self.config.max_model_len
        alike = not self._prefilling and (self._decoding or hit.blocks > 0)
        dynamic = self.speculation.disable_by_batch_size is not None
        request.drafts = self._width - 1 if single and room and alike and not dynamic else 0
        return hit

    def may_cut(self, request: Request) -> bool:
        """Whether a waiting request may start with less than it wants."""
        return not request.drafts and super().may_cut(request)

    def _fits(self, request: Request, chunk: int, hit: Hit) -> bool:
        tokens = self._slots(request.computed + chunk)
        if self.config.scheduler_reserve_full_isl:
            tokens = max(tokens, request.known)
        reserve = self.config.watermark_blocks if self.running else 0
        return self.blocks(tokens) - hit.blocks + hit.idle_blocks + reserve <= self.pool.free

    # -- blocks -------------------------------------------------------------------------------------------------------

    def _slots(self, computed: int) -> int:
        """Tokens to have blocks for once ``computed`` are computed."""
        return min(computed + self.speculation.lookahead_tokens, self.config.max_model_len)

    def new_blocks(self, request: Request, chunk: int, held: int | None = None) -> int:
        """Blocks that ``chunk`` more tokens of a request outside the group need."""
        held = self.held_blocks(request) if held is None else held
        return max(0, self.blocks(self._slots(request.computed + chunk)) - held)

    def blocks_to_move(self, request: Request) -> int:
        """Blocks that the next step takes for one member of the group."""
        return self._verifying.blocks_to_move(request)

    def full_blocks(self, request: Request, lag: int) -> int:
        """Blocks whose tokens were all known when the request was last scheduled."""
        group = request.group
        if request.in_group and isinstance(group, VerifyGroup):
            return group.full(request)
        return max(request.cached_blocks, request.full)

    def hash_arrived(self) -> None:
        """Nothing: what a step gave out enters the cache when the next one of the request is scheduled."""

    def publish(self, request: Request) -> None:
        """Enter the full blocks of what was known into the prefix cache; lookahead slots are held from now on."""
        request.reserved = max(request.reserved, self._slots(request.computed))
        self.pool.cache(request, min(request.computed, request.known) // self.config.block_size)

    def count_served(self, victim: Request, tokens: int) -> int:
        """Account for the tokens that a former member was given in this very step; its full blocks then."""
        if not tokens:
            return 0
        victim.reserved = max(victim.reserved, self._slots(victim.computed + tokens))
        return victim.known // self.config.block_size if self.config.enable_prefix_caching else 0

    # -- computing ----------------------------------------------------------------------------------------------------

    def decode_shape(self) -> StepShape:
        """Aggregates of the next step, if it is decode-only."""
        shape = super().decode_shape()
        shape.draft_tokens = self.group.size * self._verifying.drafts
        return shape

    def decode_all(self, step: Step, *, blocks_taken: bool = False) -> None:
        """Give every member of the group its token and drafts."""
        size = self.group.size
        if size:
            step.shape.draft_tokens += size * self._verifying.drafts
            step.accepted += int(self._verifying.rows(1)[TOKENS, 0]) - size
            super().decode_all(step, blocks_taken=blocks_taken)

    def compute(self, step: Step, request: Request, chunk: int) -> None:
        """Schedule ``chunk`` tokens of a request outside the group, blocks already taken."""
        before, known = request.computed, request.known
        decodes, drafts = request.drafts > 0, max(before + chunk - known, 0)
        request.computed, request.drafts = before + chunk, 0
        step.chunks[request] = chunk
        self.publish(request)
        if decodes or (chunk == 1 and request.issued and before):
            self._count_verify(step.shape, before + chunk, drafts)
        else:
            step.shape.add_prefill(chunk, before, self.group.window)
        if request.computed >= known:
            self._verify(step, request, drafts)

    def _count_verify(self, shape: StepShape, attended: int, drafts: int) -> None:
        window = self.group.window
        shape.decode_seqs += 1
        shape.draft_tokens += drafts
        shape.decode_context += attended
        shape.decode_context_windowed += attended if window is None else min(attended, window + drafts)

    def _verify(self, step: Step, request: Request, drafts: int) -> None:
        """Sample, and take in what is accepted of ``drafts`` drafts."""
        accepted = 0
        if drafts:
            stream = self.speculation.stream_of(request, request.verified + 1)
            accepted = int(stream[request.verified + 1] - stream[request.verified]) - 1
            accepted = min(accepted, drafts)
            request.verified += 1
            step.verified[request] = (drafts, accepted)
        given = min(1 + accepted, request.output - request.issued)
        step.accepted += given - 1
        step.shape.sampled_seqs += 1
        (step.late if request.issued else step.first).append(request)
        request.issued += given
        request.computed = request.known - 1
        if request.issued == request.output:
            self._drain(request)
            step.finishing.append(request)
        elif self.group.join(request):
            if request.spans and request.spans[-1][1] > request.computed and self.config.enable_prefix_caching:
                self.scribes[request] = None
        else:
            request.drafts = self.speculation.num_speculative_tokens
            self._alone.append(request)

    def _end_decodes(self) -> list[Request]:
        done = []
        for request in self.group.ended():
            if request.issued < request.output:
                self._outgrow(request)
                self._alone.append(request)
            else:
                self._drain(request)
                done.append(request)
        return done

    def begin_decoding(self, request: Request) -> None:
        """Take in a request that was prefilled elsewhere: its first step here has nothing to verify yet."""
        request.drafts = 0
        self.partial.append(request)

    # -- going out ----------------------------------------------------------------------------------------------------

    def preempt(self, step: Step, victim: Request, tokens_in_step: int, undone: int = 0) -> None:
        """Take all blocks from ``victim`` and queue it again; outputs are kept, drafts are not."""
        super().preempt(step, victim, tokens_in_step, undone)
        victim.drafts = victim.full = 0
        for batch in self._away:
            if victim in batch:
                batch.remove(victim)

    def starve(self, step: Step, request: Request) -> None:
        """Take a member that gets no token in this step, or not all of its drafts, out of the group."""
        super().starve(step, request)
        request.drafts = self.speculation.num_speculative_tokens
