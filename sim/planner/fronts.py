"""Pareto fronts: the deployments and loads for which nothing is better in both of two ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Point = TypeVar("Point")


def front(
    points: Iterable[Point], better_high: Callable[[Point], float], better_low: Callable[[Point], float]
) -> list[Point]:
    """Points that no other beats: none is at least as high in one, at least as low in the other, and better in one.

    Sorted by the first. Of equal points the first stays.

    >>> front([(1, 1), (2, 2), (1, 2), (3, 2)], lambda p: p[0], lambda p: p[1])
    [(1, 1), (3, 2)]
    """
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (better_low(point), -better_high(point))):
        if not kept or better_high(point) > better_high(kept[-1]):
            kept.append(point)
    return kept
