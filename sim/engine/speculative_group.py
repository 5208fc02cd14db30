"""Sequences that verify drafts in lock-step, held as sums a step: their whole course is known when they join."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.engine.config import EngineConfig
from sim.engine.lockstep import Lockstep
from sim.engine.request import Request
from sim.engine.speculative_acceptance import Stream
from sim.engine.speculative_config import Speculation

Ints = NDArray[np.int64]
Floats = NDArray[Any]  # ticks: floating-point seconds or whole microseconds

CONTEXT, TOKENS, HELD, FULL, WINDOWED = range(5)  # rows of the sums
COLUMNS: Final = 1024


class VerifyGroup(Lockstep):
    """Requests that each verify ``drafts`` drafts in every step of the group; the counterpart of `DecodeGroup`.

    How much a verify step gives out is fixed beforehand (`Acceptance`), so a member that joins adds its part to the
    sums of all steps it will ever be in: one addition of short arrays, whatever happens later. It takes the rest away
    again if it leaves early.

    Member ``r`` has done ``r.group_offset + step`` of the steps of its stream and has
    ``r.group_base + r.course[r.group_offset + step]`` tokens computed; one more is known.

    ``below_window`` stays 0: nobody asks, since the sums of every step are known.
    """

    def __init__(self, config: EngineConfig, speculation: Speculation, window: int | None) -> None:
        super().__init__(config.block_size, window)
        self.switch(speculation.num_speculative_tokens)
        self._speculation = speculation
        self._lookahead = speculation.lookahead_tokens
        self._max_model_len = config.max_model_len
        self._caching = config.enable_prefix_caching
        self._held = 0  # blocks of all members, as of the last step
        self._full = 0  # of those, blocks whose tokens were all known
        self._sums = np.zeros((5, COLUMNS), np.int64)  # of step ``_first + column``
        self._first = 0
        self._ends: list[tuple[int, int, Request]] = []  # (last step, rank, member); stale entries are skipped

    # -- the next step ------------------------------------------------------------------------------------------------

    @property
    def drafts(self) -> int:
        """Drafts that each member verifies in a step; 0 while drafting is switched off."""
        return self.width - 1

    def switch(self, drafts: int) -> None:
        """From now on members verify ``drafts`` drafts a step; there must be none."""
        self.width = 1 + drafts

    def _look_ahead(self) -> None:
        """Bring the sums of the next step up to date."""
        self.context = self._sum(CONTEXT, 1)
        self.windowed = self.context if self.window is None else self._sum(WINDOWED, 1)
        self.padding = self._held * self.block_size - (self.context - self.size * self.width)

    def known_after(self, steps: int) -> int:
        """Tokens that the members know ``steps`` steps from now, none past the end of any of them."""
        if not steps:
            return self.context - self.size * self.drafts
        return self._sum(CONTEXT, steps) + self._sum(TOKENS, steps) - self.size * self.drafts

    def _sum(self, row: int, step: int) -> int:
        """A sum of the ``step``-th step from now, the next one being 1."""
        return int(self._sums[row, self.step - self._first + step - 1])

    def rows(self, steps: int) -> Ints:
        """(5, steps) the sums of the next steps, by CONTEXT, TOKENS, ...; shared, until a member joins."""
        begin = self.step - self._first
        return self._sums[:, begin : begin + steps]

    # -- members ------------------------------------------------------------------------------------------------------

    def join(self, request: Request) -> bool:
        """Take in a request that has all but its newest token computed; false if its drafts would pass the model's
        length in the very next step."""
        first = request.verified if self.drafts else 0
        course, last = self._course(request, first)
        base = request.computed - int(course[first])
        steps = self._steps_within_length(request, course, first, last, base)
        if not steps:
            return False
        request.course = course
        request.group_offset = first - self.step
        request.group_base = base
        request.last_group_step = self.step + steps
        request.join_step = self.step
        request.full = max(request.full, request.cached_blocks)
        request.in_group, request.group = True, self
        self.size += 1
        self._held += self._blocks(request.reserved)
        self._full += request.full
        self._apply(request, np.add)
        self._look_ahead()
        heappush(self._ends, (request.last_group_step, request.rank, request))
        return True

    def _course(self, request: Request, first: int) -> tuple[Stream, int]:
        """Tokens given out by the first v steps, and the v at which the request ends; it has done ``first`` steps."""
        left = request.output - request.issued
        if not self.drafts:
            return np.arange(left + 1, dtype=np.int64), left
        likely = int(1.1 * left / self._speculation.acceptance.tokens_per_step) + 8
        stream = self._speculation.stream_of(request, first + min(left, likely))
        goal = int(stream[first]) + left
        while stream[-1] < goal:  # each step gives out one token at least
            stream = self._speculation.stream_of(request, min(first + left, len(stream) + likely))
        return stream, int(stream.searchsorted(goal))

    def _steps_within_length(self, request: Request, course: Stream, first: int, last: int, base: int) -> int:
        """Steps until the request ends, or until vLLM would cut its drafts or slots at ``max_model_len``."""
        room = self._max_model_len - 1 - self.width - max(0, self._lookahead - 1)
        if request.prompt + request.output - 2 <= room:  # the last step begins with no more than this computed
            return last - first
        return max(0, min(last, int(course.searchsorted(room - base, "right"))) - first)

    def leave(self, request: Request) -> None:
        """Let a member go; its attributes become true again."""
        course = request.course
        assert course is not None
        done = self.step + request.group_offset
        if self.step > request.join_step:
            request.reserved, request.full = self.reserved(request), self.full(request)
        request.computed = min(request.group_base + int(course[done]), request.prompt + request.output - 1)
        request.issued = request.computed + 1 - request.prompt
        if self.drafts:
            request.verified = done
        request.in_group = False
        self.size -= 1
        self._held -= self._blocks(request.reserved)
        self._full -= request.full
        if self.step < request.last_group_step:
            self._apply(request, np.subtract)
        self._look_ahead()

    def computed(self, request: Request) -> int:
        """Tokens of a member that are computed and kept."""
        return self._computed(request, self.step)

    def reserved(self, request: Request) -> int:
        """Tokens that blocks of a member have been taken for."""
        if self.step == request.join_step:
            return request.reserved
        return max(request.reserved, self._computed(request, self.step - 1) + self.width + self._lookahead)

    def full(self, request: Request) -> int:
        """Blocks of a member whose tokens were all known when it was last scheduled."""
        if self.step == request.join_step or not self._caching:
            return request.full
        return max(request.full, (self._computed(request, self.step - 1) + 1) // self.block_size)

    def accepted(self, request: Request) -> int:
        """Drafts that the last step accepted of one that was a member in it."""
        assert request.course is not None
        done = self.step + request.group_offset
        return int(request.course[done] - request.course[done - 1]) - 1

    def blocks_to_move(self, request: Request) -> int:
        """Blocks that the next step takes for one member."""
        wanted = self.computed(request) + self.width + self._lookahead
        return max(0, self._blocks(wanted) - self._blocks(self.reserved(request)))

    def _computed(self, request: Request, step: int) -> int:
        assert request.course is not None
        return request.group_base + int(request.course[step + request.group_offset])

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _apply(self, request: Request, change: Callable[..., Any]) -> None:
        """Add to the sums, or subtract from them, all steps that a member has before it."""
        assert request.course is not None
        steps, done = request.last_group_step - self.step, self.step + request.group_offset
        columns = self._columns(steps)
        course = request.course[done : done + steps + 1]
        computed, tokens = course[:-1] + request.group_base, course[1:] - course[:-1]
        over = int(computed[-1] + tokens[-1]) - (request.prompt + request.output - 1)
        if over > 0:  # the last step accepts more than is asked for
            tokens[-1] -= over
        attended = computed + self.width
        slots = attended + self._lookahead
        if slots[0] < request.reserved:
            slots = np.maximum(slots, request.reserved)
        changes = [(CONTEXT, attended), (TOKENS, tokens), (HELD, (slots + (self.block_size - 1)) // self.block_size)]
        if self._caching:
            changes.append((FULL, (computed + 1) // self.block_size))
        if self.window is not None:
            changes.append((WINDOWED, np.minimum(attended, self.window + self.drafts)))
        for row, values in changes:
            target = self._sums[row, columns]
            change(target, values, out=target)

    def _columns(self, steps: int) -> slice:
        """Columns of the next ``steps`` steps, with room for one more; the past is thrown away to make room."""
        begin = self.step - self._first
        if begin + steps >= self._sums.shape[1]:
            live = self._sums[:, begin:]
            self._sums = np.zeros((5, max(COLUMNS, live.shape[1], 2 * steps + 2)), np.int64)
            self._sums[:, : live.shape[1]] = live
            self._first, begin = self.step, 0
        return slice(begin, begin + steps)

    # -- what the next steps need -------------------------------------------------------------------------------------

    def blocks_needed(self) -> int:
        """Blocks that the next step takes."""
        return self._sum(HELD, 1) - self._held

    def blocks_within(self, steps: int) -> int:
        """Blocks that the next ``steps`` steps take together, none past `steps_to_change`."""
        return self._sum(HELD, steps) - self._held if steps else 0

    def steps_within(self, free_blocks: int, limit: int) -> int:
        """How many of the next ``limit`` steps, none past `steps_to_change`, fit into ``free_blocks`` new blocks."""
        most = free_blocks + self._held
        if self._sum(HELD, limit) <= most:
            return limit
        return int(self.rows(limit)[HELD].searchsorted(most, "right"))

    def _holds(self, request: Request, last: int) -> bool:
        """Whether a member's last step is ``last``, or else the entry that says so is of a former membership."""
        return request.in_group and request.group is self and request.last_group_step == last

    def steps_to_change(self, limit: int) -> int:
        """Steps until a member ends, at most ``limit``."""
        ends = self._ends
        while ends and not self._holds(ends[0][2], ends[0][0]):
            heappop(ends)
        return min(limit, ends[0][0] - self.step) if ends else limit

    # -- moving on ----------------------------------------------------------------------------------------------------

    def advance(self, steps: int = 1) -> tuple[int, int]:
        """Do ``steps`` >= 1 steps, none past `steps_to_change`; return blocks started and blocks filled in them."""
        held, full = self._sum(HELD, steps), self._sum(FULL, steps)
        started, filled = held - self._held, full - self._full
        self._held, self._full = held, full
        self.step += steps
        self._look_ahead()
        return started, filled if self._caching else 0

    def already_full(self) -> int:
        """Nothing is counted ahead: what was not known when a step was scheduled is not in the cache."""
        return 0

    def ended(self) -> list[Request]:
        """Take out the members whose last step here was the last one done, in running order."""
        done: list[Request] = []
        while self._ends and self._ends[0][0] <= self.step:
            last, _, request = heappop(self._ends)
            if self._holds(request, last):
                self.leave(request)
                done.append(request)
        if len(done) > 1:
            done.sort(key=lambda request: request.rank)
        return done
