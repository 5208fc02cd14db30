"""Turns what replicas do into rows of the output schema."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.engine.jump import Jump
from sim.engine.request import Request, Tick
from sim.engine.step import Step
from sim.records import REQUEST_COLUMNS, STATUS, STEP_COLUMNS, Columns

if TYPE_CHECKING:
    from sim.engine.replica import Replica
    from sim.engine.scheduler import Scheduler

COMPLETED, REJECTED, UNFINISHED, LOST = range(len(STATUS))
Row = list[float]
_USED_BLOCKS_END = [name for name, _ in STEP_COLUMNS].index("used_blocks_end")


class Counted(NamedTuple):
    """What a run has measured: rows of `REQUEST_COLUMNS` by id and of `STEP_COLUMNS`, gaps, tokens of each gap."""

    requests: Columns
    steps: Columns
    gaps_s: NDArray[np.float64]
    gap_tokens: NDArray[np.int64]


def memory_of_run(scheduler: Scheduler, moved: int, held_tokens: int, stranded: int = 0) -> tuple[int, int, int]:
    """The last columns of a run's first step, which adds ``moved`` tokens and then holds ``held_tokens``.

    ``stranded`` blocks are those of the time when the run was planned: the queue may have changed since.
    """
    awaited, shared = scheduler.awaited_tokens(), scheduler.shared_tokens(held_tokens - moved)
    return awaited - moved if awaited else 0, stranded * scheduler.config.block_size, shared


class Recorder:
    """Rows of requests and of steps, and the token gaps that no step row tells.

    Args:
        tick_s: seconds of one tick of the engine's clock.
        delays_s: from the first and from the last token's computation to the client.
    """

    def __init__(self, tick_s: float = 1.0, delays_s: tuple[float, float] = (0.0, 0.0)) -> None:
        self.requests = Columns(REQUEST_COLUMNS)
        self.steps = Columns(STEP_COLUMNS)
        self.gaps_s = array("d")
        self.gap_tokens = array("q")  # how many tokens each of `gaps_s` stands for
        self.reasons: list[str] = []
        self.tick_s = tick_s
        self._from: tuple[float, int] | None = None  # seconds and gaps before which nothing counts
        self._first_delay_s, self._last_delay_s = delays_s

    def begin(self, now: Tick) -> None:
        """What was recorded up to now belongs to a warm-up."""
        self._from = now * self.tick_s, len(self.gaps_s)

    def counted(self, warmup: int) -> Counted:
        """What was measured: all but the first ``warmup`` requests by id, and what happened until they were over."""
        requests = self.requests.sorted_by("id")
        gaps_s, gap_tokens = np.asarray(self.gaps_s), np.asarray(self.gap_tokens)
        if not warmup:
            return Counted(requests, self.steps, gaps_s, gap_tokens)
        since_s, gap = self._from or (float("inf"), len(gaps_s))
        measured, started = np.asarray(requests.column("id")) >= warmup, np.asarray(self.steps.column("start_s"))
        return Counted(requests.where(measured), self.steps.where(started >= since_s), gaps_s[gap:], gap_tokens[gap:])

    # -- requests -----------------------------------------------------------------------------------------------------

    def request(self, request: Request, status: int = COMPLETED, reason: str | None = None) -> None:
        """Add the row of a request that is over (or, at the end of the run, not yet)."""
        self.requests.append(
            (
                request.id,
                request.replica,
                request.arrival * self.tick_s,
                request.queued * self.tick_s,
                self._seconds(request.admitted),
                self._seconds(request.first_token, self._first_delay_s),
                self._seconds(request.finish, self._last_delay_s),
                request.prompt,
                request.output,
                request.cached_tokens,
                request.resume_cached_tokens,
                request.preemptions,
                status,
                -1 if reason is None else self._reason(reason),
                request.priority,
                request.session,
                request.prefill_replica,
                request.attempts,
            )
        )

    def _seconds(self, tick: Tick, delay: float = 0.0) -> float:
        return -1.0 if tick < 0 else tick * self.tick_s + delay

    def _reason(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason)

    # -- steps --------------------------------------------------------------------------------------------------------

    def gap(self, ticks: Tick, tokens: int = 1) -> None:
        """Add the gap of ``tokens`` tokens that did not follow their predecessors by one step."""
        self.gaps_s.append(ticks * self.tick_s)
        self.gap_tokens.append(tokens)

    def gaps(self, seconds: NDArray[np.float64], tokens: int) -> None:
        """Add gaps of ``tokens`` tokens each."""
        self.gaps_s.frombytes(seconds.data.cast("B"))
        self.gap_tokens.extend(array("q", (tokens,)) * len(seconds))

    def step(self, replica: Replica, step: Step, start: Tick, end: Tick, waited: int = 0) -> None:
        """Add the row of a single step, just scheduled; ``waited`` of its decodes were passed over before it."""
        scheduler, shape = replica.scheduler, step.shape
        used = scheduler.pool.usable_blocks - scheduler.pool.free
        held = used * scheduler.config.block_size - scheduler.padding_tokens()
        self.steps.append(
            (
                replica.index,
                replica.steps,
                start * self.tick_s,
                1,
                (end - start) * self.tick_s,
                0.0,
                shape.decode_seqs,
                shape.decode_context,
                shape.decode_context_windowed,
                shape.prefill_seqs,
                shape.prefill_tokens,
                shape.prefill_pairs,
                shape.prefill_pairs_windowed,
                shape.prefill_context,
                shape.prefill_context_windowed,
                shape.sampled_seqs,
                step.gaps - waited,
                len(scheduler.running),
                len(scheduler.waiting),
                used,
                used,
                held,
                len(step.preempted),
                shape.draft_tokens,
                step.accepted,
                scheduler.awaited_tokens(),
                scheduler.stranded_blocks() * scheduler.config.block_size,
                scheduler.shared_tokens(held),
            )
        )

    def open_run(self, replica: Replica, jump: Jump) -> Row:
        """The row of a run of steps, before the scheduler has moved over it."""
        scheduler, shape = replica.scheduler, jump.shape
        block_size = scheduler.config.block_size
        started = scheduler.blocks_to_start()
        used = scheduler.pool.usable_blocks - scheduler.pool.free + started - scheduler.blocks_to_free()
        padding = scheduler.padding_tokens() + started * block_size - shape.decode_seqs
        return [
            replica.index,
            replica.steps,
            jump.base * self.tick_s,
            jump.steps,
            jump.first * self.tick_s,
            jump.increment * self.tick_s,
            shape.decode_seqs,
            shape.decode_context,
            shape.decode_context_windowed,
            *(0,) * 6,
            shape.sampled_seqs,
            shape.sampled_seqs,
            len(scheduler.running),
            jump.waiting_at(1),
            used,
            0,  # used_blocks_end, known when the run is closed
            used * block_size - padding,
            *(0,) * 3,
            *memory_of_run(scheduler, shape.decode_seqs, used * block_size - padding, jump.stranded),
        ]

    def close_run(self, replica: Replica, row: Row) -> None:
        """Add the row of a run, after the scheduler has moved over it."""
        row[_USED_BLOCKS_END] = replica.scheduler.pool.usable_blocks - replica.scheduler.pool.free
        self.steps.append(row)
