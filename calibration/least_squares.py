"""Least squares with coefficients that cannot be negative: no kernel and no host term gives time back."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_TOLERANCE = 1e-10


def nonnegative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The ``x >= 0`` that minimises ``|matrix @ x - target|``.

    Active-set method of Lawson and Hanson, "Solving Least Squares Problems" (1974), chapter 23.

    Args:
        matrix: (rows, columns). Columns are scaled inside, so units may differ by orders of magnitude.
        target: (rows,).

    >>> nonnegative_least_squares(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([2.0, -1.0])).tolist()
    [2.0, 0.0]
    """
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    scaled = matrix / scale
    solution = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    for _ in range(10 * matrix.shape[1]):
        gradient = scaled.T @ (target - scaled @ solution)
        gradient[free] = -np.inf
        enter = int(np.argmax(gradient))
        if gradient[enter] <= _TOLERANCE * np.abs(scaled.T @ target).max():
            break
        free[enter] = True
        solution = _restricted(scaled, target, solution, free)
    return np.asarray(solution / scale)


def _restricted(matrix: Floats, target: Floats, solution: Floats, free: NDArray[np.bool_]) -> Floats:
    """Least squares over the free columns, giving up those that would turn negative (changes ``free``)."""
    while True:
        trial = np.zeros_like(solution)
        trial[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        if (trial[free] > 0).all():
            return trial
        bad = free & (trial <= 0)
        step = (solution[bad] / (solution[bad] - trial[bad] + 1e-300)).min()
        solution = solution + step * (trial - solution)
        free &= solution > _TOLERANCE
        solution = np.where(free, solution, 0.0)
