"""One question to a plan: a scenario, its traffic and its promise; what-ifs are cases of their own."""

from __future__ import annotations

from dataclasses import dataclass, field

from sim.planner.demand import Demand
from sim.planner.load import Load
from sim.planner.space import Cell
from sim.planner.windows import Windows, windows_of
from sim.scenario import Scenario, SloSpec
from workloads import build_workload

SLICE = 8  # replicas of a larger deployment that are simulated, at their share of the traffic


@dataclass(eq=False)
class Case:
    """A base scenario with the load of its workload. Two cases are the same only if they are one object.

    Attributes:
        base: its workload and promise are what deployments must serve.
        load: of that workload.
        times: every bound of the promise is divided by this, and the traffic multiplied: deployments whose steps all
            take ``times`` as long behave like that.
        share: every bound on a statistic is multiplied by this; for bounds alone, never simulated.
    """

    base: Scenario
    load: Load
    times: float = 1.0
    share: float = 1.0
    _demands: dict[tuple[float, bool], Demand] = field(default_factory=dict, repr=False)
    _windows: dict[tuple[float, bool, float], list[Windows]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, base: Scenario) -> Case:
        """The case of a scenario. Raises `InputError` where its workload cannot be built."""
        return cls(base, Load.of(base))

    @property
    def mean_tokens(self) -> float:
        """Prompt and output of a request together, on average."""
        demand = self.demand(1, 1.0, prefix_caching=False)
        return float((demand.new_tokens + demand.output_tokens).mean())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know about the traffic as simulated."""
        count, longer = self.base.workload.num_requests, self.load.requests(1.0)
        if not self.load.lengthens or count is None or longer is None or longer == count:
            return ()
        return (
            f"Each run has {longer:,} requests instead of {count:,}: arrivals must last several times as long as a "
            "request may take, or the servers are never as full as they will be.",
        )

    def slower(self, times: float) -> Case:
        """The same question to machines whose steps take ``times`` as long.

        Stretching all times of a run by one factor changes no decision of a scheduler. So serving traffic of rate r
        within bounds b on such machines is serving rate r * times within b / times on those of the profile.
        """
        return Case(self.base, self.load, times)

    def tighter(self, share: float) -> Case:
        """The same traffic under a promise whose statistics must stay within ``share`` of their bounds."""
        return Case(self.base, self.load, self.times, share)

    @property
    def slo(self) -> SloSpec:
        """The promise, bounds divided by ``times``, those on statistics multiplied by ``share``."""
        if self.times == self.share == 1.0:
            return self.base.slo
        shares = dict.fromkeys(self.base.slo.statistics(), self.share)
        bounds = self.base.slo.model_dump(exclude_none=True)
        return SloSpec.parse({key: bound * shares.get(key, 1.0) / self.times for key, bound in bounds.items()})

    def scenario(self, cell: Cell, replicas: int, factor: float = 1.0) -> Scenario:
        """What is simulated for ``replicas`` of ``cell`` at ``factor`` times the load: at most `SLICE` of them."""
        simulated, share = self.part(replicas)
        base = self.base if self.times == 1.0 else self.base.model_copy(update={"slo": self.slo})
        return cell.scenario(base, simulated, self.load.at(factor * share * self.times))

    def whole(self, cell: Cell, replicas: int) -> Scenario:
        """All of ``replicas`` under all of the load: what to deploy."""
        return cell.scenario(self.base, replicas, self.load.at(1.0))

    def part(self, replicas: int) -> tuple[int, float]:
        """How many of ``replicas`` are simulated, and their share of the traffic."""
        simulated = min(replicas, SLICE)
        return simulated, simulated / replicas

    def demand(self, replicas: int, factor: float, *, prefix_caching: bool) -> Demand:
        """What the simulated part of ``replicas`` is asked to do."""
        share = factor * self.part(replicas)[1] * self.times
        found = self._demands.get((share, prefix_caching))
        if found is None:
            workload = build_workload(self.load.at(share), self.base.seed)
            found = self._demands[share, prefix_caching] = Demand.of(workload, prefix_caching=prefix_caching)
        return found

    def windows(self, replicas: int, factor: float, min_attainment: float, *, prefix_caching: bool) -> list[Windows]:
        """The windows of that part of the run."""
        key = (factor * self.part(replicas)[1] * self.times, prefix_caching, min_attainment)
        if key not in self._windows:
            demand = self.demand(replicas, factor, prefix_caching=prefix_caching)
            self._windows[key] = windows_of(demand, self.slo, min_attainment)
        return self._windows[key]
