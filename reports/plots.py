"""The plots of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from reports.curves import gap_curve, sample_curve
from reports.series import Series, last_arrival_s, series_of
from reports.text import METRICS, seconds, time_unit
from sim.files import whole_file
from sim.metrics import request_latencies
from sim.result import Result, arrays_of
from sim.summary import Latency

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: Final = Path(__file__).with_name("servecast.mplstyle")
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#00785A"
MARKS: Final = "osD^vPX*<>hdp"
PICTURES: Final = (".png", ".svg")
INK, GREY = "#333333", "#777777"


def write_plots(result: Result, folder: Path) -> None:
    """Write ``latency_cdf``, ``over_time`` and ``latency_by_arrival`` (those that have data) as PNG and as SVG."""
    folder.mkdir()
    with house_style():
        if result.summary.e2e_s.mean is not None:
            save_pictures(_latency_cdf(result), folder / "latency_cdf")
            save_pictures(_latency_by_arrival(result), folder / "latency_by_arrival")
        if (series := series_of(result)) is not None:
            save_pictures(_over_time(result, series), folder / "over_time")


@contextmanager
def house_style() -> Iterator[None]:
    """Fonts, colours and lines of all figures of servecast."""
    import matplotlib

    with matplotlib.rc_context(fname=STYLE):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, inches; no window system is asked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def headline(figure: Figure, text: str) -> None:
    """What the whole figure is of, above its panels."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=11, fontweight="bold")


