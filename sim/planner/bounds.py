"""What no schedule can beat: bounds that drop a deployment only where a simulation would have to refuse it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from sim.planner.demand import Demand
from sim.planner.physics import Line, Physics, windowed_keys, windowed_pairs
from sim.planner.windows import Windows
from sim.scenario import SloSpec
from sim.workload import Floats

SLACK: Final = 1.01  # a bound must be beaten by this much to count
_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


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

    def work_s(self, *, prefill: bool, decode: bool, tpot_s: float | None = None) -> Floats:
        """(vectors, n): the sum of any vector over requests is work that no engine can undercut; the largest binds.

        Steps are at least decode tokens over sequences, computed tokens over tokens, cached tokens over the cache. A
        step costs a line of the physics, or the least step.

        Args:
            tpot_s: no request takes longer a token, see `_hurried_s`.
        """
        new = self.demand.new_tokens if prefill else np.zeros(len(self.demand))
        decodes = self.decodes if decode else np.zeros(len(self.demand))
        held = windowed_keys(self.demand.own_tokens + 1, decodes, None)
        steps = np.stack(
            [
                decodes / self.limits.sequences,
                (new + decodes) / self.limits.step_tokens,
                held / self.limits.cache_tokens,
            ]
        )
        attention = (self._pairs_s if prefill else 0.0) + (self._keys_s if decode else 0.0)
        lines = [line.fixed_s * steps + (line.token_s * (new + decodes) + attention) for line in self.physics.lines]
        hurried = self._hurried_s(tpot_s) if decode and tpot_s is not None else []
        lines += [fixed_s + line.token_s * (new + decodes) + attention for line, fixed_s in hurried]
        return np.concatenate([*lines, self.physics.least_step_s * steps])

    def _hurried_s(self, tpot_s: float) -> list[tuple[Line, Floats]]:
        """[(line, (1, n) fixed time of the steps that decode each request)], if no token takes longer than ``tpot_s``.

        Request i adds at least k_i to every step that decodes it: a token's time and the keys of its prompt. A step s
        that decodes a set of them lasts d_s >= F + K_s, K_s the sum of their k_i. Their TPOT says
        sum_s K_s d_s = sum_i k_i (time that i decodes) <= tpot_s sum_s K_s. Thus sum_s K_s^2 <= (tpot_s - F) sum_s K_s
        and, by Cauchy-Schwarz there are at least sum_s K_s / (tpot_s - F) steps: as if the batch were capped.
        """
        p, first = self.physics, self.demand.new_tokens + self.demand.cached_tokens + 1
        keys_s = p.key_s * first + p.windowed_key_s * (first if p.window is None else np.minimum(first, p.window))
        return [
            (line, (line.fixed_s / (tpot_s - line.fixed_s) * (line.token_s + keys_s) * self.decodes)[None, :])
            for line in p.lines
            if line.fixed_s < tpot_s
        ]


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

    def least_replicas(self, windows: Sequence[Windows], pools: tuple[int, int]) -> int:
        """The fewest multiples of ``pools`` (prefill and decode engines, the same ones if equal objects) that can do
        what must be done in ``windows``; 1 where nothing is known."""
        engines = 0.0
        for window in windows:
            for pool, prefill, decode, count in self._phases(pools, window.prompts_only):
                work_s = pool.work_s(prefill=prefill, decode=decode, tpot_s=window.tpot_s)
                engines = max(engines, window.busy(work_s) / count)
        return max(1, math.ceil(engines / SLACK - 1e-9))

    def _phases(self, pools: tuple[int, int], prompts_only: bool) -> list[tuple[PoolBounds, bool, bool, int]]:
        """(engines, whether they prefill, whether they decode, how many) that have work for the deadlines."""
        if self.prefill is self.decode:
            return [(self.prefill, True, not prompts_only, pools[0])]
        found = [(self.prefill, True, False, pools[0])]
        return found if prompts_only else [*found, (self.decode, False, True, pools[1])]

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
