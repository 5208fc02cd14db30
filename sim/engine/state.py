"""State of one engine: its queue, batch and blocks, and what can be counted from them. It moves no request."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from sim.cost.shape import StepShape
from sim.engine.config import EngineConfig
from sim.engine.decoding import DecodeGroup
from sim.engine.kv.arena import Arena
from sim.engine.kv.pool import BlockPool
from sim.engine.kv.prefix import PrefixBlockPool
from sim.engine.lockstep import Lockstep
from sim.engine.queue import FcfsQueue, PriorityQueue, WaitingQueue
from sim.engine.request import Request, Tick


@mypyc_attr(allow_interpreted_subclasses=True)
class EngineState:
    """The queue, the batch and the blocks of one engine.

    Attributes:
        running: admitted requests in running order (those whose last token is in flight included).
        partial: running requests outside the decode group that still want tokens, in running order.
        draining: running requests whose last token is in flight.
        flying: decode groups whose tokens are under way in a pipeline, so that no step can be scheduled for them.
        kept: requests that are over but hold their blocks for another engine.
        coming: requests that hold blocks for a cache that is under way from another engine.
        blocked: nobody can be admitted before a request ends or one that matters arrives.
        scribes: members of the decode group that write text which others may look up.
        now: the tick of the schedule, set by the process; for policies with a timeout.
        prefill_window: tokens that a query of a prompt attends; None: all before it.
        hold: the tick before which the next step cannot compute: blocks that it needs are being copied.
    """

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        self.config = config
        self.tick_s = tick_s
        self.now: Tick = 0.0
        self.hold: Tick = 0.0
        self.pool: BlockPool = self.make_pool()
        self.waiting: WaitingQueue = self.make_queue()
        self.group: Lockstep = DecodeGroup(config.block_size, window)
        self.flying: list[Lockstep] = []
        self.running: dict[Request, None] = {}
        self.partial: list[Request] = []
        self.draining: list[Request] = []
        self.kept: dict[Request, None] = {}
        self.coming: dict[Request, None] = {}
        self.blocked = True
        self.hash_lag = 1 if config.async_scheduling else 0  # an unseen token cannot be hashed
        self.prefill_window = window
        self.scribes: dict[Request, None] = {}
        self._next_rank = 0

    def make_pool(self) -> BlockPool:
        """The blocks."""
        if self.config.kv_allocation == "contiguous":
            return Arena(self.config.usable_blocks, self.config.block_size)
        pool_class = PrefixBlockPool if self.config.enable_prefix_caching else BlockPool
        return pool_class(self.config.usable_blocks, self.config.block_size)

    def make_queue(self) -> WaitingQueue:
        """The queue of those that wait."""
        return PriorityQueue() if self.config.scheduling_policy == "priority" else FcfsQueue()

    @property
    def rested(self) -> bool:
        """Whether another schedule changes nothing while nobody runs or waits."""
        return True

    # -- pipelines ----------------------------------------------------------------------------------------------------

    def send_off(self) -> None:
        """The batch just scheduled enters a pipeline: its decode group is out of reach until `bring_back`."""
        self.flying.append(self.group)
        self.group = self.make_group()

    def flies(self, request: Request) -> bool:
        """Whether the token of a request is still under way in a pipeline."""
        return request.in_group and request.group is not self.group

    def make_group(self) -> Lockstep:
        """A decode group without members, like the others."""
        return DecodeGroup(self.config.block_size, self.group.window)

    def bring_back(self) -> None:
        """The oldest batch in the pipeline is through; the group at hand, without members, is forgotten."""
        self.group = self.flying.pop(0)

    # -- counting -----------------------------------------------------------------------------------------------------

    def full_blocks(self, request: Request, lag: int) -> int:
        """Blocks whose tokens are all computed and known; the newest token of a decode is ``lag`` steps late."""
        group = request.group if request.in_group else None
        computed = request.computed if group is None else request.group_offset + group.step
        return max(request.cached_blocks, (computed - lag) // self.config.block_size)

    @property
    def groups(self) -> list[Lockstep]:
        """All decode groups, the one that the next step moves first."""
        return [self.group, *self.flying]

    def blocks(self, tokens: int) -> int:
        """Blocks that ``tokens`` tokens need."""
        return -(-tokens // self.config.block_size)

    def held_blocks(self, request: Request) -> int:
        """Blocks that a running request outside the group holds."""
        computed, reserved = request.computed, request.reserved
        return self.blocks(computed if computed > reserved else reserved)

    def blocks_to_start(self) -> int:
        """Blocks that the next decode-only step takes."""
        return self.group.blocks_needed()

    def blocks_to_free(self) -> int:
        """Blocks that the next decode-only step gives back as it is scheduled."""
        return 0

    def blocks_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` decode-only steps take together."""
        return self.group.blocks_within(steps)

    def blocks_to_move(self, request: Request) -> int:
        """Blocks that the next step takes for one member of the decode group."""
        return 0 if (request.group_offset + self.group.step) % self.config.block_size else 1

    def may_output(self, request: Request) -> int:
        """Output tokens that the client of ``request`` allows: what engines that plan ahead reckon with."""
        asked = self.config.max_new_tokens
        if asked is None:
            return request.output
        return max(request.output, min(asked, self.config.max_model_len - request.prompt))

    def new_blocks(self, request: Request, chunk: int, held: int | None = None) -> int:
        """Blocks that ``chunk`` more tokens of a request outside the group need."""
        held = self.held_blocks(request) if held is None else held
        return self.blocks(max(request.computed + chunk, request.reserved)) - held

    def padding_tokens(self) -> int:
        """Unused slots in the last blocks of all running requests."""
        padding, size = self.group.padding, self.config.block_size
        for group in self.flying:
            padding += group.padding
        for outside in (self.partial, self.draining, self.kept):
            for request in outside:
                padding += self.held_blocks(request) * size - request.computed
        return padding

    def known_tokens(self, unsettled: int) -> int:
        """Prompts and outputs so far of running requests, ``unsettled`` decode-only steps from this state."""
        known = self.group.known_after(unsettled) + sum([group.known_after(0) for group in self.flying])
        for outside in (self.partial, self.draining):
            known += sum([request.known for request in outside if request in self.running])
        return known

    def coming_tokens(self) -> int:
        """Slots of the blocks that wait for caches from other engines."""
        if not self.coming:
            return 0
        return self.config.block_size * sum([self.blocks(request.prompt) for request in self.coming])

    def decode_shape(self) -> StepShape:
        """Aggregates of the next step, if it is decode-only."""
        group = self.group
        return StepShape(group.size, group.context, group.windowed, sampled_seqs=group.size)

    def growing_windowed(self) -> int:
        """Sequences of that step whose attended range still grows with each step."""
        return self.group.below_window
