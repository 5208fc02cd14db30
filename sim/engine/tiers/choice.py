"""What it costs to compute a preempted request's cache again, and from which length a copy in the host is cheaper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sim.cost.shape import StepShape, StepTimer

LONGEST: Final = 1 << 20  # tokens up to which a crossover is looked for


def recompute_ticks(timer: StepTimer, batch: StepShape, tokens: int, max_num_batched_tokens: int) -> float:
    """Ticks that computing ``tokens`` tokens anew adds to steps that decode ``batch`` anyway.

    The context comes in chunks that fill the token budget beside the batch; each costs what a step with it takes longer
    than a step without. So a short context is nearly free where decodes leave the GPU's arithmetic idle, and a long one
    costs its full prefill.

    Args:
        timer: the cost of steps.
        batch: decodes of the steps that the chunks join; none: the chunks run alone.
        tokens: the context.
        max_num_batched_tokens: of a step.
    """
    room = max(1, max_num_batched_tokens - batch.decode_seqs)
    without = timer.step(batch)
    total, before = 0.0, 0
    while before < tokens:
        new = min(room, tokens - before)
        step = batch.but()
        step.add_prefill(new, before, timer.window)
        total += timer.step(step) - without
        before += new
    return total


def crossover_tokens(recompute: Callable[[int], float], swap: Callable[[int], float]) -> int | None:
    """The context from which swapping is cheaper than recomputing: the last length at which it begins to be.

    Args:
        recompute: price of a context of so many tokens.
        swap: the same, of both copies.

    Returns:
        Tokens; 1 where swapping always is cheaper, None where it never is up to a million tokens. Exact to the token
        where the order of the two changes once between two powers of two.
    """
    lengths = [1 << power for power in range(LONGEST.bit_length())]
    cheaper = [swap(length) < recompute(length) for length in lengths]
    if not cheaper[-1]:
        return None
    if all(cheaper):
        return 1
    last = max(index for index, wins in enumerate(cheaper) if not wins)
    low, high = lengths[last], lengths[last + 1]
    while high - low > 1:
        middle = (low + high) // 2
        if swap(middle) < recompute(middle):
            high = middle
        else:
            low = middle
    return high
