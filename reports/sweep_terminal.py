"""A sweep as a person reads it in a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from reports.sweep_plots import Panel, panels_of, short_key
from reports.text import called, count, number, percent, seconds, usd
from sim.planner.record import Record
from sim.planner.sweeping import SweepResult
from sim.scenario import SloSpec

MOST_ROWS: Final = 40
_HEADERS: Final = {"Output a GPU": "out/s/GPU", "Cost of output": "$/M out", "KV cache in use": "KV"}


def print_sweep(result: SweepResult, slo: SloSpec, out: Path | None, console: Console | None = None) -> None:
    """Print a row a point, what was refused and why, and where the whole table is."""
    console = console or Console(highlight=False)
    done = f"{count(len(result.points), 'point')}: {result.counts.get('done', 0)} simulated"
    reused = f", {result.reused} of all known from before" if result.reused else ""
    console.print(Text.assemble((result.name, "bold"), f"  {done}{reused}"))
    console.print()
    console.print(_table(result, slo, console))
    if len(result.points) > MOST_ROWS:
        where = f"all are in {out / 'sweep.parquet'}" if out else "name a folder with --out to have them all"
        console.print(Text(f"... {len(result.points) - MOST_ROWS} more; {where}", style="dim"))
    reasons: dict[str, int] = {}
    for record in result.records:
        if record.refusal is not None:
            reasons[f"{record.status}: {record.refusal}"] = reasons.get(f"{record.status}: {record.refusal}", 0) + 1
    if reasons:
        console.print()
    for reason, times in reasons.items():
        console.print(Text.assemble(("! ", "bold yellow"), f"{count(times, 'point')} {reason}"))
    if out is not None:
        console.print(Text(f"\nWritten to {out}"))


def _table(result: SweepResult, slo: SloSpec, console: Console) -> Table:
    """The widest table that the terminal holds: figures are left out from the right, never cut."""
    panels = panels_of(slo)
    for shown in range(len(panels), 0, -1):
        table = _with_columns(result, panels[:shown])
        if Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width:
            break
    return table


def _with_columns(result: SweepResult, panels: list[Panel]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for key in result.vary:
        words = short_key(key, result.vary).replace(".", "_").split("_")
        table.add_column("\n".join(words), justify="right", overflow="fold", max_width=max(24, *map(len, words)))
    for title in ("promise", *(_HEADERS.get(panel.title, panel.title) for panel in panels)):
        table.add_column(title, justify="right", no_wrap=True)
    for point, record in list(zip(result.points, result.records, strict=True))[:MOST_ROWS]:
        values = zip(result.vary, point.values, strict=True)
        cells = [called(key, value) if isinstance(value, dict) else str(value) for key, value in values]
        table.add_row(*cells, _verdict(record), *(_shown(panel, record) for panel in panels))
    return table


def _verdict(record: Record) -> Text:
    if record.summary is None:
        return Text(record.status, style="yellow")
    met = [verdict for verdict in record.summary.slo.met.values() if verdict is not None]
    if record.summary.load.overloaded:
        return Text("overloaded", style="bold red")
    if not met:
        return Text("-")
    return Text("met", style="green") if all(met) else Text("missed", style="red")


def _shown(panel: Panel, record: Record) -> str:
    value = panel.value(record)
    if value is None:
        return "-"
    value /= panel.factor
    if "_s." in panel.column:
        return seconds(value)
    return usd(value) if panel.unit.startswith("$") else percent(value) if panel.unit[0] == "%" else number(value)
