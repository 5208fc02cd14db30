"""The report of `servecast validate` in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from calibration.validate import Report, Score

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GOOD_PCT: Final = 5.0  # up to here an error is green,
POOR_PCT: Final = 10.0  # from here on red


def print_report(report: Report, console: Console | None = None, *, every_case: bool = True) -> None:
    """Print the accuracy by metric and, unless told otherwise, every score."""
    from rich.console import Console

    console = console or Console(highlight=False)
    if every_case:
        console.print(_case_table(report))
    console.print(_summary_table(report))
    missing = report.unpredicted()
    if missing:
        first = missing[0]
        console.print(f"! {len(missing)} measured numbers have no prediction, the first: {first.name} {first.key}")


def _summary_table(report: Report) -> Table:
    from rich.table import Table

    title = "Error by metric in per cent: size (median, mean), signed mean (bias), worst"
    table = Table(title=title, title_justify="left")
    table.add_column("metric", no_wrap=True)
    for head in ("n", "median", "mean", "bias", "worst"):
        table.add_column(head, justify="right")
    table.add_column("worst case", overflow="fold")
    for key, found in report.summary().items():
        numbers = (f"{found.mdape:.1f}", f"{found.mape:.1f}", f"{found.bias:+.1f}", f"{found.worst:+.1f}")
        table.add_row(key, str(found.n), *numbers, found.worst_case)
    return table


def _case_table(report: Report) -> Table:
    from rich.table import Table

    table = Table(title="Every measured number", title_justify="left")
    table.add_column("case", overflow="fold")
    table.add_column("metric", no_wrap=True)
    for head in ("measured", "predicted", "error %"):
        table.add_column(head, justify="right")
    shown = ""
    for score in report.scores:
        name, shown = ("" if score.name == shown else score.name), score.name
        table.add_row(name, score.key, *_numbers(score))
    return table


def _numbers(score: Score) -> tuple[str, str, str]:
    if score.predicted is None or score.error_pct is None:
        return _digits(score.measured), "-", "-"
    size = abs(score.error_pct)
    colour = "green" if size <= GOOD_PCT else "yellow" if size <= POOR_PCT else "red"
    return _digits(score.measured), _digits(score.predicted), f"[{colour}]{score.error_pct:+.1f}[/]"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
