"""A sweep as small multiples: one panel a figure of merit, one line a value of the second key."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import INK, MARKS, PICTURES, headline, house_style, new_figure, save_pictures
from reports.text import called
from sim.planner.record import Record
from sim.planner.sweeping import SweepResult
from sim.scenario import SloSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FIGURES: Final = 24
_SIGNS: Final = "dashed: the promise   hollow: overloaded   ×: refused"

Held = dict[str, Any]  # {key: value} of some of the varied keys


@dataclass(frozen=True, slots=True)
class Panel:
    """A column of the table as something to plot: what is shown is the column's value times ``factor``."""

    column: str
    title: str
    unit: str
    factor: float = 1.0
    bound: float | None = None  # a promise, in the column's own unit

    def value(self, record: Record) -> float | None:
        """What is shown of ``record``."""
        value: Any = record.summary
        for name in self.column.split("."):
            value = getattr(value, name, None)
        return None if value is None else value * self.factor


@dataclass(frozen=True, slots=True)
class Axis:
    """A varied key with its values in order, and what it and they are called."""

    key: str
    values: tuple[Any, ...]
    label: str
    names: dict[Any, str]

    @property
    def numeric(self) -> bool:
        """Whether the values have distances."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)

    def position(self, value: Any) -> float:
        """Where ``value`` stands on the axis."""
        return float(value) if self.numeric else float(self.values.index(value))


class _Multiples:
    """The figures of one sweep: which key plays which part, and the records by their values."""

    def __init__(self, result: SweepResult, slo: SloSpec) -> None:
        self.name = result.name
        self.panels = panels_of(slo)
        self._keys = list(result.vary)
        axes = [
            Axis(key, tuple(map(_plain, values)), short_key(key, self._keys), _names(key, values))
            for key, values in result.vary.items()
        ]
        many = [axis for axis in axes if len(axis.values) > 1] or axes[:1]
        self.along = max(many, key=lambda axis: (axis.numeric, len(axis.values)))
        others = [axis for axis in axes if axis is not self.along]
        others.sort(key=lambda axis: len(axis.values) == 1)  # a key with one value needs no line and no column
        self.lines = others[0] if others else None
        self.columns = others[1] if len(others) > 1 and len(others[1].values) > 1 else None
        self.rest = [axis for axis in others if axis not in (self.lines, self.columns)]
        self._records = {
            tuple(map(_plain, point.values)): record
            for point, record in zip(result.points, result.records, strict=True)
        }

    def record(self, held: Held) -> Record:
        """The record of a point, by the values of all keys."""
        return self._records[tuple(held[key] for key in self._keys)]

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """(file name without suffix, figure) of each combination of the keys beyond the third."""
        combinations = itertools.product(*(axis.values for axis in self.rest))
        several = sum(len(axis.values) > 1 for axis in self.rest) > 0
        for number, fixed in enumerate(itertools.islice(combinations, MOST_FIGURES)):
            held = dict(zip((axis.key for axis in self.rest), fixed, strict=True))
            yield f"sweep-{number + 1:02d}" if several else "sweep", self._figure(held)

    def _figure(self, held: Held) -> Figure:
        columns = self.columns.values if self.columns else (None,)
        rows, across = (len(self.panels), len(columns)) if self.columns else (2, 3)
        figure = new_figure(max(3.1 * across, 6.0), 2.3 * rows + 0.7)
        grid = figure.subplots(rows, across, squeeze=False, sharex=True, sharey="row" if self.columns else False)
        for number, panel in enumerate(self.panels):
            cells = grid[number] if self.columns else [grid[number // 3][number % 3]]
            for axis, third in zip(cells, columns, strict=True):
                here = held | ({self.columns.key: third} if self.columns else {})
                self._lines(axis, panel, here)
                if self.columns and number == 0:
                    above = (
                        f"{self.columns.label} {self.columns.names[third]}\n"  # a line higher than the panel's title
                    )
                    axis.set_title(above, loc="right", color=INK, fontweight="normal")
            cells[0].set_title(panel.title)
            cells[0].set_ylabel(panel.unit)
            _limit(cells[0], panel)
        for axis in grid[-1]:
            axis.set_xlabel(self.along.label)
        self._legend(figure, grid[0][0], held)
        return figure

    def _lines(self, axis: Axes, panel: Panel, held: Held) -> None:
        import matplotlib

        values = self.lines.values if self.lines else (None,)
        shades = matplotlib.colormaps["viridis"]
        for number, value in enumerate(values):
            here = held | ({self.lines.key: value} if self.lines else {})
            name = self.lines.names[value] if self.lines else ""
            colour = f"C{number}" if len(values) <= 6 else shades(0.9 * number / (len(values) - 1))
            look: dict[str, Any] = {"color": colour, "marker": MARKS[number % len(MARKS)]}
            records = [(self.along.position(x), self.record(here | {self.along.key: x})) for x in self.along.values]
            shown = [(x, y, record) for x, record in records if (y := panel.value(record)) is not None]
            over = [(x, y) for x, y, record in shown if record.summary and record.summary.load.overloaded]
            axis.plot([x for x, _, _ in shown], [y for _, y, _ in shown], markersize=4, label=name, **look)
            axis.plot([x for x, _ in over], [y for _, y in over], linestyle="", markersize=3,
                      markerfacecolor="white", markeredgecolor="none", **look)  # fmt: skip
            absent = [x for x, record in records if panel.value(record) is None]
            height = 0.03 + 0.05 * (number % 6)  # one line's marks above another's
            axis.plot(absent, [height] * len(absent), "x", color=colour, transform=axis.get_xaxis_transform())
        _ticks(axis, self.along)

    def _legend(self, figure: Figure, first: Axes, held: Held) -> None:
        fixed = "".join(f", {axis.label} {axis.names[held[axis.key]]}" for axis in self.rest)
        headline(figure, f"{self.name}{fixed}")
        if self.lines:
            handles, labels = first.get_legend_handles_labels()
            across = min(len(labels), 8)
            figure.legend(handles, labels, title=self.lines.label, loc="outside lower left", ncols=across)
            figure.text(0.99, 0.005, _SIGNS, ha="right", va="bottom", fontsize=7, color=INK)
        else:
            figure.supxlabel(_SIGNS, x=0.99, ha="right", fontsize=7, color=INK)


def write_sweep_plots(result: SweepResult, slo: SloSpec, folder: Path) -> None:
    """Write a figure for each combination of the keys beyond the third, at most `MOST_FIGURES`."""
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in PICTURES:
        for old in folder.glob(f"sweep*{suffix}"):
            old.unlink()
    if any(record.summary for record in result.records):
        with house_style():
            for name, figure in _Multiples(result, slo).figures():
                save_pictures(figure, folder / name)


def panels_of(slo: SloSpec) -> list[Panel]:
    """Latencies at the statistic that is promised (p99 where none is), then what the GPUs give for their money."""
    panels = []
    for metric, title in (("ttft", "TTFT"), ("tpot", "TPOT"), ("e2e", "E2E")):
        promised = [(s, b) for m, s, b in slo.statistics().values() if m == metric]
        statistic, bound = promised[0] if promised else ("p99", None)
        unit, factor = ("s", 1.0) if metric == "e2e" else ("ms", 1e3)
        panels.append(Panel(f"{metric}_s.{statistic}", f"{title} {statistic}", unit, factor, bound))
    return [
        *panels,
        Panel("throughput.output_tokens_per_s_per_gpu", "Output a GPU", "tokens/s"),
        Panel("cost.usd_per_million_output_tokens", "Cost of output", "$ a million tokens"),
        Panel("kv.mean_utilization", "KV cache in use", "%, mean", 100.0),
    ]


def short_key(key: str, keys: Iterable[str]) -> str:
    """As much of the end of ``key`` as tells it from the other ``keys``: ``prefill.replicas`` beside ``decode``'s."""
    parts = key.split(".")
    others = [other.split(".") for other in keys if other != key]
    length = next((n for n in range(1, len(parts)) if all(o[-n:] != parts[-n:] for o in others)), len(parts))
    return ".".join(parts[-length:])


