"""Sequences that decode in lock-step, held as sums: one step of all of them costs O(1), whatever their number."""

from __future__ import annotations

from heapq import heappop, heappush

from mypy_extensions import mypyc_attr

from sim.engine.lockstep import Lockstep
from sim.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class DecodeGroup(Lockstep):
    """Requests that each compute exactly one token in every step of the group.

    Member ``r`` has ``r.group_offset + step`` tokens computed.
    """

    def __init__(self, block_size: int, window: int | None) -> None:
        super().__init__(block_size, window)
        self._residues = [0] * block_size  # members by offset modulo block_size
        self._full_at_join = 0  # members joined since the last step whose last block was already counted as cached
        self._ends: list[tuple[int, int, Request]] = []  # (last step, rank, member); stale entries are skipped
        self._crossings: list[tuple[int, int, Request]] = []  # (step after which a member outgrows the window, ...)

    # -- membership ---------------------------------------------------------------------------------------------------

    def join(self, request: Request) -> None:
        """Take in a request that has all but its newest token computed."""
        offset = request.group_offset = request.computed - self.step
        request.in_group, request.group = True, self
        request.last_group_step = self.step + request.output - request.issued
        attended = request.computed + 1
        self.size += 1
        self.context += attended
        self._residues[offset % self.block_size] += 1
        self.padding += -request.computed % self.block_size
        request.join_step = self.step
        if not request.computed % self.block_size:
            self._full_at_join += 1
        heappush(self._ends, (request.last_group_step, request.rank, request))
        self._enter_window(request, attended)

    def leave(self, request: Request) -> None:
        """Let a member go; its ``computed`` and ``issued`` become true again."""
        computed = request.computed = request.group_offset + self.step
        request.issued = request.output - (request.last_group_step - self.step)
        request.in_group = False
        self.size -= 1
        self.context -= computed + 1
        self._residues[request.group_offset % self.block_size] -= 1
        self.padding -= -computed % self.block_size
        if request.join_step == self.step and not computed % self.block_size:
            self._full_at_join -= 1
        if self.window is None or computed + 1 <= self.window:
            self.windowed -= computed + 1
            self.below_window -= 1
        else:
            self.windowed -= self.window

    def _enter_window(self, request: Request, attended: int) -> None:
        if self.window is None or attended <= self.window:
            self.windowed += attended
            self.below_window += 1
            if self.window is not None:
                request.window_step = self.step + self.window - attended + 1
                heappush(self._crossings, (request.window_step, request.rank, request))
        else:
            self.windowed += self.window

    # -- what the next steps need -------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        """Tokens that the next step computes."""
        return self.size

    def known_after(self, steps: int) -> int:
        """Tokens that the members know ``steps`` steps from now, none past `steps_to_change`."""
        return self.context + steps * self.size

    def blocks_needed(self) -> int:
        """Blocks that the next step takes: members whose next token starts one."""
        return self._residues[-self.step % self.block_size]

    def steps_within(self, free_blocks: int, limit: int) -> int:
        """How many of the next ``limit`` steps fit into ``free_blocks`` new blocks."""
        size, block_size = self.size, self.block_size
        if -(-limit // block_size) * size <= free_blocks:
            return limit
        steps = free_blocks // size * block_size  # whole turns of block_size steps, `size` blocks each
        left = free_blocks % size
        while steps < limit:
            left -= self._residues[-(self.step + steps) % block_size]
            if left < 0:
                return steps
            steps += 1
        return limit

    def steps_to_change(self, limit: int) -> int:
        """Steps until a member ends or outgrows the window, at most ``limit``."""
        ends, crossings = self._ends, self._crossings
        while ends:
            last, _, request = ends[0]
            if self._holds(request) and request.last_group_step == last:
                limit = min(limit, last - self.step)
                break
            heappop(ends)
        while crossings:
            last, _, request = crossings[0]
            if self._holds(request) and request.window_step == last:
                return min(limit, last - self.step)
            heappop(crossings)
        return limit

    def _holds(self, request: Request) -> bool:
        return request.in_group and request.group is self

    def blocks_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps start together, none past `steps_to_change`."""
        turns, rest = divmod(steps, self.block_size)
        return turns * self.size + self._due(self._residues, self.step, rest)

    def _due(self, offsets: list[int], step: int, steps: int) -> int:
        """Members counted in ``offsets`` whose turn comes in ``steps`` < block_size steps from ``step`` on."""
        high = -step % self.block_size  # the offset whose turn is first; one less each step after
        low = high - steps + 1
        return sum(offsets[low : high + 1]) if low >= 0 else sum(offsets[: high + 1]) + sum(offsets[low:])

    # -- moving on ----------------------------------------------------------------------------------------------------

    def advance(self, steps: int = 1) -> tuple[int, int]:
        """Do ``steps`` >= 1 steps, none past `steps_to_change`; return blocks started and blocks filled in them."""
        size, residues, block_size = self.size, self._residues, self.block_size
        first = started = residues[-self.step % block_size]
        if steps > 1:
            started = self.blocks_within(steps)
        self.step = step = self.step + steps
        self.context += steps * size
        self.windowed += steps * self.below_window
        self.padding += started * block_size - steps * size
        if self._crossings:
            self._cross()
        return started, started - first + residues[-step % block_size]

    def already_full(self) -> int:
        """Members that joined since the last call with a last block that was full, and so counted, on joining."""
        count, self._full_at_join = self._full_at_join, 0
        return count

    def _cross(self) -> None:
        """Members whose next token would not fit the window stop growing."""
        while self._crossings and self._crossings[0][0] <= self.step:
            step, _, request = heappop(self._crossings)
            if self._holds(request) and request.window_step == step:
                self._outgrow(request)

    def _outgrow(self, request: Request) -> None:
        """A member's next token does not fit the window."""
        request.window_step = -1
        self.below_window -= 1
        self.windowed -= 1  # `advance` has added one token too many for it

    def ended(self) -> list[Request]:
        """Take out the members whose last token was issued in the last step, in running order."""
        done: list[Request] = []
        while self._ends and self._ends[0][0] <= self.step:
            last, _, request = heappop(self._ends)
            if self._holds(request) and request.last_group_step == last:
                self.leave(request)
                done.append(request)
        if len(done) > 1:
            done.sort(key=lambda request: request.rank)  # an entry may be older than the member's last admission
        return done
