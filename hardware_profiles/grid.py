"""Small correction grids: measured over modelled time, multilinear in the logarithms of the axes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from sim.errors import InputError
from sim.schema import StrictModel


def _numbers(value: Any) -> Any:
    """Factors written as one string of numbers, which is short to read and quick to load."""
    if not isinstance(value, str):
        return value
    try:
        return tuple(float(word) for word in value.split())
    except ValueError as error:
        raise InputError("", f"expected numbers ({error})") from None


class Grid(StrictModel):
    """Factors at the nodes of a rectangular grid.

    Attributes:
        axes: nodes of each axis, ascending and positive; the order of the keys is the order of the indices.
        factor: measured / modelled at each node, row by row (the last axis runs fastest).

    Between nodes the logarithm of the factor is linear in the logarithm of each axis; outside the nodes the factor of
    the nearest edge holds, so that extrapolation follows the physical law.
    """

    axes: dict[str, Annotated[tuple[float, ...], BeforeValidator(_numbers)]]
    factor: Annotated[tuple[float, ...], BeforeValidator(_numbers)]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        size = math.prod(len(nodes) for nodes in self.axes.values())
        if size != len(self.factor):
            raise InputError("factor", f"{len(self.factor)} factors for a grid of {size}")
        for name, nodes in self.axes.items():
            if not nodes or nodes[0] <= 0 or any(low >= high for low, high in pairwise(nodes)):
                raise InputError(f"axes.{name}", f"nodes must be positive and ascending, got {list(nodes)}")
        if min(self.factor) <= 0:
            raise InputError("factor", f"factors must be positive, got {min(self.factor)}")
        return self

    def surface(self, fixed: Mapping[str, float]) -> Surface:
        """The grid with the axes in ``fixed`` held at those values; the others stay free, in their order."""
        names = list(self.axes)
        sizes = [len(self.axes[name]) for name in names]
        logs = [math.log(factor) for factor in self.factor]
        for axis in reversed(range(len(names))):
            name = names[axis]
            if name in fixed:
                low, fraction = _locate([math.log2(node) for node in self.axes[name]], math.log2(fixed[name]))
                logs = _collapse(logs, sizes, axis, low, fraction)
                del names[axis], sizes[axis]
        return Surface(tuple([math.log2(node) for node in self.axes[name]] for name in names), logs)


class Surface:
    """What is left of a `Grid` when some axes are fixed: a callable of the free axes."""

    __slots__ = ("_logs", "_nodes")

    def __init__(self, nodes: Sequence[list[float]], logs: list[float]) -> None:
        self._nodes = nodes
        self._logs = logs

    def __call__(self, *values: float) -> float:
        """The factor at ``values``, one for each free axis."""
        logs = self._logs
        sizes = [len(nodes) for nodes in self._nodes]
        for axis in reversed(range(len(values))):
            low, fraction = _locate(self._nodes[axis], math.log2(values[axis]))
            logs = _collapse(logs, sizes, axis, low, fraction)
            del sizes[axis]
        return math.exp(logs[0])


def _locate(nodes: Sequence[float], value: float) -> tuple[int, float]:
    """(index of the node below, fraction to the next), held inside the nodes."""
    if value <= nodes[0] or len(nodes) == 1:
        return 0, 0.0
    if value >= nodes[-1]:
        return len(nodes) - 2, 1.0
    low = bisect_right(nodes, value) - 1
    return low, (value - nodes[low]) / (nodes[low + 1] - nodes[low])


def _collapse(values: list[float], sizes: list[int], axis: int, low: int, fraction: float) -> list[float]:
    """Interpolate ``axis`` away."""
    inner = math.prod(sizes[axis + 1 :])
    stride = inner * sizes[axis]
    out: list[float] = []
    for start in range(low * inner, len(values), stride):
        below = values[start : start + inner]
        if fraction == 0.0:
            out += below
        else:
            above = values[start + inner : start + 2 * inner]
            out += [a + fraction * (b - a) for a, b in zip(below, above, strict=True)]
    return out
