"""The plan: the cheapest deployment that keeps the promise, its alternatives, and what would change the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sim
from sim.errors import InputError
from sim.planner.alternatives import Alternatives, Kind
from sim.planner.bench import Bench
from sim.planner.case import Case
from sim.planner.executors import Executor, executor_of
from sim.planner.ground import Ground
from sim.planner.outcome import Counts, DayPlan, HourPlan, Plan, Question, Row
from sim.planner.relaxing import relaxations
from sim.planner.rows import refused_row
from sim.planner.runs import runs_of
from sim.planner.schedule import Schedule, schedule
from sim.planner.search import Found, cheapest
from sim.planner.space import Cell, Options, cells_of
from sim.planner.store import Store
from sim.planner.sweeping import POINTS
from sim.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlanResult:
    """A finished plan.

    Attributes:
        plan: the answer, as in ``plan.json``.
        winner: the scenario of the winner; None where nothing keeps the promise. Simulating it gives the figures of the
            plan (of more than `sim.planner.case.SLICE` replicas the plan simulates so many).
        records: the simulations, one mapping a row.
    """

    plan: Plan
    winner: Scenario | None
    records: list[dict[str, Any]]

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a kind of deployment, the winner first."""
        import pandas as pd

        return pd.json_normalize([row.model_dump(mode="json") for row in self.plan.rows])

    @cached_property
    def runs(self) -> pd.DataFrame:
        """A row a simulation: deployment, load, verdict, latencies, throughput."""
        import pandas as pd

        return pd.DataFrame(self.records)

    @cached_property
    def fronts(self) -> pd.DataFrame:
        """Points of both Pareto fronts; ``front`` says which."""
        import pandas as pd

        both = (("throughput", self.plan.throughput_front), ("cost", self.plan.cost_front))
        return pd.DataFrame([{"front": name, **point.model_dump()} for name, points in both for point in points])


