"""Small correction grids: measured over modelled time, multilinear in the logarithms of the axes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from sim.errors import InputError
from sim.schema import StrictModel

if TYPE_CHECKING:  # a memory budget reads profiles and needs no numpy
    import numpy as np
    from numpy.typing import NDArray


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
        """The grid with the axes in ``fixed`` held there; the others, two at most, stay free in their order."""
        octaves = self._octaves
        logs: Any = self._logs
        at = {
            axis: _locate(nodes, math.log2(fixed[name]))
            for axis, (name, nodes) in enumerate(octaves.items())
            if name in fixed
        }
        near = [slice(None)] * logs.ndim
        for axis, (low, _) in at.items():
            near[axis] = slice(low, low + 2)
        logs = logs[tuple(near)]
        for axis in reversed(at):
            fraction = at[axis][1]
            below, above = logs.take(0, axis), logs.take(-1, axis)
            logs = below + fraction * (above - below) if fraction else below
        return Surface([nodes for name, nodes in octaves.items() if name not in fixed], logs.ravel().tolist())

    @cached_property
    def _logs(self) -> NDArray[np.float64]:
        """Logarithms of the factors, one dimension an axis."""
        import numpy as np

        return np.array([math.log(factor) for factor in self.factor]).reshape(
            [len(nodes) for nodes in self.axes.values()]
        )

    @cached_property
    def _octaves(self) -> dict[str, list[float]]:
        """log2 of the nodes of each axis."""
        return {name: [math.log2(node) for node in nodes] for name, nodes in self.axes.items()}


class Surface:
    """What is left of a `Grid` when some axes are fixed: the logarithm of the factor over at most two free axes."""

    __slots__ = ("_logs", "_nodes", "_width")

    def __init__(self, nodes: Sequence[list[float]], logs: list[float]) -> None:
        self._nodes = nodes
        self._logs = logs
        self._width = len(nodes[1]) if len(nodes) == 2 else 1

    def log(self, *octaves: float) -> float:
        """The logarithm of the factor at ``octaves`` (log2 of the value on each free axis)."""
        logs = self._logs
        if not octaves:
            return logs[0]
        low, part = _locate(self._nodes[0], octaves[0])
        if len(octaves) == 1:
            return logs[low] if part == 0.0 else logs[low] + part * (logs[low + 1] - logs[low])
        column, share = _locate(self._nodes[1], octaves[1])
        at = low * self._width + column
        below = logs[at] if share == 0.0 else logs[at] + share * (logs[at + 1] - logs[at])
        if part == 0.0:
            return below
        at += self._width
        above = logs[at] if share == 0.0 else logs[at] + share * (logs[at + 1] - logs[at])
        return below + part * (above - below)


def _locate(nodes: Sequence[float], value: float) -> tuple[int, float]:
    """(index of the node below, fraction to the next), held inside the nodes."""
    if value <= nodes[0] or len(nodes) == 1:
        return 0, 0.0
    if value >= nodes[-1]:
        return len(nodes) - 2, 1.0
    low = bisect_right(nodes, value) - 1
    return low, (value - nodes[low]) / (nodes[low + 1] - nodes[low])


class Anchors(StrictModel):
    """Factors on top of the grids at shapes that were measured themselves, fading out around them.

    Kernel choice follows the exact shape, which no smooth grid does; a shape that was measured is worth more than its
    neighbours.

    Attributes:
        shape: names of the axes that identify a shape.
        along: name of the axis that a factor list runs along, and its nodes.
        nodes: ascending nodes of ``along``.
        points: one string of numbers for each shape: its place on the ``shape`` axes, then a factor for each node.
    """

    shape: tuple[str, ...]
    along: str
    nodes: Annotated[tuple[float, ...], BeforeValidator(_numbers)]
    points: tuple[Annotated[tuple[float, ...], BeforeValidator(_numbers)], ...]

    @model_validator(mode="after")
    def _regular(self) -> Self:
        width = len(self.shape) + len(self.nodes)
        bad = [point for point in self.points if len(point) != width or min(point) <= 0]
        if bad:
            raise InputError("points", f"each needs {width} positive numbers, got {list(bad[0])}")
        return self

    def surface(self, at: Mapping[str, float]) -> Surface:
        """The factors for one shape: those of the measured shapes around it, by a bell of a quarter of an octave."""
        depth = len(self.shape)
        place = [math.log2(at[name]) for name in self.shape]
        total, logs = _FADE, [0.0] * len(self.nodes)
        for point in self.points:
            distance = sum((math.log2(x) - y) ** 2 for x, y in zip(point[:depth], place, strict=True))
            weight = math.exp(-0.5 * distance / _BELL**2)
            if weight > _NEGLIGIBLE:
                total += weight
                logs = [log + weight * math.log(factor) for log, factor in zip(logs, point[depth:], strict=True)]
        return Surface([[math.log2(node) for node in self.nodes]], [log / total for log in logs])


_BELL = 0.25
_FADE = 0.02
_NEGLIGIBLE = 1e-4
