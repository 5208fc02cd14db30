"""Stretches of a run in which, if the promise is kept, certain requests must have been served from start to end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sim.planner.demand import Demand
from sim.scenario import SloSpec
from sim.workload import Floats

_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# A mean of at most b leaves at least these shares at or below so many times b (Markov).
_OF_A_MEAN: Final = ((0.5, 2.0), (0.75, 4.0), (0.9, 10.0), (0.95, 20.0))
_STARTS, _ENDS = np.linspace(0, 0.6, 3), np.linspace(0.4, 1.0, 6)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows for one kind of deadline. Whoever arrives in a window and is due in it is served in it.

    Attributes:
        allowed: requests that may miss their deadline.
        prompts_only: whether the deadline is that of the first token.
        tpot_s: the time a token that requests keep to which do not miss theirs; None: nothing is said.
        within: (n, windows) 1 where a request arrives and is due in a window.
        length_s: (windows,).
    """

    allowed: int
    prompts_only: bool
    tpot_s: float | None
    within: Floats
    length_s: Floats

    def busy(self, work_s: NDArray[np.float64]) -> float:
        """Engines that must work all the time in the busiest window.

        Args:
            work_s: (vectors, n) least work of each request, each vector a bound of its own. Of every vector the largest
                entries are taken for those of the requests that miss their deadline.
        """
        if not len(self.length_s):
            return 0.0
        n = work_s.shape[1]
        spared = np.zeros(len(work_s))
        if self.allowed:
            spared = np.partition(work_s, n - self.allowed, axis=1)[:, n - self.allowed :].sum(axis=1)
        done = np.einsum("vn,nw->vw", work_s, self.within) - spared[:, None]  # one thread: workers have the others
        return max(0.0, float((done / self.length_s).max()))


def windows_of(demand: Demand, slo: SloSpec, min_attainment: float) -> list[Windows]:
    """The windows that the bounds of ``slo`` give rise to; none where requests wait for each other."""
    if demand.chained:
        return []
    return [
        _windows(demand.arrival_s, deadline_s, allowed, prompts_only, tpot_s)
        for allowed, deadline_s, prompts_only, tpot_s in _deadlines(demand, slo, min_attainment)
        if allowed < len(demand)
    ]


def _windows(arrival_s: Floats, deadline_s: Floats, allowed: int, prompts_only: bool, tpot_s: float | None) -> Windows:
    starts, ends = np.quantile(arrival_s, _STARTS), np.quantile(deadline_s, _ENDS)
    begin, end = (grid.ravel() for grid in np.meshgrid(starts, ends))
    begin, end = begin[end > begin], end[end > begin]
    within = (arrival_s[:, None] >= begin) & (deadline_s[:, None] <= end)
    return Windows(allowed, prompts_only, tpot_s, within.astype(np.float64), end - begin)


def _deadlines(demand: Demand, slo: SloSpec, min_attainment: float) -> list[tuple[int, Floats, bool, float | None]]:
    """(requests that may miss it, (n,) deadline, whether it is that of the first token, their TPOT)."""
    arrival, n = demand.arrival_s, len(demand)
    given: dict[str, list[tuple[int, float]]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    for metric, statistic, bound_s in slo.statistics().values():
        shares = _OF_A_MEAN if statistic == "mean" else ((_LEVELS[statistic], 1.0),)
        given[metric] += [(n - 1 - math.floor((n - 1) * share), bound_s * times) for share, times in shares]
    missable = math.floor((1 - min_attainment) * n)
    for metric, bound_s in slo.per_request().items():
        given[metric].append((missable, bound_s))
    found: list[tuple[int, Floats, bool, float | None]] = []
    found += [(allowed, arrival + bound_s, True, None) for allowed, bound_s in given["ttft"]]
    found += [(allowed, arrival + bound_s, False, None) for allowed, bound_s in given["e2e"]]
    found += [
        (first + later, arrival + ttft_s + (demand.output_tokens - 1) * tpot_s, False, tpot_s)
        for first, ttft_s in given["ttft"]
        for later, tpot_s in given["tpot"]
    ]
    return found
