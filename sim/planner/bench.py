"""Simulations of a plan: in rounds, each run once, and only those that nothing cheaper can settle."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sim.planner.case import Case
from sim.planner.executors import Executor
from sim.planner.measuring import Job
from sim.planner.record import Record
from sim.planner.space import Cell
from sim.planner.store import Store
from sim.planner.sweeping import measured
from sim.planner.verdict import Verdict, judge

Result = TypeVar("Result")


class Trial(NamedTuple):
    """A deployment under a load: ``factor`` times that of the case. ``whole``: never stopped early."""

    case: Case
    cell: Cell
    replicas: int
    factor: float = 1.0
    whole: bool = False


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
        self.keys: dict[str, None] = {}  # of every simulation asked for, in order; stored ones count as well
        self.outcomes: list[Outcome] = []

    def run(self, trials: Sequence[Trial]) -> list[Outcome]:
        """The outcomes of ``trials``, in order. The same scenario is simulated once."""
        scenarios = [trial.case.scenario(trial.cell, trial.replicas, trial.factor) for trial in trials]
        keys = [scenario.scenario_hash for scenario in scenarios]
        whole = {key for key, trial in zip(keys, trials, strict=True) if trial.whole}
        records = {key: record for key in keys if (record := self._store.get(key, whole=key in whole))}
        jobs = {
            key: Job(key, scenario.given, None if key in whole else self._min_attainment)
            for key, scenario in zip(keys, scenarios, strict=True)
            if key not in records
        }
        self.keys |= dict.fromkeys(keys)
        done = len(self.keys) - len(jobs)
        for record in measured(self._executor, self._store, list(jobs.values())):
            records[record.key] = record
            done += 1
            if self._progress is not None:
                self._progress(done, len(self.keys))
        found = [
            Outcome(trial, records[key], judge(records[key], trial.case.slo, self._min_attainment))
            for key, trial in zip(keys, trials, strict=True)
        ]
        self.outcomes += found
        return found

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
