"""The part of a normal or lognormal distribution that a range keeps, in closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CutNormal:
    """A normal distribution, or with ``log`` that of the logarithms of a lognormal one, kept within a range.

    Attributes:
        mean, std: before the cut, of the values themselves.
        low, high: the range, of the values themselves.
        log: whether the values are lognormal.
    """

    mean: float
    std: float
    low: float
    high: float
    log: bool

    @property
    def mu(self) -> float:
        """Mean of the normal variable."""
        return math.log(self.mean) - self.sigma**2 / 2 if self.log else self.mean

    @property
    def sigma(self) -> float:
        """Standard deviation of the normal variable."""
        return math.sqrt(math.log1p((self.std / self.mean) ** 2)) if self.log else self.std

    @property
    def kept(self) -> float:
        """Fraction of draws within the range."""
        a, b = self._standard_range()
        return _distribution(b) - _distribution(a)

    @property
    def cut_mean(self) -> float:
        """Mean of what is kept.

        Normal: mu + sigma (phi(a) - phi(b)) / (Phi(b) - Phi(a)); lognormal: mean (Phi(b - sigma) - Phi(a - sigma)) /
        (Phi(b) - Phi(a)), with a and b the range in standard units (Johnson, Kotz and Balakrishnan, Continuous
        Univariate Distributions, volume 1).
        """
        a, b = self._standard_range()
        if self.log:
            return self.mean * (_distribution(b - self.sigma) - _distribution(a - self.sigma)) / self.kept
        return self.mu + self.sigma * (_density(a) - _density(b)) / self.kept

    def _standard_range(self) -> tuple[float, float]:
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        return (low - self.mu) / self.sigma, (high - self.mu) / self.sigma


def _distribution(x: float) -> float:
    """Standard normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2


def _density(x: float) -> float:
    """Standard normal density."""
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
