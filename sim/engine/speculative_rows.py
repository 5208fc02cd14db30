"""The row of the output schema for a run of verify steps, and the gaps between the chunks of tokens they gave out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.engine.recorder import memory_of_run
from sim.engine.speculative_group import TOKENS
from sim.engine.speculative_jump import VerifyJump

if TYPE_CHECKING:
    from sim.engine.recorder import Row
    from sim.engine.replica import Replica


def verify_row(replica: Replica, jump: VerifyJump) -> Row:
    """The row of a run, before the scheduler has moved over it; its steps' unequal durations go to the gaps.

    The row's duration is that of its mean step.
    """
    scheduler, recorder, shape, steps = replica.scheduler, replica.recorder, jump.shape, jump.steps
    durations = (jump.times[1 : steps + 1] - jump.times[:steps]) * recorder.tick_s
    recorder.gaps(durations, shape.sampled_seqs)
    tokens = jump.sums[TOKENS, :steps]
    block_size = scheduler.config.block_size
    started = scheduler.blocks_to_start()
    used = scheduler.pool.usable_blocks - scheduler.pool.free + started
    padding = scheduler.padding_tokens() + started * block_size - int(tokens[0])
    return [
        replica.index,
        replica.steps,
        jump.base * recorder.tick_s,
        steps,
        (jump.end(steps) - jump.base) * recorder.tick_s / steps,
        0.0,
        shape.decode_seqs,
        shape.decode_context,
        shape.decode_context_windowed,
        *(0,) * 6,
        shape.sampled_seqs,
        0,
        len(scheduler.running),
        jump.waiting_at(1),
        used,
        0,  # used_blocks_end, known when the run is closed
        used * block_size - padding,
        0,
        shape.draft_tokens,
        int(tokens.sum()) - steps * shape.sampled_seqs,
        *memory_of_run(scheduler, int(tokens[0]), used * block_size - padding),
    ]
