"""What no schedule can beat: bounds that drop a deployment only where a simulation would have to refuse it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from sim.planner.demand import Demand
from sim.planner.physics import Physics, windowed_keys, windowed_pairs
from sim.scenario import SloSpec
from sim.workload import Floats

SLACK: Final = 1.01  # a bound must be beaten by this much to count
_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# A mean of at most b leaves at least these shares at or below so many times b (Markov).
_OF_A_MEAN: Final = ((0.5, 2.0), (0.75, 4.0), (0.9, 10.0), (0.95, 20.0))
_STARTS, _ENDS = np.linspace(0, 0.8, 5), np.linspace(0.3, 1.0, 8)


@dataclass(frozen=True, slots=True)
class Refuted:
    """Why a deployment cannot keep the promise.

    Attributes:
        key: of the promise, ``attainment``, or ``capacity``.
        floor_s: the value that it cannot get below; None for capacity.
        replicas: for capacity, how many the work alone needs.
    """

    key: str
    floor_s: float | None = None
    replicas: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one engine: sequences and tokens of a step, and tokens that its cache holds. Infinite where unknown."""

    sequences: float
    step_tokens: float
    cache_tokens: float


@dataclass(frozen=True)
class PoolBounds:
    """Least work of each request on one kind of engine.

    Attributes:
        physics: of the engine.
        limits: of the engine.
        demand: of the workload.
    """

    physics: Physics
    limits: Limits
    demand: Demand

    @cached_property
    def decodes(self) -> Floats:
        """(n,) steps that decode a request: its first token comes from the prompt."""
        return self.demand.output_tokens - 1

    @cached_property
    def _keys_s(self) -> Floats:
        """(n,) time of decode attention."""
        p, first = self.physics, self.demand.new_tokens + self.demand.cached_tokens + 1
        full = windowed_keys(first, self.decodes, None)
        return p.key_s * full + p.windowed_key_s * windowed_keys(first, self.decodes, p.window)

    @cached_property
    def _pairs_s(self) -> Floats:
        """(n,) time of prompt attention."""
        p, new, before = self.physics, self.demand.new_tokens, self.demand.cached_tokens
        return p.pair_s * windowed_pairs(new, before, None) + p.windowed_pair_s * windowed_pairs(new, before, p.window)

    @cached_property
    def tpot_s(self) -> Floats:
        """(n,) least time a token after the first; NaN for a single token."""
        with np.errstate(invalid="ignore", divide="ignore"):
            attention = np.where(self.decodes > 0, self._keys_s / self.decodes, np.nan)
        return np.maximum(self.physics.decode_s + attention, self.physics.least_step_s)

    @cached_property
    def prefill_s(self) -> Floats:
        """(n,) least time from the queue to the first token, nothing else running."""
        new = self.demand.new_tokens
        steps = np.ceil(new / self.limits.step_tokens) if math.isfinite(self.limits.step_tokens) else np.ones(len(new))
        steps = np.maximum(steps, 1)
        gpu = np.max([line.fixed_s * steps + line.token_s * new for line in self.physics.lines], axis=0)
        least: Floats = np.maximum(gpu + self._pairs_s, steps * self.physics.least_step_s)
        return least

    @cached_property
    def shared_prefill_s(self) -> Floats:
        """(n,) the same where steps are shared with others: without fixed parts."""
        return self.physics.token_s * self.demand.new_tokens + self._pairs_s

    def work_s(self, *, prefill: bool, decode: bool) -> list[Floats]:
        """Vectors (n,) whose sum over requests no engine can undercut; any of them holds, the largest binds.

        Steps are at least decode tokens over sequences, computed tokens over tokens, cached tokens over the cache. A
        step costs a line of the physics, or the least step.
        """
        new = self.demand.new_tokens if prefill else np.zeros(len(self.demand))
        decodes = self.decodes if decode else np.zeros(len(self.demand))
        held = windowed_keys(self.demand.own_tokens + 1, decodes, None)
        steps = [
            decodes / self.limits.sequences,
            (new + decodes) / self.limits.step_tokens,
            held / self.limits.cache_tokens,
        ]
        attention = (self._pairs_s if prefill else 0.0) + (self._keys_s if decode else 0.0)
        vectors = [
            line.fixed_s * count + line.token_s * (new + decodes) + attention
            for line in self.physics.lines
            for count in steps
        ]
        return [*vectors, *(self.physics.least_step_s * count for count in steps)]


