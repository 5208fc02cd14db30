"""Predicted against measured, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from calibration.picture import picture
from calibration.validate import Report, Score
from sim.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS: Final = "osD^vPX*"
BAND: Final = 0.10  # drawn around the diagonal


def plot_report(report: Report, path: Path, colour_by: str = "gpu") -> None:
    """Draw predicted against measured, one panel a ``metric.statistic``, logarithmic, with the diagonal and 10 % of it.

    Args:
        report: what to draw.
        path: a .png, .svg or .pdf file.
        colour_by: the tag that chooses colour and mark; cases without it share one.

    Raises:
        InputError: nothing to draw, or the picture cannot be written.
    """
    keys = list(report.summary())
    if not keys:
        raise InputError("--plot", "there is no prediction to draw", "see which measured numbers have none")
    columns = 3 if 4 < len(keys) < 7 else min(len(keys), 4)  # no row of one
    rows = -(-len(keys) // columns)
    with picture(path, max(3.2 * columns, 4.5), 3.2 * rows + 0.6) as figure:
        _draw(figure, report, keys, (rows, columns), colour_by)


def _draw(figure: Figure, report: Report, keys: list[str], grid: tuple[int, int], colour_by: str) -> None:
    panels = figure.subplots(*grid, squeeze=False).ravel().tolist()
    groups = sorted({score.tags.get(colour_by, "") for score in report.scores})
    for panel, key in zip(panels, keys, strict=False):
        _panel(panel, [score for score in report.scores if score.key == key], key, groups, colour_by)
    for unused in panels[len(keys) :]:
        unused.set_visible(False)
    named = {
        label: handle for panel in panels for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(list(named.values()), list(named), loc="outside lower center", ncols=min(len(named), 6))


def _title(key: str) -> str:
    """``ttft_s.p99`` as TTFT p99, other names as they are without their unit."""
    metric, statistic = key.rsplit(".", 1)
    known = metric.removesuffix("_s")
    return f"{known.upper()} {statistic}" if known in ("ttft", "tpot", "itl", "e2e") else key


def _unit(key: str) -> str:
    name = key.split(".")[-1] if key.startswith(("throughput", "kv", "memory")) else key.split(".")[0]
    units = {
        "tokens_per_s": "tokens/s",
        "requests_per_s": "requests/s",
        "_blocks": "blocks",
        "_bytes": "bytes",
        "_s": "s",
    }
    return next((f" ({unit})" for end, unit in units.items() if name.endswith(end)), "")


def _panel(panel: Axes, scores: list[Score], key: str, groups: list[str], colour_by: str) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    found = [(score.measured, score.predicted, score.tags.get(colour_by, "")) for score in scores]
    points = [(x, y, group) for x, y, group in found if y is not None and y > 0]
    ends = [value for x, y, _ in points for value in (x, y)]
    low, high = min(ends, default=1.0) / 1.3, max(ends, default=1.0) * 1.3
    panel.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), aspect="equal", title=_title(key))
    unit = _unit(key)
    panel.set(xlabel=f"measured{unit}", ylabel=f"predicted{unit}")
    for axis in (panel.xaxis, panel.yaxis):
        subs = (1, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 30 * low else (1,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    line = [low, high]
    panel.fill_between(line, [v / (1 + BAND) for v in line], [v * (1 + BAND) for v in line], color="#EEEEEE", zorder=0,
                       label=f"within {BAND * 100:g} %")  # fmt: skip
    panel.plot(line, line, color="#777777", linewidth=0.9, zorder=1)
    for index, group in enumerate(groups):
        chosen = [(x, y) for x, y, of in points if of == group]
        if chosen:
            x, y = zip(*chosen, strict=True)
            mark = MARKS[index % len(MARKS)]
            panel.scatter(
                x,
                y,
                s=18,
                marker=mark,
                color=f"C{index % 6}",
                alpha=0.8,
                linewidths=0,
                label=group or ("other" if len(groups) > 1 else "a measured run"),
            )
