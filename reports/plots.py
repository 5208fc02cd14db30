"""The plots of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from reports.series import Series, series_of
from reports.text import seconds
from sim.metrics import request_latencies
from sim.metrics_gaps import WeightedRuns
from sim.result import Result, arrays_of
from sim.summary import Latency

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

STYLE: Final = Path(__file__).with_name("servecast.mplstyle")
BLUE, VERMILLION, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#777777"
_TITLES: Final = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Gap between tokens",
    "e2e": "End-to-end latency",
}
_POINTS: Final = 1000  # of a curve


def write_plots(result: Result, folder: Path) -> None:
    """Write ``latency_cdf.png``, ``over_time.png`` and ``latency_by_arrival.png`` (those that have data)."""
    folder.mkdir()
    with _style():
        if result.summary.e2e_s.mean is not None:
            _save(_latency_cdf(result), folder / "latency_cdf.png")
            _save(_latency_by_arrival(result), folder / "latency_by_arrival.png")
        if (series := series_of(result)) is not None:
            _save(_over_time(result, series), folder / "over_time.png")


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(fname=STYLE):
        yield


def _figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Software": None})  # no version and no date: the same run, the same bytes


def _latency_cdf(result: Result) -> Figure:
    figure = _figure(9, 6)
    figure.suptitle(f"{result.summary.name}: share of requests (tokens) served within a time", fontsize=11)
    axes = figure.subplots(2, 2)
    latencies = request_latencies(arrays_of(result.request_columns))
    for axis, (metric, title) in zip(axes.flat, _TITLES.items(), strict=True):
        axis.set_title(title)
        curve = _gap_curve(result) if metric == "itl" else _sample_curve(latencies[f"{metric}_s"])
        if curve is None:
            axis.text(0.5, 0.5, "nothing measured", transform=axis.transAxes, ha="center", color=GREY)
            continue
        unit, factor = _unit(float(np.median(curve[0])))
        axis.plot(curve[0] * factor, curve[1] * 100, color=BLUE)
        _mark_quantiles(axis, getattr(result.summary, f"{metric}_s"), factor)
        _mark_promises(axis, result, metric, factor)
        axis.set(xlabel=unit, ylabel="%", ylim=(0, 102), yticks=range(0, 101, 25))
    return figure


def _sample_curve(values_s: Floats) -> tuple[Floats, Floats] | None:
    values = np.sort(values_s[~np.isnan(values_s)])
    if not len(values):
        return None
    share = np.arange(1, len(values) + 1) / len(values)
    keep = np.unique(np.linspace(0, len(values) - 1, min(len(values), _POINTS)).round().astype(np.int64))
    return np.concatenate([values[:1], values[keep]]), np.concatenate([[0.0], share[keep]])


def _gap_curve(result: Result) -> tuple[Floats, Floats] | None:
    runs, itl = arrays_of(result.step_columns), result.summary.itl_s
    if itl.min is None or itl.max is None:
        return None
    gaps = WeightedRuns.of(
        runs["duration_s"], runs["increment_s"], runs["steps"], runs["gaps"], result.irregular_gaps_s
    )
    edges = np.linspace(itl.min, itl.max, _POINTS)
    return np.concatenate([edges[:1], edges]), np.concatenate([[0.0], gaps.cdf(edges)])


def _mark_quantiles(axis: Axes, latency: Latency, factor: float) -> None:
    for level, value in ((50, latency.p50), (90, latency.p90), (99, latency.p99)):
        if value is None:
            continue
        axis.plot([value * factor], [level], "o", color=BLUE, markersize=4)
        axis.annotate(
            f"p{level}  {seconds(value)}",
            (value * factor, level),
            xytext=(7, -3),
            textcoords="offset points",
            fontsize=8,
            va="top",
            color="#333333",
        )


def _mark_promises(axis: Axes, result: Result, metric: str, factor: float) -> None:
    for key, (name, statistic, bound_s) in result.context.scenario.slo.statistics().items():
        if name != metric:
            continue
        met = result.summary.slo.met.get(key)
        colour = GREEN if met else VERMILLION
        axis.axvline(bound_s * factor, color=colour, linestyle="--", linewidth=1.2)
        axis.annotate(
            f"{statistic} promise {'met' if met else 'missed'}",
            (bound_s * factor, 4),
            xytext=(-4, 0),
            textcoords="offset points",
            rotation=90,
            fontsize=8,
            ha="right",
            va="bottom",
            color=colour,
        )


def _over_time(result: Result, series: Series) -> Figure:
    figure = _figure(9, 7.5)
    figure.suptitle(f"{result.summary.name}: the run over time", fontsize=11)
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    time_s = series.middle_s
    top.set_title("Requests")
    top.plot(time_s, series.running, color=BLUE, label="running")
    top.plot(time_s, series.waiting, color=VERMILLION, linestyle="--", label="waiting")
    middle.set_title("KV cache in use")
    middle.fill_between(time_s, series.kv_utilization * 100, color=BLUE, alpha=0.25, linewidth=0)
    middle.plot(time_s, series.kv_utilization * 100, color=BLUE)
    middle.set(ylabel="% of blocks", ylim=(0, max(1.0, min(102.0, float(series.kv_utilization.max()) * 115))))
    bottom.set_title("Tokens a second")
    bottom.plot(time_s, series.output_tokens_per_s, color=BLUE, label="output")
    bottom.plot(time_s, series.prefill_tokens_per_s, color=VERMILLION, linestyle="--", label="prompt")
    bottom.set(xlabel="seconds since the first arrival", xlim=(0, series.edges_s[-1]))
    for axis in (top, bottom):
        axis.set_ylim(bottom=0)
        axis.legend(loc="upper right", ncols=2)
    arrivals = arrays_of(result.request_columns)["arrival_s"]
    last_s = float(arrivals.max() - arrivals[arrivals >= 0].min(initial=arrivals.max()))
    for axis in (top, middle, bottom):
        axis.axvline(last_s, color=GREY, linestyle=":", linewidth=1.2)
    top.annotate("last arrival", (last_s, 1), xycoords=("data", "axes fraction"), xytext=(-4, 4),
                 textcoords="offset points", ha="right", fontsize=8, color=GREY)  # fmt: skip
    return figure


def _latency_by_arrival(result: Result) -> Figure:
    rows = arrays_of(result.request_columns)
    latencies = request_latencies(rows)
    figure = _figure(9, 5)
    figure.suptitle(f"{result.summary.name}: latency of each request by its arrival", fontsize=11)
    axes = figure.subplots(2, 1, sharex=True)
    since_s = rows["arrival_s"] - rows["arrival_s"][rows["arrival_s"] >= 0].min()
    for axis, metric in zip(axes, ("ttft", "e2e"), strict=True):
        values = latencies[f"{metric}_s"]
        shown = np.flatnonzero(~np.isnan(values))
        shown = shown[:: max(1, len(shown) // 5000)]
        unit, factor = _unit(float(np.median(values[shown])))
        axis.plot(since_s[shown], values[shown] * factor, ".", color=BLUE, markersize=3, alpha=0.5, markeredgewidth=0)
        axis.set_title(_TITLES[metric])
        axis.set(ylabel=unit)
        axis.set_ylim(bottom=0)
    axes[1].set(xlabel="arrival, seconds since the first")
    return figure


def _unit(typical_s: float) -> tuple[str, float]:
    return ("milliseconds", 1e3) if typical_s < 1 else ("seconds", 1.0)
