"""Rows of the output schema for a run of verify steps: one a step, since each request moves on unevenly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from sim.engine.speculative_group import CONTEXT, HELD, TOKENS, WINDOWED
from sim.engine.speculative_jump import VerifyJump
from sim.records import STEP_COLUMNS

if TYPE_CHECKING:
    from sim.engine.replica import Replica

COLUMN: Final = {name: index for index, (name, _) in enumerate(STEP_COLUMNS)}


def verify_rows(replica: Replica, jump: VerifyJump, tick_s: float) -> NDArray[np.float64]:
    """(steps, columns) rows of `STEP_COLUMNS`, before the scheduler has moved over the run."""
    scheduler, shape, steps = replica.scheduler, jump.shape, jump.steps
    context, tokens, held = (jump.sums[row, :steps] for row in (CONTEXT, TOKENS, HELD))
    used = held + (scheduler.pool.usable_blocks - scheduler.pool.free - jump.held_before)
    kept = context - shape.tokens + tokens  # computed and kept after each step
    rows = np.zeros((steps, len(COLUMN)))
    for name, value in (
        ("replica", replica.index),
        ("step", np.arange(replica.steps, replica.steps + steps)),
        ("start_s", jump.times[:steps] * tick_s),
        ("steps", 1),
        ("duration_s", (jump.times[1 : steps + 1] - jump.times[:steps]) * tick_s),
        ("decode_seqs", shape.decode_seqs),
        ("decode_context", context),
        ("decode_context_windowed", context if scheduler.group.window is None else jump.sums[WINDOWED, :steps]),
        ("sampled_seqs", shape.sampled_seqs),
        ("gaps", shape.sampled_seqs),
        ("running", len(scheduler.running)),
        ("waiting", jump.waiting_at_each()),
        ("used_blocks", used),
        ("used_blocks_end", used),
        ("held_tokens", (used - held) * scheduler.config.block_size + kept),
        ("draft_tokens", shape.draft_tokens),
        ("accepted_tokens", tokens - shape.sampled_seqs),
    ):
        rows[:, COLUMN[name]] = value
    return rows
