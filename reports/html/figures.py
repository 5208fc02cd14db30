"""The figures of a run over its requests and over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from reports.curves import gap_curve, sample_curve
from reports.html.chart import Chart, Mark, Series, figure
from reports.html.markup import Markup, tag
from reports.html.scale import Floats, axis
from reports.series import Series as OverTime
from reports.series import last_arrival_s, series_of
from reports.text import METRICS, seconds, time_unit
from sim.metrics import request_latencies
from sim.result import Result, arrays_of
from sim.summary import Latency

_POINTS: Final = 240
_DOTS: Final = 2000


def distributions(result: Result) -> Markup | None:
    """The share of requests (of gaps) within a time, with the promise as a line; None where nothing was measured."""
    latencies = request_latencies(arrays_of(result.request_columns))
    charts = []
    for metric in ("ttft", "tpot", "itl", "e2e"):
        measured: Latency = getattr(result.summary, f"{metric}_s")
        curve = gap_curve(result, _POINTS) if metric == "itl" else sample_curve(latencies[f"{metric}_s"], _POINTS)
        if curve is not None and measured.p99 is not None:
            charts.append(figure(_distribution(result, metric, measured, curve)))
    return tag("div", *charts, class_="pair") if charts else None


def _distribution(result: Result, metric: str, measured: Latency, curve: tuple[Floats, Floats]) -> Chart:
    assert measured.p50 is not None
    assert measured.p99 is not None
    assert measured.max is not None
    unit, factor = time_unit(measured.p50)
    end_s = min(measured.max * 1.02, max(measured.p99 * 1.6, measured.p50 * 2.5))
    marks = [Mark(measured.p50 * factor, f"p50 {seconds(measured.p50)}")]
    marks.append(Mark(measured.p99 * factor, f"p99 {seconds(measured.p99)}"))
    for key, (name, statistic, bound_s) in result.context.scenario.slo.statistics().items():
        if name == metric and bound_s < end_s:
            kept = result.summary.slo.met.get(key)
            words = f"{statistic} ≤ {seconds(bound_s)}: {'met' if kept else 'missed'}"
            marks.append(Mark(bound_s * factor, words, "good" if kept else "bad"))
    return Chart(
        title=METRICS[metric],
        x=axis(unit, unit, end_s * factor),
        y=axis("% within", "%", 102.0),
        series=(Series("share within", curve[0] * factor, curve[1] * 100, 1),),
        marks=tuple(marks),
    )


def over_time(result: Result) -> Markup | None:
    """Running, waiting, KV cache, token rates and preemptions over the run; None where no step ran."""
    series = series_of(result)
    if series is None:
        return None
    last = Mark(last_arrival_s(result), "last arrival")
    return tag("div", *(figure(chart) for chart in _timelines(result, series, last)), class_="pair")


def _timelines(result: Result, series: OverTime, last: Mark) -> Iterator[Chart]:
    time_s = series.middle_s
    when = axis("seconds since the first arrival", "s", float(series.edges_s[-1]))

    def chart(title: str, label: str, unit: str, *lines: Series, top: float = 0.0) -> Chart:
        high = max([top, *(float(line.y.max()) * 1.06 for line in lines)])
        return Chart(title, when, axis(label, unit, high), lines, (last,), group="time")

    yield chart(
        "Requests", "requests", "", Series("running", time_s, series.running, 1),
        Series("waiting", time_s, series.waiting, 2, dashed=True), top=1.0,
    )  # fmt: skip
    used = series.kv_utilization * 100
    full = 102.0 if used.max() > 60 else 0.0
    parts = [Series("in use", time_s, used, 3, "area"), Series("tokens", time_s, series.kv_tokens * 100, 1)]
    if series.kv_reserved.any():
        parts.append(
            Series("and tokens to come", time_s, (series.kv_tokens + series.kv_reserved) * 100, 4, dashed=True)
        )
    if series.kv_stranded.any():
        parts.append(Series("and useless gaps", time_s, used + series.kv_stranded * 100, 2, dashed=True))
    yield chart("KV cache in use", "% of memory", "%", *parts, top=full)
    output, prompt = series.output_tokens_per_s, series.prefill_tokens_per_s
    yield chart("Output tokens", "tokens/s", "tokens/s", Series("output", time_s, output, 1, "area"))
    yield chart("Prompt tokens computed", "tokens/s", "tokens/s", Series("prompt", time_s, prompt, 4, "area"))
    if result.summary.requests.preemptions:
        bars = Series("preemptions", time_s, _preemptions(result, series), 2, "bars")
        yield chart("Preemptions", "requests", "", bars, top=1.0)
    yield from _by_arrival(result, last)


def _preemptions(result: Result, series: OverTime) -> Floats:
    runs = arrays_of(result.step_columns)
    arrivals = arrays_of(result.request_columns)["arrival_s"]
    begin = float(arrivals[arrivals >= 0].min(initial=runs["start_s"].min()))
    counts, _ = np.histogram(runs["start_s"] - begin, bins=series.edges_s, weights=runs["preempted"])
    return np.asarray(counts, np.float64)


def _by_arrival(result: Result, last: Mark) -> Iterator[Chart]:
    """TTFT of each request by its arrival: a slope is overload."""
    rows = arrays_of(result.request_columns)
    ttft = request_latencies(rows)["ttft_s"]
    shown = np.flatnonzero(~np.isnan(ttft))
    if not len(shown):
        return
    shown = shown[:: -(-len(shown) // _DOTS)]
    since = rows["arrival_s"][shown] - rows["arrival_s"][rows["arrival_s"] >= 0].min()
    unit, factor = time_unit(float(np.median(ttft[shown])))
    yield Chart(
        title="Time to first token by arrival",
        x=axis("arrival, seconds since the first", "s", max(float(since.max()), last.x) * 1.01),
        y=axis(unit, unit, float(ttft[shown].max()) * factor * 1.06),
        series=(Series("request", since, ttft[shown] * factor, 1, "dots"),),
    )
