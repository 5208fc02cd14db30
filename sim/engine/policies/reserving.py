"""What engines share that set aside all memory of a request at its admission: nothing runs out, nobody gives way."""

from __future__ import annotations

from abc import ABC

from sim.engine.config import EngineConfig
from sim.engine.kv.pool import Hit
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, Scheduler
from sim.engine.step import Step

PROMPT_TOO_LONG = "prompt exceeds the tokens of a step, and prompts are not split"


class ReservingScheduler(Scheduler, ABC):
    """Reserves the prompt and all output that the client allows; whole prompts are computed at once."""

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.reserved_blocks = 0  # of all running requests; a shared block counts for each

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        if self.blocks(self.whole(request)) > self.config.usable_blocks:
            return TOO_LARGE
        if request.prompt > self.config.max_num_batched_tokens:
            return PROMPT_TOO_LONG
        return super().rejects(request)

    def whole(self, request: Request) -> int:
        """Tokens that a request may cache in all: the KV of the last output token is never written."""
        return request.prompt + self.may_output(request) - 1

    def join(self, step: Step, request: Request, hit: Hit) -> None:
        """Take a request into the batch, with its reservation."""
        super().join(step, request, hit)
        request.reserved = self.reservation(request)
        self.reserved_blocks += self.held_blocks(request)

    def reservation(self, request: Request) -> int:
        """Tokens that are reserved for a request as it is admitted."""
        return self.whole(request)

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output; the reservations of requests that ended are void."""
        self.reserved_blocks -= sum(map(self.held_blocks, finishing))
        super().complete(finishing)

    def steps_ahead(self, limit: int) -> int:
        """As long as nobody can be admitted, until a member ends."""
        if not self.blocked or not self.group.size or limit <= 0:
            return 0
        return self.group.steps_to_change(limit)

    # -- counting -----------------------------------------------------------------------------------------------------

    def blocks_to_start(self) -> int:
        """None: they are held already."""
        return 0

    def blocks_within(self, steps: int) -> int:
        """None: they are held already."""
        return 0

    def grow(self, blocks: int) -> None:
        """The blocks are held already."""

    def padding_tokens(self) -> int:
        """Reserved slots that hold nothing yet."""
        computed = self.group.context - self.group.size + sum(request.computed for request in self.draining)
        return self.reserved_blocks * self.config.block_size - computed
