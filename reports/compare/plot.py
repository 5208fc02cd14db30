"""Differences as bars with their tolerance behind them, and figures over commits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from reports.compare.history import DRAWN, Entry
from reports.compare.judge import Comparison, Difference
from reports.plots import BLUE, GREEN, GREY, INK, VERMILLION, house_style, new_figure, save_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS: Final = {"regression": VERMILLION, "better": GREEN, "within": BLUE}
_MOST_BARS: Final = 40
_MOST_LINES: Final = 8
_LINES: Final = (BLUE, VERMILLION, GREEN, "#A8528A", "#8A6D00", "#4B6A88", INK, GREY)


def plot_differences(comparison: Comparison, path: Path) -> None:
    """Draw the judged figures that have a change in per cent, the largest first."""
    judged = [each for each in comparison.differences if each.tolerance is not None and each.change_pct is not None]
    judged.sort(key=lambda each: (-abs(each.change_pct or 0.0), each.case, each.metric))
    rows = judged[:_MOST_BARS][::-1]
    with house_style():
        figure = new_figure(9, 1.4 + 0.24 * max(len(rows), 3))
        axes = figure.subplots()
        axes.set_title("Change against the base" + (f": the {_MOST_BARS} largest" if len(judged) > len(rows) else ""))
        _bars(axes, rows)
        save_figure(figure, path)


def _bars(axes: Axes, rows: Sequence[Difference]) -> None:
    if not rows:
        axes.text(0.5, 0.5, "nothing to compare", transform=axes.transAxes, ha="center", color=GREY)
        return
    changes = np.array([each.change_pct or 0.0 for each in rows])
    allowed = np.array([each.tolerance.percent if each.tolerance else 0.0 for each in rows])
    reach = max(float(np.abs(changes).max()) * 1.25, float(allowed[allowed < 1e6].max(initial=0.0)) * 1.15, 0.5)
    places = np.arange(len(rows))
    axes.barh(places, 2 * np.minimum(allowed, reach), left=-np.minimum(allowed, reach), height=0.85, color="#E6EAEE")
    axes.barh(places, changes, height=0.5, color=[_COLOURS.get(each.verdict, GREY) for each in rows])
    for place, each, change in zip(places, rows, changes, strict=True):
        side, align = (4, "left") if change >= 0 else (-4, "right")
        word = f"{change:+.2f} %" + (f"  {each.verdict}" if each.verdict in ("regression", "better") else "")
        axes.annotate(word, (change, place), xytext=(side, 0), textcoords="offset points", ha=align, va="center",
                      fontsize=7, color=INK)  # fmt: skip
    names = [f"{each.metric}  {each.case[:48]}".strip() for each in rows]
    axes.set_yticks(places, names, fontsize=7)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set(xlabel="% (grey: tolerance)", xlim=(-reach * 1.3, reach * 1.3), ylim=(-0.7, len(rows) - 0.3))
    axes.grid(axis="y", visible=False)


def plot_history(entries: Sequence[Entry], path: Path) -> None:
    """Draw the figures of every case over the commits."""
    labels = list(dict.fromkeys(label for entry in entries for label in entry.cases))[:_MOST_LINES]
    with house_style():
        figure = new_figure(10, 8)
        grid = figure.subplots(3, 2, sharex=True)
        for axes, (metric, title, factor) in zip(grid.flat, DRAWN, strict=True):
            axes.set_title(title)
            for index, label in enumerate(labels):
                values = [_value(entry, label, metric, factor) for entry in entries]
                axes.plot(range(len(entries)), values, marker="o", markersize=3, color=_LINES[index], label=label)
            axes.margins(y=0.2)
            axes.set_ylim(bottom=0)
        shown = np.unique(np.linspace(0, len(entries) - 1, min(len(entries), 12)).round().astype(int))
        for axes in grid[-1]:
            axes.set_xticks(shown, [entries[index].commit[:9] for index in shown], rotation=45, ha="right", fontsize=7)
        if any(labels):
            grid[0, 0].legend(loc="best", fontsize=7)
        save_figure(figure, path)


def _value(entry: Entry, label: str, metric: str, factor: float) -> float:
    value = entry.cases.get(label, {}).get(metric)
    return float("nan") if value is None else float(value) * factor