@dataclass(frozen=True)
class Bounds:
    """What a deployment of some replicas can do at best.

    Attributes:
        prefill, decode: the kinds of engine that do the two phases; the same object where one does both.
        first_come: whether each replica serves its requests in order, and gets them in turn.
    """

    prefill: PoolBounds
    decode: PoolBounds
    first_come: bool

    @cached_property
    def _floors(self) -> dict[str, Floats]:
        """(n,) least latencies of each request on idle engines."""
        path = self.prefill.physics
        ttft = path.to_queue_s + self.prefill.prefill_s + path.first_token_s
        tokens = np.where(self.decode.decodes > 0, self.decode.decodes * np.nan_to_num(self.decode.tpot_s), 0.0)
        return {"ttft": ttft, "tpot": self.decode.tpot_s, "e2e": ttft + tokens}

    def floor(self, slo: SloSpec, min_attainment: float) -> Refuted | None:
        """The bound of ``slo`` that is broken even where every request has an engine to itself."""
        for key, (metric, statistic, bound_s) in slo.statistics().items():
            value = self._statistic(metric, statistic)
            if value > bound_s * SLACK:
                return Refuted(key, value)
        missed = np.zeros(len(self.prefill.demand), bool)
        for metric, bound_s in slo.per_request().items():
            missed |= np.nan_to_num(self._floors[metric]) > bound_s * SLACK
        if missed.sum() > (1 - min_attainment) * len(missed) + 1:
            return Refuted("attainment", 1 - float(missed.mean()))
        return None

    def _statistic(self, metric: str, statistic: str) -> float:
        if metric == "itl":
            return self.decode.physics.least_step_s
        values = self._floors[metric][~np.isnan(self._floors[metric])]
        if not len(values):
            return 0.0
        return float(values.mean() if statistic == "mean" else np.quantile(values, _LEVELS[statistic]))

    def least_replicas(self, slo: SloSpec, min_attainment: float, pools: tuple[int, int]) -> int:
        """The fewest multiples of ``pools`` (prefill and decode engines, the same ones if equal objects) with the
        throughput that the promise asks for; 1 where nothing is known."""
        demand = self.prefill.demand
        if demand.chained:
            return 1
        engines = 0.0
        for allowed, deadline_s, prompts_only in self._deadlines(slo, min_attainment):
            for busy, count in self._work(pools, prompts_only):
                for work_s in busy:
                    engines = max(engines, _load(work_s, demand.arrival_s, deadline_s, allowed) / count)
        return max(1, math.ceil(engines / SLACK - 1e-9))

    def _work(self, pools: tuple[int, int], prompts_only: bool) -> list[tuple[list[Floats], int]]:
        if self.prefill is self.decode:
            return [(self.prefill.work_s(prefill=True, decode=not prompts_only), pools[0])]
        found = [(self.prefill.work_s(prefill=True, decode=False), pools[0])]
        return found if prompts_only else [*found, (self.decode.work_s(prefill=False, decode=True), pools[1])]

    def _deadlines(self, slo: SloSpec, min_attainment: float) -> list[tuple[int, Floats, bool]]:
        """(requests that may miss it, (n,) deadline, whether it is that of the first token)."""
        arrival, decodes = self.prefill.demand.arrival_s, self.decode.decodes
        n = len(arrival)
        given: dict[str, list[tuple[int, float]]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
        for metric, statistic, bound_s in slo.statistics().values():
            shares = _OF_A_MEAN if statistic == "mean" else ((_LEVELS[statistic], 1.0),)
            given[metric] += [(n - 1 - math.floor((n - 1) * share), bound_s * times) for share, times in shares]
        missable = math.floor((1 - min_attainment) * n)
        for metric, bound_s in slo.per_request().items():
            given[metric].append((missable, bound_s))
        found = [(allowed, arrival + bound_s, True) for allowed, bound_s in given["ttft"]]
        found += [(allowed, arrival + bound_s, False) for allowed, bound_s in given["e2e"]]
        found += [
            (first + later, arrival + ttft_s + decodes * tpot_s, False)
            for first, ttft_s in given["ttft"]
            for later, tpot_s in given["tpot"]
        ]
        return [each for each in found if each[0] < n]

    def queue(self, slo: SloSpec, replicas: int) -> Refuted | None:
        """The TTFT bound that is broken although engines did nothing but compute prompts, first come first served.

        Each replica is then a single server: a departure is the later of its own arrival and the departure before,
        plus its work (Lindley), taken along the very arrivals that are simulated.
        """
        demand, path = self.prefill.demand, self.prefill.physics
        if not self.first_come or demand.chained or not demand.in_order:
            return None
        waits = np.empty(len(demand))
        for replica in range(replicas):
            mine = slice(replica, None, replicas)
            queued, work = demand.arrival_s[mine] + path.to_queue_s, self.prefill.shared_prefill_s[mine]
            done = np.cumsum(work)
            waits[mine] = done + np.maximum.accumulate(queued - done + work) - demand.arrival_s[mine]
        ttft_s = np.maximum(waits + path.first_token_s, self._floors["ttft"])
        for key, (metric, statistic, bound_s) in slo.statistics().items():
            if metric == "ttft":
                value = float(ttft_s.mean() if statistic == "mean" else np.quantile(ttft_s, _LEVELS[statistic]))
                if value > bound_s * SLACK:
                    return Refuted(key, value)
        return None


def _load(work_s: Floats, arrival_s: Floats, deadline_s: Floats, allowed: int) -> float:
    """Engines that must work all the time in the busiest of some windows.

    Whatever arrives in a window and is due in it is done in it, but for the requests that may miss their deadline: the
    largest of all are taken for those.
    """
    spared = float(np.sort(work_s)[len(work_s) - allowed :].sum()) if allowed else 0.0
    order = np.argsort(deadline_s, kind="stable")
    due, arrived, work = deadline_s[order], arrival_s[order], work_s[order]
    ends = np.quantile(due, _ENDS)
    most = 0.0
    for start in np.quantile(arrival_s, _STARTS):
        done = np.concatenate([[0.0], np.cumsum(np.where(arrived >= start, work, 0.0))])
        within = done[np.searchsorted(due, ends, side="right")] - spared
        length = ends - start
        most = max(most, float(np.max(within / np.where(length > 0, length, np.inf))))
    return most
