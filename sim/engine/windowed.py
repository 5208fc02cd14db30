"""vLLM's scheduler for models, or policies, of which no layer attends beyond a window: blocks behind it are freed.

The rule is that of vLLM (vllm/v1/core/single_type_kv_cache_manager.py, SlidingWindowManager): as a step is scheduled
that computes tokens from position c on, blocks whose tokens all lie before c - window + 1 are freed. Two things are
simpler here: all requests free before any of them takes, and a prompt that is complete frees at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from sim.engine.config import EngineConfig
from sim.engine.decoding import DecodeGroup
from sim.engine.kv.pool import Hit
from sim.engine.lockstep import Lockstep
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, TOO_LONG
from sim.engine.step import Step
from sim.engine.vllm import VllmScheduler


class WindowedGroup(DecodeGroup):
    """A decode group whose members give back the blocks that fall behind the window.

    A member past the window frees a block whenever its first useful token begins one: counted by offset, as the blocks
    that it starts are.
    """

    def __init__(self, block_size: int, window: int) -> None:
        super().__init__(block_size, window)
        self.reach = window
        self.freed = 0  # blocks freed by `advance` since `collect`
        self._behind = [0] * block_size  # members past the window, by offset of their first useful token
        self._shed = False  # the next step's blocks are freed already

    def shed(self) -> int:
        """Blocks that fall behind the window as the next step is scheduled; 0 if they were told before."""
        if self._shed or not self.size:
            return 0
        self._shed = True
        return self._behind[-self.step % self.block_size]

    def collect(self) -> int:
        """Blocks that `advance` freed and nobody has given back yet."""
        freed, self.freed = self.freed, 0
        return freed

    def freed_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps free together, none past `steps_to_change`."""
        first = self.step + (1 if self._shed else 0)
        turns, rest = divmod(max(0, self.step + steps - first), self.block_size)
        past = self.size - self.below_window
        return turns * past + self._due(self._behind, first, rest)

    def steps_before(self, free: int, wanted: int, limit: int) -> int:
        """How many of the next ``limit`` steps pass before ``wanted`` blocks are free; none past `steps_to_change`.

        Over a whole turn of the block size nobody frees more than he takes, so one turn tells.
        """
        for step in range(min(limit, self.block_size)):
            at = -(self.step + step) % self.block_size
            free += self._behind[at] - self._residues[at]
            if free >= wanted:
                return step
        return limit

    def advance(self, steps: int = 1) -> tuple[int, int]:
        """Do ``steps`` steps; return blocks started and blocks filled in them."""
        self.freed += self.freed_within(steps)
        self._shed = False
        return super().advance(steps)

    def leave(self, request: Request) -> None:
        """Let a member go; its attributes become true again, ``behind`` too."""
        past = not self._within(request)
        super().leave(request)
        first_useful = request.computed - self.reach + (1 if self._shed else 0)
        request.behind = max(0, first_useful) // self.block_size
        if past:
            self._behind[self._place(request)] -= 1

    def _within(self, request: Request) -> bool:
        return request.group_offset + self.step < self.reach

    def _place(self, request: Request) -> int:
        return (request.group_offset - self.reach + 1) % self.block_size

    def _enter_window(self, request: Request, attended: int) -> None:
        super()._enter_window(request, attended)
        if attended > self.reach:
            self._behind[self._place(request)] += 1

    def _outgrow(self, request: Request) -> None:
        super()._outgrow(request)
        self._behind[self._place(request)] += 1


