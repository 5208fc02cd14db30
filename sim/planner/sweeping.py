"""The sweep: every point of a grid simulated once, results kept as they come."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import sim
from sim.planner.executors import Executor, each_once, executor_of
from sim.planner.grid import GridPoint, grid_of
from sim.planner.measuring import Job, lost, measure
from sim.planner.record import Record
from sim.planner.store import Store
from sim.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd

POINTS: Final = "points"  # the folder of results below that of a sweep or plan
_NOT_IN_TABLE: Final = (
    "schema_version",
    "servecast_version",
    "name",
    "scenario_hash",
    "seed",
    "notes",
    "band",
    "requests.reject_reasons",
    "calibration.notes",
    "simulation.wall_s",
)


@dataclass(frozen=True)
class SweepResult:
    """A finished sweep.

    Attributes:
        name: of the scenario.
        vary: the grid, {key: values}.
        points: what was asked, the last key fastest.
        records: what became of each, in the same order.
        reused: points that were there already.
    """

    name: str
    vary: Mapping[str, Sequence[Any]]
    points: tuple[GridPoint, ...]
    records: tuple[Record, ...]
    reused: int

    @cached_property
    def table(self) -> pd.DataFrame:
        """A row a point: the varied keys, scenario_hash, status, reason, and the summary with dotted names.

        Same sweep, same table: no wall time is in it.
        """
        frame: pd.DataFrame = self.arrow().to_pandas()
        return frame

    def arrow(self) -> Any:
        """The same as a pyarrow table."""
        import pyarrow as pa

        columns = {}
        for name, values in self.columns().items():
            empty = all(value is None for value in values)
            kind = pa.string() if empty and name in ("reason", "scenario_hash") else pa.float64() if empty else None
            columns[name] = pa.array(values, kind)
        return pa.table(columns)

    def columns(self) -> dict[str, list[Any]]:
        """The table as plain columns; values of one column have one type, null where there is none."""
        rows = [_flat(record) for record in self.records]
        names = dict.fromkeys(name for row in rows for name in row)
        keys = list(self.vary)
        varied = {key: _of_one_type([point.values[i] for point in self.points]) for i, key in enumerate(keys)}
        return varied | {name: [row.get(name) for row in rows] for name in names if name not in varied}

    @property
    def counts(self) -> dict[str, int]:
        """Points by status: done, refused, failed."""
        return dict(Counter(record.status for record in self.records))


def sweep(
    scenario: Scenario,
    vary: Mapping[str, Sequence[Any]],
    *,
    store: Path | None = None,
    executor: str = "local",
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SweepResult:
    """Simulate ``scenario`` at every combination of the values in ``vary``.

    Args:
        scenario: the base; each point changes the varied keys only.
        vary: {``key.path``: values}, as in ``{"engine.max_num_seqs": [64, 128]}``.
        store: folder that holds a sweep; its finished points are reused, and each new one is kept as soon as it is
            there. None keeps nothing.
        executor, workers, address: where points run, see `sim.planner.executors.executor_of`.
        progress: called with (points over, points in all).

    Raises:
        InputError: no grid, a key that no scenario has, or an executor that is not there. A point that cannot be
            served is a row with its reason, not an error.
        KeyboardInterrupt: what had finished is in ``store``.
    """
    points = grid_of(scenario, vary)
    kept = Store(store / POINTS if store is not None else None)
    asked = Counter(point.key for point in points if point.scenario is not None)
    known = {key: record for key in asked if (record := kept.get(key, whole=True))}
    reused = over = sum(asked[key] for key in known)
    report = progress or _quiet
    report(over, asked.total())
    with executor_of(executor, workers=workers, address=address) as where:
        for _, record in measured(where, kept, _jobs(points, known)):
            known[record.key] = record
            over += asked[record.key]
            report(over, asked.total())
    records = tuple(known[point.key] if point.scenario is not None else _never_ran(point) for point in points)
    return SweepResult(scenario.name, dict(vary), tuple(points), records, reused)


def measured(executor: Executor, store: Store, jobs: list[Job]) -> Iterator[tuple[int, Record]]:
    """(number, record) of each of ``jobs`` as they finish; each record is in ``store`` before it is given out."""
    for number, record in each_once(executor, measure, jobs, lost):
        store.put(record)
        yield number, record


def _jobs(points: list[GridPoint], known: Mapping[str, Record]) -> list[Job]:
    """What is left to do: each scenario once, however often the grid names it."""
    left = {point.key: point.scenario for point in points if point.scenario is not None and point.key not in known}
    return [Job(key, scenario.given) for key, scenario in left.items()]


def _never_ran(point: GridPoint) -> Record:
    return Record(key="", servecast_version=sim.__version__, status="refused", refusal=point.refusal)


def _flat(record: Record) -> dict[str, Any]:
    """What a row of the table holds beside the varied keys."""
    row: dict[str, Any] = {
        "scenario_hash": record.key or None,
        "status": record.status,
        "reason": str(record.refusal) if record.refusal else None,
    }
    if record.summary is not None:
        summary = record.summary.model_dump(mode="json")
        for path in _NOT_IN_TABLE:
            section, _, name = path.rpartition(".")
            del (summary[section] if section else summary)[name]
        row |= dict(_leaves(summary, ""))
    return row


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of everything in a document."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _of_one_type(values: list[Any]) -> list[Any]:
    """Numbers as numbers and text as text; anything mixed or nested as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or kinds <= {bool} or kinds <= {str}:
        return [float(value) if kinds == {int, float} and value is not None else value for value in values]
    return [value if isinstance(value, str) else json.dumps(value, sort_keys=True) for value in values]


def _quiet(over: int, points: int) -> None:
    pass
