"""How tokens spread over the experts of a layer: which are hit, and how unevenly ranks are loaded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from sim.errors import InputError


@dataclass(frozen=True, slots=True)
class ExpertRouting:
    """Share of the (token, expert) pairs that each expert gets, the most loaded first; sums to 1."""

    shares: tuple[float, ...]

    @classmethod
    def balanced(cls, experts: int) -> ExpertRouting:
        """Every expert equally likely."""
        return cls((1.0 / experts,) * experts)

    @classmethod
    def power_law(cls, experts: int, exponent: float) -> ExpertRouting:
        """Share of the i-th most loaded expert proportional to ``(i + 1) ** -exponent``.

        Raises:
            InputError: a negative exponent.
        """
        if exponent < 0:
            raise InputError("routing.exponent", f"must not be negative, got {exponent}")
        weights = [(rank + 1) ** -exponent for rank in range(experts)]
        total = sum(weights)
        return cls(tuple(weight / total for weight in weights))

    @classmethod
    def measured(cls, counts: Sequence[float]) -> ExpertRouting:
        """From a histogram of routed tokens by expert.

        Raises:
            InputError: no counts, or a negative one.
        """
        if not counts or min(counts) < 0 or sum(counts) <= 0:
            raise InputError("routing.counts", "needs non-negative counts with a positive sum")
        total = sum(counts)
        return cls(tuple(sorted((count / total for count in counts), reverse=True)))

    def active(self, tokens: float, top_k: int) -> float:
        """Expected experts with at least one of ``tokens`` tokens, each routed to ``top_k`` distinct experts.

        With probability ``min(1, top_k * share)`` a token picks an expert; tokens choose independently.
        """
        if self.shares[0] == self.shares[-1]:
            return len(self.shares) * (1.0 - math.pow(max(0.0, 1.0 - top_k * self.shares[0]), tokens))
        return sum(1.0 - math.pow(max(0.0, 1.0 - top_k * share), tokens) for share in self.shares)

    def busiest_rank(self, pairs: float, ranks: int) -> float:
        """(token, expert) pairs of the most loaded of ``ranks`` ranks, experts dealt round robin by load.

        The expected share plus the expected excess of the largest of ``ranks`` Poisson counts.
        """
        if ranks == 1:
            return pairs
        loads = [0.0] * ranks
        for index, share in enumerate(self.shares):
            turn = index % (2 * ranks)
            loads[turn if turn < ranks else 2 * ranks - 1 - turn] += share
        mean = max(loads) * pairs
        return mean + largest_of(ranks) * math.sqrt(mean)

    def busiest_load(self) -> float:
        """Load of the most loaded rank over the mean in batches so large that luck evens out: dealt evenly, 1."""
        return 1.0


def largest_of(count: int) -> float:
    """Expected largest of ``count`` standard normal draws (Blom, Statistical Estimates and Transformed Beta-Variables,
    1958); 0 for one.
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
