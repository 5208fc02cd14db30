"""Axes: where values lie, and which of them are worth a tick."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Axis:
    """Values from ``low`` to ``high``, linear or logarithmic; ``unit`` is what tooltips put behind a value."""

    label: str
    unit: str
    low: float
    high: float
    log: bool = False

    def place(self, values: Floats | float, length: float) -> Floats:
        """Positions from 0 (low) to ``length`` (high)."""
        if self.log:
            low, high = math.log10(self.low), math.log10(self.high)
            return np.asarray((np.log10(np.maximum(values, self.low * 1e-6)) - low) / (high - low) * length)
        return np.asarray((np.asarray(values) - self.low) / (self.high - self.low) * length)

    def ticks(self, most: int) -> list[float]:
        """Round values on the axis, about ``most``."""
        return self._decades(most) if self.log else self._even(most)

    def _even(self, most: int) -> list[float]:
        rough = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(step * power for step in _STEPS if step * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]

    def _decades(self, most: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        stride = max(1, math.ceil((last - first + 1) / most))
        return [10.0**power for power in range(first, last + 1, stride)]


def axis(label: str, unit: str, high: float, low: float = 0.0) -> Axis:
    """A linear axis that ends a little above ``high``; never empty."""
    return Axis(label, unit, low, high if high > low else low + 1.0)


def short(value: float) -> str:
    """A tick: thousands as k, M, G, T, P.

    >>> short(0.5), short(2500.0), short(1e16), short(0.0)
    ('0.5', '2.5k', '10P', '0')
    """
    for factor, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.4g}{letter}"
    return f"{value:.4g}"
