"""Two small solvers: a simplex search for the figures of a law, and smoothed robust least squares for its grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_FLOOR = 0.02  # residuals below this are noise: they all weigh the same


def simplex(loss: Callable[[Floats], float], start: Sequence[float], iterations: int = 400) -> Floats:
    """The point that minimises ``loss``, by Nelder and Mead's method (1965) from ``start``. Deterministic."""
    points = [np.array(start, dtype=float)]
    points += [points[0] + 0.3 * np.eye(len(start))[axis] for axis in range(len(start))]
    losses = [loss(point) for point in points]
    for _ in range(iterations):
        order = np.argsort(losses, kind="stable")
        points, losses = [points[i] for i in order], [losses[i] for i in order]
        centre = np.mean(points[:-1], axis=0)
        moved = _better(loss, centre, points[-1], losses)
        if moved is None:
            points = [points[0], *(points[0] + 0.5 * (point - points[0]) for point in points[1:])]
            losses = [losses[0], *(loss(point) for point in points[1:])]
        else:
            points[-1], losses[-1] = moved
    return points[int(np.argmin(losses))]


def _better(
    loss: Callable[[Floats], float], centre: Floats, worst: Floats, losses: list[float]
) -> tuple[Floats, float] | None:
    """Reflect, expand or contract the worst corner; None asks for a shrink."""
    reflected = 2.0 * centre - worst
    value = loss(reflected)
    if value < losses[0]:
        expanded = 3.0 * centre - 2.0 * worst
        further = loss(expanded)
        return (expanded, further) if further < value else (reflected, value)
    if value < losses[-2]:
        return reflected, value
    contracted = 0.5 * (centre + worst)
    value = loss(contracted)
    return (contracted, value) if value < losses[-1] else None


def fit_grid(
    values: Sequence[Floats], nodes: Sequence[Floats], target: Floats, weight: Floats, smoothing: float
) -> Floats:
    """Node values of a multilinear grid that follow ``target`` in the least absolute error.

    Args:
        values: one array for each axis, the position of every row.
        nodes: one ascending array for each axis.
        target: what to follow.
        weight: importance of each row.
        smoothing: weight of the squared second differences; fills nodes without data.

    Returns:
        Array of node values, one dimension an axis.
    """
    shape = tuple(len(axis) for axis in nodes)
    corners, shares = _corners(values, nodes, shape)
    size, rows = int(np.prod(shape)), len(target)
    penalty = _curvature(shape) * (smoothing * rows / size) + np.eye(size) * (1e-3 * rows / size)
    solution: Floats = np.zeros(size)
    importance: Floats = np.array(weight, dtype=np.float64)
    for _ in range(8):
        importance = np.asarray(importance * (rows / importance.sum()))
        matrix, vector = penalty.copy(), np.zeros(size)
        for first in range(corners.shape[1]):
            scaled = importance * shares[:, first]
            vector += np.bincount(corners[:, first], scaled * target, size)
            for second in range(corners.shape[1]):
                flat = corners[:, first] * size + corners[:, second]
                matrix += np.bincount(flat, scaled * shares[:, second], size * size).reshape(size, size)
        solution = np.asarray(np.linalg.solve(matrix, vector), dtype=np.float64)
        residual = np.abs(target - (shares * solution[corners]).sum(axis=1))
        importance = np.asarray(weight / np.maximum(residual, _FLOOR))
    return solution.reshape(shape)


def grid_values(values: Sequence[Floats], nodes: Sequence[Floats], grid: Floats) -> Floats:
    """The grid at the position of every row; the edge holds outside."""
    corners, shares = _corners(values, nodes, grid.shape)
    return np.asarray((shares * grid.ravel()[corners]).sum(axis=1))


def _corners(
    values: Sequence[Floats], nodes: Sequence[Floats], shape: tuple[int, ...]
) -> tuple[NDArray[np.int64], Floats]:
    """Flat index and share of the grid corners around every row."""
    low: list[NDArray[np.int64]] = []
    fraction: list[Floats] = []
    for value, axis in zip(values, nodes, strict=True):
        inside = np.clip(value, axis[0], axis[-1])
        if len(axis) == 1:
            low.append(np.zeros(len(value), dtype=np.int64))
            fraction.append(np.zeros(len(value)))
            continue
        index = np.clip(np.searchsorted(axis, inside, side="right") - 1, 0, len(axis) - 2)
        low.append(index)
        fraction.append((inside - axis[index]) / (axis[index + 1] - axis[index]))
    corners, shares = [], []
    for corner in product(*[(0, 1) if size > 1 else (0,) for size in shape]):
        flat = np.zeros(len(values[0]), dtype=np.int64)
        share = np.ones(len(values[0]))
        for axis_low, axis_fraction, bit, size in zip(low, fraction, corner, shape, strict=True):
            flat = flat * size + axis_low + bit
            share = share * (axis_fraction if bit else 1.0 - axis_fraction)
        corners.append(flat)
        shares.append(share)
    return np.stack(corners, axis=1), np.stack(shares, axis=1)


def _curvature(shape: tuple[int, ...]) -> Floats:
    """Matrix of the sum of squared second differences along every axis."""
    size = int(np.prod(shape))
    index = np.arange(size).reshape(shape)
    total = np.zeros((size, size))
    stencil = (1.0, -2.0, 1.0)
    for axis, length in enumerate(shape):
        lines = np.moveaxis(index, axis, 0)
        for start in range(length - 2):
            triple = [lines[start + step].ravel() for step in range(3)]
            for (left, a), (right, b) in product(zip(triple, stencil, strict=True), repeat=2):
                np.add.at(total, (left, right), a * b)
    return total
