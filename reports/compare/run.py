"""What ``servecast compare`` does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from reports.compare.cases import read_cases
from reports.compare.judge import Comparison, compare_cases
from reports.compare.tolerance import read_tolerances
from reports.compare.view import as_json, as_markdown, as_text
from sim.errors import InputError
from sim.files import check_picture


def run_compare(
    base: Path,
    new: Path,
    *,
    tolerance_file: Path | None,
    tolerances: Sequence[str],
    any_change: bool,
    plot: Path | None,
    history: Path | None,
    commit: str | None,
    json_asked: bool,
    markdown_asked: bool,
) -> Comparison:
    """Compare, draw, record and print. Raises `InputError` for input that cannot be compared."""
    from reports.compare.plot import plot_differences, plot_history

    if json_asked and markdown_asked:
        raise InputError("--markdown", "given together with --json", "ask for one of them")
    if commit is not None and history is None:
        raise InputError("--commit", f"'{commit}' given without a history", "name its folder with --history")
    if plot is not None:
        check_picture(plot)
    allowed = read_tolerances(tolerance_file, tolerances)
    measured = read_cases(new)
    comparison = compare_cases(read_cases(base), measured, allowed, any_change=any_change)
    if plot is not None:
        plot_differences(comparison, plot)
    if history is not None:
        from reports.compare.history import read_history, record

        if commit is not None:
            record(history, commit, measured)
        plot_history(read_history(history), history / "history.png")
    width = shutil.get_terminal_size((120, 24)).columns
    text = as_json if json_asked else as_markdown if markdown_asked else lambda each: as_text(each, width)
    print(text(comparison), end="")
    return comparison