class WindowedScheduler(VllmScheduler):
    """The policy of vLLM V1 where nothing is kept beyond ``config.kept_tokens`` tokens of a request.

    Where ``config.keeps_prompts``, a prompt is attended and held whole until it is complete, and cut then.
    """

    group: WindowedGroup

    def __init__(self, config: EngineConfig, window: int, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.group: WindowedGroup = WindowedGroup(config.block_size, window)
        self._window = window
        if config.keeps_prompts:
            self.prefill_window = None

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        total = request.prompt + request.output
        if total > self.config.max_model_len:
            return TOO_LONG
        return TOO_LARGE if self._most_blocks(total - 1) > self.config.usable_blocks else None

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        freed = self.group.shed()
        if not self.config.keeps_prompts:
            freed += sum(self._drop(request, request.computed) for request in self.partial)
        self.pool.free += freed
        return super().schedule()

    def steps_ahead(self, limit: int) -> int:
        """How many decode-only steps with the present members certainly come next, at most ``limit``."""
        steps = super().steps_ahead(limit)
        if steps and self.waiting and len(self.running) < self.config.max_num_seqs:
            steps = self.group.steps_before(self.pool.free, self._wanted_by_head(), steps)
        return steps

    def _wanted_by_head(self) -> int:
        """Free blocks with which the head of the queue is admitted; more than there are if the budget forbids it."""
        budget = self.config.max_num_batched_tokens
        wanted = self._wanted_within(budget - self.group.tokens)
        if self.config.pipeline_stages > 1:  # a batch of its own follows this one
            wanted = min(wanted, self._wanted_within(budget))
        return wanted

    def _wanted_within(self, left: int) -> int:
        request = self.waiting.head()
        request.computed = 0
        chunk = self.wanted(request)
        if left <= 0 or (chunk > left and not self.may_cut(request)):
            return self.config.num_gpu_blocks
        return self._blocks_to_admit(request, min(chunk, left))

    def _fits(self, request: Request, chunk: int, hit: Hit) -> bool:
        return self._blocks_to_admit(request, chunk) <= self.pool.free

    def _blocks_to_admit(self, request: Request, chunk: int) -> int:
        whole = self._most_blocks(request.known) if self.config.scheduler_reserve_full_isl else self.blocks(chunk)
        return max(whole, self.blocks(chunk)) + (self.config.watermark_blocks if self.running else 0)

    def _most_blocks(self, tokens: int) -> int:
        """Most blocks that a request holds on its way to ``tokens`` tokens: its window and a step's chunk."""
        if self.config.keeps_prompts:
            return self.blocks(tokens)
        chunk = min(tokens, self.config.max_num_batched_tokens)
        return min(self.blocks(tokens), self.blocks(self._window - 1 + chunk) + 1)

    def make_group(self) -> Lockstep:
        """A decode group without members, like the others."""
        return WindowedGroup(self.config.block_size, self._window)

    # -- counting -----------------------------------------------------------------------------------------------------

    def held_blocks(self, request: Request) -> int:
        """Blocks that a running request outside the group holds."""
        return super().held_blocks(request) - request.behind

    def new_blocks(self, request: Request, chunk: int, held: int | None = None) -> int:
        """Blocks that ``chunk`` more tokens of a request outside the group need."""
        return super().new_blocks(request, chunk, held) - (request.behind if held is None else 0)

    def blocks_to_free(self) -> int:
        """Blocks that the next decode-only step frees."""
        return self.group.freed_within(1)

    def blocks_within(self, steps: int) -> int:
        """Blocks by which the next ``steps`` decode-only steps grow what is held."""
        return super().blocks_within(steps) - self.group.freed_within(steps)

    def padding_tokens(self) -> int:
        """Unused slots in the last blocks of all running requests."""
        outside: Iterable[Request] = (*self.partial, *self.draining, *self.kept)
        return super().padding_tokens() + self.config.block_size * sum(request.behind for request in outside)

    # -- moving -------------------------------------------------------------------------------------------------------

    def begin_decoding(self, request: Request) -> None:
        """Let a request join the decode group; what the window has left behind by then is freed."""
        self.pool.free += self._drop(request, request.computed - 1)
        super().begin_decoding(request)

    def preempt(self, step: Step, victim: Request, tokens_in_step: int, undone: int = 0) -> None:
        """Take all blocks from ``victim`` and queue it again; outputs are kept."""
        super().preempt(step, victim, tokens_in_step, undone)
        victim.behind = 0

    def _move_group(self, steps: int) -> int:
        started = super()._move_group(steps)
        self.pool.free += self.group.collect()
        return started

    def _drop(self, request: Request, computed: int) -> int:
        """Blocks that a request no longer needs once ``computed`` tokens are computed; they are noted as free."""
        behind = max(0, computed - self._window + 1) // self.config.block_size
        gone = max(0, behind - request.behind)
        request.behind += gone
        return gone
