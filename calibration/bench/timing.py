"""Time a call until the median of its repeats is stable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

Call = Callable[[], object]
PRECISION: Final = 0.02  # half-width of the median's 90 % interval, as a fraction, at which it counts as stable
FEWEST: Final = 7
MOST: Final = 101
SAMPLE_S: Final = 3e-4  # shorter calls are timed several at once
_HALF_RANK: Final = 0.82  # 90 % interval of a median: ranks n/2 -+ 0.82 sqrt(n)


class Clock(Protocol):
    """Seconds of ``calls`` calls in a row on a device, first to last, everything they started included."""

    def seconds(self, call: Call, calls: int) -> float:
        """Run and time."""
        ...


class HostClock:
    """For calls that return when their work is done.

    Args:
        now: ``time.perf_counter`` for wall time; ``time.process_time`` counts the time on a core alone, so that other
            processes do not disturb, and is right for one thread only.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now

    def seconds(self, call: Call, calls: int) -> float:
        """Time from before the first call to after the last."""
        begin = self._now()
        for _ in range(calls):
            call()
        return self._now() - begin


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call.

    Attributes:
        seconds: median over the repeats.
        fastest_s: the shortest of them: what the call takes when nothing disturbs it.
        repeats: samples taken.
        spread: interquartile range over the median.
        stable: the median's 90 % interval is within `PRECISION`.
    """

    seconds: float
    fastest_s: float
    repeats: int
    spread: float
    stable: bool


def measure(call: Call, clock: Clock, *, limit_s: float = 1.0) -> Timing:
    """Warm ``call`` up, then repeat it until its median is stable, `MOST` samples are taken or ``limit_s`` has passed.

    At least three samples are taken, whatever they last.
    """
    begin = time.perf_counter()
    once = clock.seconds(call, 1)  # also warms up: the first call allocates and picks kernels
    calls = 1
    if once < SAMPLE_S:
        once = clock.seconds(call, 3) / 3
        calls = max(1, round(SAMPLE_S / max(once, 1e-9)))
    samples: list[float] = []
    while len(samples) < MOST:
        samples.append(clock.seconds(call, calls) / calls)
        late = time.perf_counter() - begin > limit_s
        if (late and len(samples) >= 3) or (len(samples) >= FEWEST and _half_width(samples) <= PRECISION):
            break
    return _timing(samples)


def _timing(samples: list[float]) -> Timing:
    low, median, high = (float(value) for value in np.quantile(samples, (0.25, 0.5, 0.75)))
    stable = len(samples) >= FEWEST and _half_width(samples) <= PRECISION
    return Timing(median, min(samples), len(samples), (high - low) / median, stable)


def _half_width(samples: list[float]) -> float:
    """Half the 90 % interval of the median, as a fraction of the median."""
    ordered = sorted(samples)
    reach = _HALF_RANK * len(ordered) ** 0.5
    middle = (len(ordered) - 1) / 2
    low = ordered[max(0, int(np.floor(middle - reach)))]
    high = ordered[min(len(ordered) - 1, int(np.ceil(middle + reach)))]
    return (high - low) / 2 / float(np.median(ordered))