def plan(
    scenario: Scenario,
    options: Options | None = None,
    *,
    rate_curve: Sequence[tuple[float, float]] | None = None,
    what_ifs: bool = True,
    store: Path | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PlanResult:
    """Search the deployments that ``options`` allow for the cheapest that keeps the promise of ``scenario``.

    Args:
        scenario: model, engine, traffic and promise; its layout does not matter.
        options: what to choose from, and the budgets.
        rate_curve: (hour, load) of a day, for a schedule of replicas.
        what_ifs: whether to ask beside the question what other traffic would change.
        store: folder whose finished points are reused and to which new ones are added, as with `sweep`.
        executor, workers, address: where simulations run, see `sim.planner.executors.executor_of`.
        progress: called with (simulations done, simulations known to be needed).

    Returns:
        The plan. Where nothing keeps the promise ``plan.winner`` is None and ``plan.relaxations`` say what would help.

    Raises:
        InputError: no promise to keep, a scenario or options that make no sense.
    """
    options = options or Options()
    if not scenario.slo.statistics() and not scenario.slo.per_request():
        raise InputError("slo", "promises nothing, so there is nothing to plan for", "for example slo: {ttft_p99_s: 1}")
    case = Case.of(scenario.resolved())
    cells = cells_of(scenario, options)
    if not cells:
        raise _nothing_to_try(options)
    kept = Store(store / POINTS if store is not None else None)
    with executor_of(executor, workers=workers, address=address) as where:
        return _Planner(case, cells, options, where, kept, progress).run(rate_curve, what_ifs)


def _nothing_to_try(options: Options) -> InputError:
    within = f"divides this model within --max-gpus {options.max_gpus}"
    if options.tensor_parallel is None and options.pipeline_parallel == Options().pipeline_parallel:
        return InputError("layout", f"no layout {within}", "raise --max-gpus")
    listed = "ask for other sizes: servecast show layouts MODEL HARDWARE lists them; or raise --max-gpus"
    return InputError("--tensor-parallel, --pipeline-parallel", f"none of the sizes {within}", listed)


class _Planner:
    """One plan in the making."""

    def __init__(
        self,
        case: Case,
        cells: list[Cell],
        options: Options,
        executor: Executor,
        store: Store,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.case, self.cells, self.options = case, cells, options
        self.ground = Ground(case.base, options)
        self.bench = Bench(executor, store, options.min_attainment, progress)
        priced = {cell.hardware: self.ground.usd_per_gpu_hour(cell) for cell in cells}
        unpriced = [name for name, price in priced.items() if price is None]
        if unpriced and (len(priced) > 1 or options.max_usd_per_hour is not None):
            raise InputError(f"hardware {unpriced[0]}", "has no price", f"give --price {unpriced[0]}=DOLLARS an hour")
        self.priced = not unpriced

    def _band(self, cell: Cell) -> float:
        """Relative error of step times: what is asked for, or that of the device, as wide as in the band of a run."""
        asked = self.options.error_band
        return self.ground.hardware(cell).step_error.p90 if asked is None else asked

    def run(self, curve: Sequence[tuple[float, float]] | None, what_ifs: bool) -> PlanResult:
        fitting = [cell for cell in self.cells if self.ground.fit(cell).refusal is None]
        found = cheapest(self.bench, self.ground, self.case, fitting)
        searched = len(self.bench.keys)
        if found.best is None:
            return self._nothing(found, fitting, searched)
        around = Alternatives(self.bench, self.ground, self.case, self.options, self._band)
        kinds = around.kinds(fitting, found)
        rows = around.rows(kinds)
        answers = around.what_ifs(kinds) if what_ifs else ()
        winner = rows[0]
        day = self._day(kinds[0], curve) if curve else None
        throughput, cost = around.fronts(kinds)
        document = Plan(
            servecast_version=sim.__version__,
            name=self.case.base.name,
            question=self._question(),
            counts=self._counts(found, fitting, searched),
            winner=winner,
            rows=tuple(rows + self._without_memory(fitting)),
            throughput_front=throughput,
            cost_front=cost,
            what_ifs=answers,
            holds_between=around.holds_between(kinds),
            prices=around.prices(rows),
            day=day,
            notes=self._notes(winner),
        )
        best = found.best.trial
        return PlanResult(document, self.case.whole(best.cell, best.replicas), runs_of(self.bench))

    def _nothing(self, found: Found, fitting: list[Cell], searched: int) -> PlanResult:
        around = Alternatives(self.bench, self.ground, self.case, self.options, self._band)
        rows = [around.refused(cell) for cell in around.largest(fitting)] + self._without_memory(fitting)
        document = Plan(
            servecast_version=sim.__version__,
            name=self.case.base.name,
            question=self._question(),
            rows=tuple(rows),
            relaxations=relaxations(self.bench, self.ground, self.case, self.options, fitting),
            counts=self._counts(found, fitting, searched),
        )
        return PlanResult(document, None, runs_of(self.bench))

    # -- parts --------------------------------------------------------------------------------------------------------

    def _without_memory(self, fitting: list[Cell]) -> list[Row]:
        """A row for each kind that fits under none of its knobs."""
        fits = {cell.group for cell in fitting}
        rows = {}
        for cell in self.cells:
            refusal = self.ground.fit(cell).refusal
            if cell.group not in fits and refusal is not None:
                rows[cell.group] = refused_row(cell, 1, self.ground, refusal.problem.split(";")[0])
        return list(rows.values())

    def _question(self) -> Question:
        load, slo, options = self.case.load, self.case.base.slo, self.options
        return Question(
            model=self.case.base.model,
            load=load.given,
            unit=load.unit,
            requests_per_run=load.requests(1.0) if load.lengthens else None,
            promise=slo.model_dump(exclude_none=True),
            min_attainment=options.min_attainment,
            hardware=tuple(dict.fromkeys(cell.hardware for cell in self.cells)),
            max_gpus=options.max_gpus,
            max_usd_per_hour=options.max_usd_per_hour,
            max_watts=options.max_watts,
            ranked_by="usd_per_hour" if self.priced else "gpus",
            error_band=max(map(self._band, self.cells)),
            seed=self.case.base.seed,
        )

    def _counts(self, found: Found, fitting: list[Cell], searched: int) -> Counts:
        most = {cell: max(0, self.ground.most_replicas(cell)) for cell in self.cells}
        return Counts(
            considered=sum(most.values()),
            kinds=len({cell.group for cell in self.cells}),
            without_memory=sum(most.values()) - sum(most[cell] for cell in fitting),
            refuted=len(found.refuted) + len(found.outbid),
            inferred=sum(outcome.inferred for outcome in found.tried + found.level) + len(found.spared),
            searched=searched,
            simulated=len(self.bench.keys),
        )

    def _day(self, winner: Kind, curve: Sequence[tuple[float, float]]) -> DayPlan:
        best = winner.best
        assert best is not None
        per_replica = self.case.load.given * winner.limits.factor / best.trial.replicas
        task = schedule(self.case, best.trial.cell, self.ground, curve, per_replica)
        found: Schedule = self.bench.together([task])[0]
        hours = tuple(
            HourPlan(start_h=h.start_h, length_h=h.length_h, load=h.load, replicas=h.replicas) for h in found.hours
        )
        return DayPlan(
            hours=hours,
            static_replicas=found.static_replicas,
            gpu_hours=found.gpu_hours,
            static_gpu_hours=found.static_gpu_hours,
            usd=found.usd,
            static_usd=found.static_usd,
            saved=found.saved,
        )

    def _notes(self, winner: Row) -> tuple[str, ...]:
        notes = list(self.case.notes)
        simulated, _ = self.case.part(winner.deployment.replicas)
        if simulated < winner.deployment.replicas:
            notes.append(
                f"Of {winner.deployment.replicas} replicas {simulated} were simulated, at their share of the traffic."
            )
        if not winner.calibrated:
            notes.append(
                f"Step times of {winner.deployment.hardware} are not calibrated: read the plan as an estimate."
            )
        for key, measured in winner.promise.items():
            if measured.high_s is not None and measured.high_s > measured.bound_s:
                notes.append(
                    f"The confidence interval of {key.removesuffix('_s')} reaches over its bound: "
                    "simulate more requests to be sure."
                )
        return tuple(notes)
