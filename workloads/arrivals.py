"""Drawing arrival times and pauses from the processes of `workloads.arrival_spec`.

Every open process is drawn at unit rate first and then carried through the rate over time: at unit time u a request
arrives when the expected number of arrivals so far is u. So a stage's rate holds from its first to its last moment, and
changing a rate alone keeps the pattern.
"""

from __future__ import annotations

import math

import numpy as np

from sim.errors import InputError
from sim.workload import Floats
from workloads.arrival_spec import (
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    StagesArrivals,
    WeibullArrivals,
)
from workloads.spec import MAX_REQUESTS

OpenArrivals = ConstantArrivals | PoissonArrivals | GammaArrivals | WeibullArrivals | StagesArrivals


def arrival_times(
    spec: OpenArrivals, rng: np.random.Generator, count: int | None = None, duration_s: float | None = None
) -> Floats:
    """Arrival times in seconds, ascending: the first ``count``, or those before ``duration_s``.

    Constant arrivals begin at 0; the others begin after a first gap. Stages end by themselves: fewer than ``count``
    may come. Raises `InputError` when nothing arrives, or more than `MAX_REQUESTS` would.
    """
    if isinstance(spec, StagesArrivals):
        kind, cv = spec.gaps, spec.cv or 1.0
        edges_s = np.cumsum([0.0, *(stage.duration_s for stage in spec.stages)])
        expected = np.cumsum([0.0, *(stage.rate_per_s * stage.duration_s for stage in spec.stages)])
        end = float(np.interp(duration_s, edges_s, expected)) if duration_s is not None else float(expected[-1])
        return np.asarray(np.interp(_unit_arrivals(kind, cv, rng, count, end), expected, edges_s), dtype=np.float64)
    kind, cv = spec.process, getattr(spec, "cv", 1.0)
    end = math.inf if duration_s is None else duration_s * spec.rate_per_s
    return np.asarray(_unit_arrivals(kind, cv, rng, count, end) / spec.rate_per_s, dtype=np.float64)


def pauses(mean_s: float, cv: float, n: int, rng: np.random.Generator) -> Floats:
    """``n`` gamma-distributed pauses of mean ``mean_s`` and coefficient of variation ``cv`` (0: all equal), seconds."""
    if cv == 0 or mean_s == 0:
        return np.full(n, mean_s)
    return mean_s * unit_gaps("gamma", cv, n, rng)


def unit_gaps(kind: str, cv: float, n: int, rng: np.random.Generator) -> Floats:
    """``n`` gaps of mean 1 of the renewal process ``kind``: poisson, gamma or weibull with variation ``cv``.

    Gamma: shape 1 / cv^2. Weibull: the shape k solves Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 = 1 + cv^2.
    """
    if kind == "poisson":
        return rng.exponential(size=n)
    if kind == "gamma":
        return rng.gamma(cv**-2, cv**2, size=n)
    shape = weibull_shape(cv)
    return rng.weibull(shape, size=n) / math.gamma(1 + 1 / shape)


def weibull_shape(cv: float) -> float:
    """Shape of the Weibull distribution with coefficient of variation ``cv`` (by bisection on the log of the shape)."""
    target = math.log1p(cv * cv)
    low, high = math.log(0.05), math.log(1e4)
    for _ in range(200):
        middle = (low + high) / 2
        inverse = math.exp(-middle)
        if math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse) > target:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


def _unit_arrivals(kind: str, cv: float, rng: np.random.Generator, count: int | None, end: float) -> Floats:
    """Arrivals at unit rate: the first ``count`` before ``end``."""
    if count is None and end > MAX_REQUESTS:
        raise InputError("duration_s", f"about {end:.3g} requests would arrive", f"stay below {MAX_REQUESTS:,}")
    if kind == "constant":
        number = math.ceil(end) if count is None else count
        times = np.arange(number, dtype=np.float64)
    elif count is not None:
        times = np.cumsum(unit_gaps(kind, cv, count, rng))
    else:
        times = _unit_renewals(kind, cv, rng, end)
    times = times[times < end]
    if len(times) > MAX_REQUESTS:
        raise InputError("arrivals.cv", f"{cv:g} crowds more than {MAX_REQUESTS:,} requests into the time", "lower it")
    if not len(times):
        raise InputError("duration_s", f"no request arrives: {end:.3g} are expected", "lengthen it, or raise the rate")
    return times


def _unit_renewals(kind: str, cv: float, rng: np.random.Generator, end: float) -> Floats:
    """Renewals at unit rate, drawn in blocks up to ``end``, or until there are too many."""
    block = int(end + 4 * math.sqrt(end) * max(cv, 1.0)) + 16
    parts: list[Floats] = []
    last, drawn = 0.0, 0
    while last < end and drawn <= MAX_REQUESTS:
        times = last + np.cumsum(unit_gaps(kind, cv, block, rng))
        parts.append(times)
        last = float(times[-1])
        drawn += block
    return np.concatenate(parts)
