"""What the sweep command does once its options are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from reports.progress import progress_bar
from reports.sweep_outputs import check_folder, write_sweep
from reports.sweep_terminal import print_sweep
from reports.text import count
from sim.planner.grid import parse_vary
from sim.planner.sweeping import POINTS, SweepResult, sweep
from sim.scenario import Scenario


def run_sweep(
    path: Path,
    vary: list[str],
    *,
    overrides: list[str],
    out: Path | None,
    executor: str,
    address: str | None,
    workers: int | None,
    as_json: bool,
) -> bool:
    """Sweep, write and print; whether any point was simulated.

    Raises `InputError`, and `KeyboardInterrupt` with a word on what is kept.
    """
    scenario = Scenario.from_file(path).with_overrides(overrides)
    grid = parse_vary(vary)
    if out is not None:
        check_folder(out)
    with point_progress(f"{scenario.name} sweep", out) as progress:
        result = sweep(
            scenario, grid, store=out, executor=executor, address=address, workers=workers, progress=progress
        )
    if out is not None:
        write_sweep(result, scenario, out)
    if as_json:
        print(json.dumps(as_document(result), indent=2))
    else:
        print_sweep(result, scenario.slo, out)
    return "done" in result.counts


def as_document(result: SweepResult) -> dict[str, object]:
    """The sweep as JSON: what was asked, how points ended, and a row a point as in the table."""
    columns = result.columns()
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return {"name": result.name, "vary": dict(result.vary), "counts": result.counts, "points": rows}


@contextmanager
def point_progress(name: str, out: Path | None) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over points; an interruption says how many are kept and where."""
    over = 0
    with progress_bar(name) as bar:

        def report(done: int, points: int) -> None:
            nonlocal over
            over = done
            if bar is not None and points:
                bar(done / points)

        try:
            yield report
        except KeyboardInterrupt:
            if out is None:
                raise
            kept = f"{count(over, 'point')} kept in {out / POINTS}; the same command goes on from there"
            raise KeyboardInterrupt(kept) from None
