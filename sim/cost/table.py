"""A function of one count as straight pieces between nodes: cheap to add up, cheap to look up."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def count_nodes(largest: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ...: half octaves up to ``largest`` or just past it."""
    nodes, power = [1], 2
    while nodes[-1] < largest:
        nodes += [power, power + power // 2] if power > 1 else [power]
        power *= 2
    return sorted(set(nodes))


class Table:
    """Piecewise linear through (node, value); the last slope continues. 0 at and below 0.

    Args:
        nodes: ascending counts, the first at least 1.
        values: seconds at the nodes; made non-decreasing, since more work never takes less time.
    """

    __slots__ = ("_inner", "_intercepts", "_nodes", "_slopes")

    def __init__(self, nodes: Sequence[int], values: Sequence[float]) -> None:
        self._nodes = list(nodes)
        rising = list(values)
        for index in range(1, len(rising)):
            rising[index] = max(rising[index], rising[index - 1])
        self._slopes = [(rising[i + 1] - rising[i]) / (nodes[i + 1] - nodes[i]) for i in range(len(nodes) - 1)] or [0.0]
        self._intercepts = [rising[i] - slope * nodes[i] for i, slope in enumerate(self._slopes)]
        self._inner = self._nodes[1 : len(self._slopes)]  # where one piece ends and the next begins

    @classmethod
    def of(cls, function: Callable[[int], float], nodes: Sequence[int]) -> Table:
        """The table through ``function`` at ``nodes``."""
        return cls(nodes, [function(node) for node in nodes])

    def __call__(self, count: float) -> float:
        """Seconds at ``count``."""
        if count <= 0:
            return 0.0
        piece = bisect_right(self._inner, count)
        return self._intercepts[piece] + self._slopes[piece] * count

    def many(self, counts: NDArray[Any]) -> NDArray[np.float64]:
        """Seconds at each of ``counts``, ascending and positive; each equals the call with that count."""
        inner = self._inner
        first, last = bisect_right(inner, counts[0]), bisect_right(inner, counts[-1])
        if first == last:
            return np.asarray(self._intercepts[first] + self._slopes[first] * counts)
        piece = np.searchsorted(inner, counts, side="right")
        return np.asarray(np.asarray(self._intercepts)[piece] + np.asarray(self._slopes)[piece] * counts)

    def piece(self, count: float) -> tuple[float, float, float]:
        """(intercept, slope, last count for which they hold) of the piece that holds ``count``."""
        inner = self._inner
        piece = bisect_right(inner, count)
        return self._intercepts[piece], self._slopes[piece], inner[piece] if piece < len(inner) else math.inf

    def __add__(self, other: Table) -> Table:
        """The sum of two tables on the same nodes."""
        if self._nodes != other._nodes:
            raise ValueError("tables on different nodes cannot be added")
        total = Table(self._nodes, [0.0] * len(self._nodes))
        total._slopes = [a + b for a, b in zip(self._slopes, other._slopes, strict=True)]
        total._intercepts = [a + b for a, b in zip(self._intercepts, other._intercepts, strict=True)]
        return total