def save_pictures(figure: Figure, stem: Path) -> None:
    """Write the figure to ``stem`` with each suffix of `PICTURES`: to look at, and for documents."""
    for suffix in PICTURES:
        save_figure(figure, stem.with_suffix(suffix))


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure; no version and no date, so that the same run gives the same bytes."""
    import matplotlib

    _plain_ticks(figure)
    stamp = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}[path.suffix.lower()]
    with matplotlib.rc_context({"svg.hashsalt": "servecast"}), whole_file(path) as partial:
        figure.savefig(partial, metadata={stamp: None})


def _plain_ticks(figure: Figure) -> None:
    """Write 20,000 for 20000 and for 2x10^4, and name no tick between decades that its neighbours would run into."""
    from matplotlib.ticker import FuncFormatter, LogFormatter, LogLocator, NullFormatter, ScalarFormatter

    plain = FuncFormatter(lambda value, _: f"{value:,.10g}")
    for axis in (one for axes in figure.axes for one in (axes.xaxis, axes.yaxis)):
        formatter, (low, high) = axis.get_major_formatter(), axis.get_view_interval()
        if isinstance(formatter, LogFormatter):
            axis.set_major_formatter(plain)
            axis.set_minor_formatter(NullFormatter())
            if isinstance(axis.get_major_locator(), LogLocator) and high < 100 * low:
                axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        elif isinstance(formatter, ScalarFormatter) and max(abs(low), abs(high)) >= 1000:
            axis.set_major_formatter(plain)


def _latency_cdf(result: Result) -> Figure:
    figure = new_figure(9, 6)
    headline(figure, f"{result.summary.name}: share of requests (of gaps) within a time")
    latencies = request_latencies(arrays_of(result.request_columns))
    for axis, metric in zip(figure.subplots(2, 2).flat, ("ttft", "tpot", "itl", "e2e"), strict=True):
        axis.set_title(METRICS[metric])
        latency: Latency = getattr(result.summary, f"{metric}_s")
        curve = gap_curve(result) if metric == "itl" else sample_curve(latencies[f"{metric}_s"])
        if curve is None or latency.p50 is None or latency.p99 is None or latency.max is None:
            axis.text(0.5, 0.5, "nothing measured", transform=axis.transAxes, ha="center", color=GREY)
            continue
        unit, factor = time_unit(latency.p50)
        end_s = min(latency.max * 1.35, max(latency.p99 * 1.9, latency.p50 * 2.5))
        axis.plot(curve[0] * factor, curve[1] * 100, color=BLUE)
        _mark_quantiles(axis, latency, factor)
        _mark_promises(axis, result, metric, factor, end_s)
        axis.set(xlabel=unit, ylabel="%", xlim=(0, end_s * factor), ylim=(0, 102), yticks=range(0, 101, 25))
    return figure


def _mark_quantiles(axis: Axes, latency: Latency, factor: float) -> None:
    for level, value in ((50, latency.p50), (90, latency.p90), (99, latency.p99)):
        if value is None:
            continue
        axis.plot([value * factor], [level], "o", color=BLUE, markersize=4)
        text = f"p{level}  {seconds(value)}"
        axis.annotate(
            text, (value * factor, level), xytext=(7, -3), textcoords="offset points", fontsize=8, va="top", color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _mark_promises(axis: Axes, result: Result, metric: str, factor: float, end_s: float) -> None:
    """The verdict in the title row, and the bound as a line where it falls inside the plot."""
    verdicts = []
    for key, (name, statistic, bound_s) in result.context.scenario.slo.statistics().items():
        if name != metric:
            continue
        met = result.summary.slo.met.get(key)
        verdicts.append((f"{statistic} ≤ {seconds(bound_s)}: {'met' if met else 'missed'}", bool(met)))
        if bound_s < end_s:
            axis.axvline(bound_s * factor, color=GREEN if met else VERMILLION, linestyle="--", linewidth=1.2)
    if verdicts:
        colour = GREEN if all(met for _, met in verdicts) else VERMILLION
        text = ", ".join(verdict for verdict, _ in verdicts)
        axis.set_title(text, loc="right", fontsize=8, fontweight="normal", color=colour)


def _over_time(result: Result, series: Series) -> Figure:
    figure = new_figure(9, 8)
    headline(figure, f"{result.summary.name}: the run over time")
    requests, cache, output, prompt = figure.subplots(4, 1, sharex=True)
    time_s = series.middle_s
    requests.set_title("Requests")
    requests.plot(time_s, series.running, color=BLUE, label="running")
    requests.plot(time_s, series.waiting, color=VERMILLION, linestyle="--", label="waiting")
    requests.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderpad=0)
    for axis, title, unit, values in (
        (cache, "KV cache in use", "% of memory", series.kv_utilization * 100),
        (output, "Output tokens", "tokens/s", series.output_tokens_per_s),
        (prompt, "Prompt tokens computed", "tokens/s", series.prefill_tokens_per_s),
    ):
        axis.set_title(title)
        axis.fill_between(time_s, values, color=BLUE, alpha=0.2, linewidth=0, label="blocks")
        axis.plot(time_s, values, color=BLUE)
        axis.set_ylabel(unit)
    cache.plot(time_s, series.kv_tokens * 100, color=GREEN, linewidth=1.2, label="tokens")
    if series.kv_stranded.any():
        out_of_use = (series.kv_utilization + series.kv_stranded) * 100
        cache.plot(time_s, out_of_use, color=VERMILLION, linestyle="--", linewidth=1.2, label="and gaps too small")
    cache.legend(loc="lower right", bbox_to_anchor=(1.0, 0.97), ncols=2, borderpad=0)
    last_s = last_arrival_s(result)
    for axis in (requests, cache, output, prompt):
        axis.set_ylim(bottom=0)
        axis.axvline(last_s, color=GREY, linestyle=":", linewidth=1.2)
    if float(series.kv_utilization.max()) > 0.8:
        cache.set(ylim=(0, 102), yticks=range(0, 101, 25))
    requests.annotate("last arrival", (last_s, 1), xycoords=("data", "axes fraction"), xytext=(-4, -4),
                      textcoords="offset points", ha="right", va="top", fontsize=8, color=GREY)  # fmt: skip
    prompt.set(xlabel="seconds since the first arrival", xlim=(0, series.edges_s[-1]))
    return figure


def _latency_by_arrival(result: Result) -> Figure:
    rows = arrays_of(result.request_columns)
    latencies = request_latencies(rows)
    figure = new_figure(9, 5)
    headline(figure, f"{result.summary.name}: latency of each request by its arrival")
    axes = figure.subplots(2, 1, sharex=True)
    since_s = rows["arrival_s"] - rows["arrival_s"][rows["arrival_s"] >= 0].min()
    for axis, metric in zip(axes, ("ttft", "e2e"), strict=True):
        values = latencies[f"{metric}_s"]
        shown = np.flatnonzero(~np.isnan(values))
        shown = shown[:: max(1, len(shown) // 5000)]
        unit, factor = time_unit(float(np.median(values[shown])))
        axis.plot(since_s[shown], values[shown] * factor, ".", color=BLUE, markersize=4.5, alpha=0.5, markeredgewidth=0,
                  rasterized=True)  # fmt: skip
        axis.set_title(METRICS[metric])
        axis.set(ylabel=unit)
        axis.set_ylim(bottom=0)
    axes[1].set(xlabel="arrival, seconds since the first", xlim=(0, None))
    return figure
