"""Simulations of a plan: in rounds, each run once, and only those that nothing cheaper can settle."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from sim.planner.case import Case
from sim.planner.executors import Executor
from sim.planner.measuring import Job
from sim.planner.record import Record
from sim.planner.space import Cell
from sim.planner.store import Store
from sim.planner.sweeping import measured
from sim.planner.verdict import Verdict, judge

Result = TypeVar("Result")
CLEAR: Final = 1.02  # times its bound: beyond that a statistic is broken clearly enough to speak of other deployments


class Trial(NamedTuple):
    """A deployment under a load.

    Attributes:
        factor: of the case's load.
        whole: never stopped early.
        ceiling: stopped once a statistic of the promise is certain to exceed its bound so many times.
    """

    case: Case
    cell: Cell
    replicas: int
    factor: float = 1.0
    whole: bool = False
    ceiling: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a trial. ``inferred``: known from the run of another cell that is step by step the same."""

    trial: Trial
    record: Record
    verdict: Verdict
    inferred: bool = False


#: Asks for trials, is sent their outcomes in the same order, and returns what it found.
Task = Generator[list[Trial], list[Outcome], Result]


class Bench:
    """Runs trials.

    Args:
        executor: where.
        store: what is known already, and where new results go.
        min_attainment: share of requests that must meet the bounds on each request.
        progress: called with (simulations done, simulations known to be needed).
    """

    def __init__(
        self,
        executor: Executor,
        store: Store,
        min_attainment: float,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._executor = executor
        self._store = store
        self._min_attainment = min_attainment
        self._progress = progress
        self.keys: dict[str, None] = {}  # names of all simulations asked for, in order; stored ones count as well
        self.outcomes: list[Outcome] = []

    def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The outcomes of ``trials``, in order. The same scenario is simulated once."""
        jobs = [self._job(trial) for trial in trials]
        records = {job.name: record for job in jobs if (record := self._known(job)) is not None}
        self.keys |= dict.fromkeys(record.name for record in records.values())
        left = list({job.name: job for job in jobs if job.name not in records}.values())
        needed = len(self.keys) + len(left)
        for number, record in measured(self._executor, self._store, left):
            records[left[number].name] = record
            self.keys[record.name] = None
            if self._progress is not None:
                self._progress(len(self.keys), max(needed, len(self.keys)))
        found = [
            Outcome(trial, records[job.name], judge(records[job.name], trial.case.slo, self._min_attainment))
            for trial, job in zip(trials, jobs, strict=True)
        ]
        self.outcomes += found
        return found

    def _job(self, trial: Trial) -> Job:
        scenario = trial.case.scenario(trial.cell, trial.replicas, trial.factor)
        return Job(scenario.scenario_hash, scenario.given, None if trial.whole else self._min_attainment, trial.ceiling)

    def _known(self, job: Job) -> Record | None:
        return self._store.get(job.key, whole=job.min_attainment is None, ceilings=(job.ceiling, CLEAR))

    def together(self, tasks: Sequence[Task[Result]]) -> list[Result]:
        """Run tasks side by side: each round holds what every one of them asks for next.

        Which simulations run depends on their results alone, never on how many workers there are.
        """
        results: dict[int, Result] = {}
        waiting: dict[int, list[Trial]] = {}
        for number, task in enumerate(tasks):
            _advance(task, number, None, waiting, results)
        while waiting:
            asked = list(waiting.items())
            outcomes = iter(self.run([trial for _, trials in asked for trial in trials]))
            waiting = {}
            for number, trials in asked:
                _advance(tasks[number], number, [next(outcomes) for _ in trials], waiting, results)
        return [results[number] for number in range(len(tasks))]


def _advance(
    task: Task[Any], number: int, outcomes: Any, waiting: dict[int, list[Trial]], results: dict[int, Any]
) -> None:
    try:
        waiting[number] = task.send(outcomes)
    except StopIteration as end:
        results[number] = end.value
