"""What engines share that set aside all memory of a request at its admission: nothing runs out, nobody gives way."""

from __future__ import annotations

from abc import ABC

from sim.engine.config import EngineConfig
from sim.engine.kv.pool import Hit
from sim.engine.request import Request
from sim.engine.scheduler import TOO_LARGE, Scheduler
from sim.engine.step import Step

PROMPT_TOO_LONG = "prompt exceeds the tokens of a step, and prompts are not split"


def reservation_rule(kv_allocation: str, asked: str | None) -> str:
    """What is set aside for a request: as asked, or what goes with the way memory is given out."""
    return asked or ("max" if kv_allocation == "contiguous" else "request")


class ReservingScheduler(Scheduler, ABC):
    """Reserves the prompt and all output that ``kv_reservation`` says; whole prompts are computed at once.

    ``max``: whatever the model's length allows. ``request``: what the client allows. ``pow2``: the output rounded up to
    a power of two, ``oracle``: exactly the output; both as if the engine knew it (Kwon et al., arXiv 2309.06180, 6.1).
    """

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self.rule = reservation_rule(config.kv_allocation, config.knobs.get("kv_reservation"))
        self.reserved_blocks = 0  # of all running requests; a shared block counts for each
        self.final_tokens = 0  # that all running requests will have cached when they end

    def rejects(self, request: Request) -> str | None:
        """Why ``request`` could never be served, or None."""
        if self.blocks(self.whole(request)) > self.config.usable_blocks:
            return TOO_LARGE
        if request.prompt > self.config.max_num_batched_tokens:
            return PROMPT_TOO_LONG
        return super().rejects(request)

    def whole(self, request: Request) -> int:
        """Tokens that are set aside for a request in all."""
        return self.row(request.prompt, self.output_room(request))

    def row(self, prompt: int, output: int) -> int:
        """Tokens set aside for a prompt and an output: the KV of the last output token is never written."""
        return self.config.max_model_len if self.rule == "max" else prompt + output - 1

    def output_room(self, request: Request) -> int:
        """Output tokens that memory is set aside for."""
        if self.rule == "oracle":
            return request.output
        if self.rule == "pow2":
            return min(1 << (request.output - 1).bit_length(), max(self.config.max_model_len - request.prompt, 1))
        return self.may_output(request)

    def join(self, step: Step, request: Request, hit: Hit) -> None:
        """Take a request into the batch, with its reservation."""
        super().join(step, request, hit)
        request.reserved = self.reservation(request)
        held = self.held_blocks(request)
        self.pool.place(request, held)
        self.reserved_blocks += held
        self.final_tokens += self.final(request)

    def reservation(self, request: Request) -> int:
        """Tokens that are reserved for a request as it is admitted."""
        return self.whole(request)

    def final(self, request: Request) -> int:
        """Tokens that a request has cached when it ends."""
        return request.prompt + request.output - 1

    def complete(self, finishing: list[Request]) -> None:
        """Take in a step's output; the reservations of requests that ended are void."""
        self.reserved_blocks -= sum(map(self.held_blocks, finishing))
        self.final_tokens -= sum(map(self.final, finishing))
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

    def blocks_to_move(self, request: Request) -> int:
        """None: they are held already."""
        return 0

    def grow(self, blocks: int) -> None:
        """The blocks are held already."""

    def padding_tokens(self) -> int:
        """Reserved slots that hold nothing yet."""
        return self.reserved_blocks * self.config.block_size - self.cached_tokens()

    def awaited_tokens(self) -> int:
        """Of those, slots that the requests will fill."""
        return self.final_tokens - self.cached_tokens()

    @property
    def seats(self) -> int:
        """Requests that may run at one time."""
        return self.config.max_num_seqs

    def stranded_blocks(self) -> int:
        """Free blocks in gaps too small for the head of the queue, while the batch has a seat for it."""
        if not self.waiting or len(self.running) >= self.seats:
            return 0
        return self.pool.stranded(self.blocks(self.whole(self.waiting.head())))
