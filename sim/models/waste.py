"""KV memory that holds no token: paged blocks against contiguous reservation, in closed form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Waste:
    """Tokens of one running request, averaged over time.

    Attributes:
        held_tokens: tokens that it holds.
        paged_tokens: tokens that its blocks could hold.
        contiguous_tokens: tokens reserved for it where every request gets the longest length at once.
    """

    held_tokens: float
    paged_tokens: float
    contiguous_tokens: float

    @property
    def paged_fraction(self) -> float:
        """Part of the allocated blocks that holds no token: less than one block a request."""
        return 1 - self.held_tokens / self.paged_tokens

    @property
    def contiguous_fraction(self) -> float:
        """Part of the reservations that holds no token."""
        return 1 - self.held_tokens / self.contiguous_tokens


def expected_waste(lengths: Iterable[tuple[int, int, float]], block_size: int, max_model_len: int) -> Waste:
    """Average over the decode steps of requests, exact for the given lengths.

    A request of ``p`` prompt and ``o`` output tokens holds p, p + 1, ..., p + o - 1 tokens, a step each. Paged
    allocation rounds each up to whole blocks (Kwon et al., arXiv 2309.06180, section 4.2), contiguous allocation
    reserves ``max_model_len``.

    Args:
        lengths: (prompt tokens, output tokens, weight) of each kind of request.
        block_size: tokens of a block.
        max_model_len: tokens of a reservation.
    """
    steps = held = paged = 0.0
    for prompt, output, weight in lengths:
        last = prompt + output - 1
        steps += weight * output
        held += weight * (_sum(last, 1) - _sum(prompt - 1, 1))
        paged += weight * (_sum(last, block_size) - _sum(prompt - 1, block_size))
    return Waste(held / steps, paged / steps, float(max_model_len))


def _sum(last: int, block: int) -> int:
    """Tokens allocated for 1, 2, ..., ``last`` tokens, summed: each rounded up to a multiple of ``block``."""
    whole, rest = divmod(last, block)
    return block * (block * whole * (whole + 1) // 2 + rest * (whole + 1))