def _names(key: str, values: Iterable[Any]) -> dict[Any, str]:
    return {_plain(value): called(key, value) if isinstance(value, dict) else str(value) for value in values}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else str(value)


def _limit(axis: Axes, panel: Panel) -> None:
    """From 0, with the promise unless that is far; where overload would press it flat, a few times the promise."""
    axis.autoscale_view()
    top = 1.05 * axis.get_ylim()[1]
    axis.set_ylim(0, top)
    if panel.bound is None:
        return
    bound = panel.bound * panel.factor
    for each in {axis, *axis.get_shared_y_axes().get_siblings(axis)}:
        each.axhline(bound, color=INK, linestyle="--", linewidth=1.1)
    if top > 6 * bound:
        axis.set_ylim(0, 4 * bound)
    elif bound < 3 * top:
        axis.set_ylim(0, max(top, 1.1 * bound))


def _ticks(axis: Axes, along: Axis) -> None:
    from matplotlib.ticker import NullLocator

    if not along.numeric:
        axis.set_xticks(range(len(along.values)), [along.names[value] for value in along.values])
        axis.set_xlim(-0.4, len(along.values) - 0.6)
        return
    low, high = min(along.values), max(along.values)
    if low > 0 and high / low >= 8:
        axis.set_xscale("log")
        axis.xaxis.set_minor_locator(NullLocator())
    if len(along.values) <= 8:
        axis.set_xticks(list(along.values), [f"{value:g}" for value in along.values])
