"""Where the time of the steps goes, and how near the steps come to what the hardware can do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reports.families import by_family
from reports.html.bars import WIDTH, Bar, Part, stacked
from reports.html.chart import Chart, Series, figure
from reports.html.markup import Markup, join, table, tag
from reports.html.scale import Axis, Floats
from reports.text import percent, seconds
from sim.metrics_steps import middle_step, row_times_s
from sim.result import Result, StepWork, arrays_of

Arrays = Mapping[str, NDArray[Any]]

#: Rows of steps that are priced or drawn; more are sampled evenly over the time they take.
SAMPLE: Final = 3000
DOTS: Final = 400

_COLOURS: Final = {
    "matrix products": 1,
    "attention": 2,
    "communication": 3,
    "experts": 4,
    "drafting": 4,
    "logits and sampling": 5,
    "element-wise": 6,
    "host": 0,
}


def operators_section(result: Result) -> Markup | None:
    """Step time by operator; None where step times have no parts or no step ran."""
    runs = arrays_of(result.step_columns)
    if result.context.breakdown is None or not len(runs["steps"]):
        return None
    kinds = _by_kind(result, runs)
    bars = [Bar(label, _parts(times)) for label, times in kinds.items() if times]
    total = kinds["all steps"]
    whole = sum(total.values())
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    rows = [
        (name.replace("_", " "), percent(value / whole), *(_share(kinds[kind], name) for kind in list(kinds)[1:]))
        for name, value in ordered
        if value > 0
    ]
    return join(
        [
            stacked("Time of the steps by what they do", bars, seconds, shares=True),
            tag("details", tag("summary", "By operator"), table(("operator", *kinds), rows)),
        ]
    )


def _by_kind(result: Result, runs: Arrays) -> dict[str, dict[str, float]]:
    """Seconds of the run by operator: of all steps, of those that only decode, of those with prompt tokens."""
    breakdown = result.context.breakdown
    assert breakdown is not None
    times = row_times_s(runs)
    chosen, weights = sample(times, SAMPLE)
    shape = {name: np.rint(values[chosen]).astype(np.int64).tolist() for name, values in middle_step(runs).items()}
    kinds: dict[str, dict[str, float]] = {"all steps": {}, "decode only": {}, "with prefill": {}}
    for index, weight_s in enumerate(weights.tolist()):
        parts = breakdown({name: values[index] for name, values in shape.items()})
        length = sum(parts.values())
        kind = "with prefill" if shape["prefill_tokens"][index] else "decode only"
        for name, value in parts.items() if length > 0 else ():
            for where in ("all steps", kind):
                kinds[where][name] = kinds[where].get(name, 0.0) + value / length * weight_s
    return kinds


def sample(times_s: Floats, most: int) -> tuple[NDArray[np.int64], Floats]:
    """Rows, and the seconds that each stands for: every row, or ``most`` taken evenly over the time of all."""
    if len(times_s) <= most:
        return np.arange(len(times_s)), times_s
    upto = np.cumsum(times_s)
    at = (np.arange(most) + 0.5) / most * upto[-1]
    rows, hits = np.unique(np.searchsorted(upto, at).clip(max=len(times_s) - 1), return_counts=True)
    return rows.astype(np.int64), np.asarray(hits * (float(upto[-1]) / most), np.float64)


def _parts(times: Mapping[str, float]) -> tuple[Part, ...]:
    return tuple(Part(name, value, _COLOURS[name]) for name, value in by_family(times).items())


def _share(parts: Mapping[str, float], name: str) -> str:
    whole = sum(parts.values())
    return percent(parts.get(name, 0.0) / whole) if whole else "-"


def roofline_section(result: Result) -> Markup | None:
    """Floating-point operations a second against operations a byte, under the roof of the datasheet."""
    runs, work = arrays_of(result.step_columns), result.context.work
    if work is None or not len(runs["steps"]):
        return None
    shape, step_s = middle_step(runs), row_times_s(runs) / runs["steps"]
    flops, moved = work.flops(shape), work.bytes_moved(shape)
    chosen, _ = sample(row_times_s(runs), DOTS)
    chosen = chosen[(flops[chosen] > 0) & (moved[chosen] > 0) & (step_s[chosen] > 0)]
    if not len(chosen):
        return None
    intensity, rate = flops[chosen] / moved[chosen], flops[chosen] / step_s[chosen]
    prefill = shape["prefill_tokens"][chosen] > 0
    low, high = 10.0 ** np.floor(np.log10(intensity.min())), 10.0 ** np.ceil(np.log10(max(intensity.max(), 1e3)))
    ridge = work.peak_flops_per_s / work.peak_bytes_per_s
    xs = np.array([low, min(max(ridge, low), high), high])
    chart = Chart(
        title="Roofline of the engine's GPUs",
        x=Axis("operations a byte of GPU memory", "FLOP/byte", float(low), float(high), log=True),
        y=_rate_axis(rate, work),
        series=(
            Series("datasheet roof", xs, np.minimum(work.peak_flops_per_s, xs * work.peak_bytes_per_s), 3),
            Series("decode-only steps", intensity[~prefill], rate[~prefill], 1, "dots"),
            Series("steps with prefill", intensity[prefill], rate[prefill], 2, "dots"),
        ),
        width=WIDTH,
        height=340,
        note="Each dot is a step, picked evenly over the time the steps take. Model FLOPs and bytes (weights, keys and "
        "values) as in MFU and MBU; the roof is the datasheet's peak and memory bandwidth.",
    )
    return figure(chart)


def _rate_axis(rate: Floats, work: StepWork) -> Axis:
    low = 10.0 ** np.floor(np.log10(rate.min()))
    high = 10.0 ** np.ceil(np.log10(work.peak_flops_per_s * 1.05))
    return Axis("FLOP/s", "FLOP/s", float(low), float(high), log=True)
