"""Gives a run up as soon as it is certain that a bound of the promise will be broken."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import simpy
from numpy.typing import NDArray

from sim.cluster.fleet import Fleet
from sim.metrics import request_latencies
from sim.planner.evidence import Evidence, evidence_of
from sim.records import STATUS
from sim.result import arrays_of
from sim.scenario import SloSpec
from sim.workload import Workload

LOOKS: Final = 60  # times that a run is looked at while requests arrive
_LOOK_S: Final = 20.0  # between looks where arrivals have no times of their own
_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


class PromiseBrokenError(Exception):
    """A bound is broken whatever the requests to come do; holds which, beyond how many times, and the evidence."""

    def __init__(self, key: str, beyond: float, evidence: Evidence) -> None:
        super().__init__(key, beyond, evidence)
        self.key = key
        self.beyond = beyond
        self.evidence = evidence


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a statistic as something to count: broken once ``allowed`` is exceeded.

    For a quantile of n values with linear interpolation, the lower of the two order statistics is above the bound once
    n - floor((n - 1) q) values are, so one fewer is allowed. For a mean it is the sum of values, which only grows.
    """

    key: str
    metric: str
    bound_s: float
    allowed: float
    summed: bool

    def broken_by(self, values_s: NDArray[np.float64]) -> bool:
        """Whether the finished requests alone break the bound."""
        if self.summed:
            return float(values_s.sum()) > self.allowed
        return int((values_s > self.bound_s).sum()) > self.allowed


class Watch:
    """Looks at a run now and then, and ends it with `PromiseBrokenError` when its verdict is certain.

    Only bounds that finished requests can break for good are watched: those on ttft, tpot and e2e, those on each
    request, and that no request is rejected. The verdict is that of the whole run, found earlier.

    Args:
        ceiling: a statistic counts as broken beyond so many times its bound. More than 1: broken for sure, and by so
            much; less: kept perhaps, but not as well as that.
    """

    def __init__(self, slo: SloSpec, min_attainment: float, ceiling: float = 1.0) -> None:
        self._slo = slo
        self._min_attainment = min_attainment
        self._ceiling = ceiling

    def __call__(self, fleet: Fleet) -> None:
        """Start to watch ``fleet``."""
        fleet.env.process(self._look_on(fleet))

    def _look_on(self, fleet: Fleet) -> Generator[simpy.Event, Any, None]:
        limits = limits_of(self._slo, fleet.workload, self._ceiling)
        missable = math.floor((1 - self._min_attainment) * len(fleet.workload) + 1e-9)
        interval = _interval_s(fleet.workload) / fleet.recorder.tick_s
        while True:
            yield fleet.env.timeout(interval)
            if fleet.env.peek() == math.inf:
                return
            if broken := self._broken(fleet, limits, missable):
                longest = int(fleet.workload.prompt_tokens.max())
                beyond = self._ceiling if broken in self._slo.statistics() else 1.0
                raise PromiseBrokenError(broken, beyond, evidence_of(fleet.recorder.steps, longest))

    def _broken(self, fleet: Fleet, limits: list[Limit], missable: int) -> str | None:
        rows = arrays_of(fleet.recorder.requests)
        if (rows["status"] == STATUS.index("rejected")).any():
            return "requests are rejected"
        latencies = request_latencies(rows)
        values = {metric: latencies[f"{metric}_s"] for metric in ("ttft", "tpot", "e2e")}
        for limit in limits:
            measured = values[limit.metric]
            if limit.broken_by(measured[~np.isnan(measured)]):
                return limit.key
        missed = np.zeros(len(rows["status"]), bool)
        for metric, bound_s in self._slo.per_request().items():
            missed |= values[metric] > bound_s
        return "attainment" if int(missed.sum()) > missable else None


def limits_of(slo: SloSpec, workload: Workload, ceiling: float = 1.0) -> list[Limit]:
    """The bounds of ``slo``, times ``ceiling``, that requests can break for good in a run."""
    limits = []
    for key, (metric, statistic, bound_s) in slo.statistics().items():
        if metric == "itl":
            continue
        bound_s *= ceiling
        n = int((workload.output_tokens > 1).sum()) if metric == "tpot" else len(workload)
        if statistic == "mean":
            limits.append(Limit(key, metric, bound_s, bound_s * n * (1 + 1e-9), summed=True))
        elif n:
            at_or_below = math.floor((n - 1) * _LEVELS[statistic])
            limits.append(Limit(key, metric, bound_s, n - at_or_below - 1, summed=False))
    return limits


def _interval_s(workload: Workload) -> float:
    timed = workload.arrival_s[~np.isnan(workload.arrival_s)]
    span_s = float(timed.max() - timed.min()) if len(timed) else 0.0
    return span_s / LOOKS if span_s > 0 and workload.after is None else _LOOK_S
