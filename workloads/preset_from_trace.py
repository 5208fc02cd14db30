"""Figures of a trace as a preset: ``python -m workloads.preset_from_trace TRACE --name NAME ...`` prints it.

Lengths become quantiles, enough of them that the mean of the line through them is within 0.3 % of the trace's. Arrivals
become a rate and a coefficient of variation of the gaps; where the trace records time too coarsely for gaps, the
coefficient is the square root of the dispersion of counts (variance over mean in windows of ten time units), which it
tends to for any renewal process. With ``--sessions``, a request that repeats the whole prompt of an earlier one (to the
block) and goes on is the next turn of its session; text that most requests begin with is their common prefix.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sim.errors import InputError
from sim.workload import Floats, Ints, Workload
from workloads.describe import describe_workload
from workloads.spec import TraceSpec
from workloads.traces import read_trace

_GRID: Final = (0, 0.01, 0.02, 0.05, *(k / 20 for k in range(2, 19)), 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.999, 1)
_MEAN_TOLERANCE: Final = 0.003
_COARSE: Final = 0.5
_STEPS_UP_TO: Final = 0.98


@dataclass(frozen=True, slots=True)
class Conversations:
    """Who continues whom.

    Attributes:
        parent: (n,) the request continued, -1 for an opening.
        turn: (n,) 0 for an opening.
        common_tokens: length of the text that most requests begin with.
    """

    parent: Ints
    turn: Ints
    common_tokens: int


def quantile_points(values: Ints) -> list[list[float]]:
    """[probability, value] pairs whose linear interpolation has the mean of ``values`` within 0.3 %."""
    ordered = np.sort(values).astype(np.float64)
    points = list(_GRID)
    while True:
        at = np.rint(np.quantile(ordered, points))
        error = _segment_errors(ordered, np.array(points), at)
        if abs(error.sum()) <= _MEAN_TOLERANCE * ordered.mean() or len(points) > 60:
            return [[round(p, 6), int(v)] for p, v in zip(points, at, strict=True)]
        worst = int(np.argmax(np.abs(error)))
        points.insert(worst + 1, (points[worst] + points[worst + 1]) / 2)


def _segment_errors(ordered: Floats, points: Floats, at: Floats) -> Floats:
    """What each segment of the line adds to the mean beyond what the values there do."""
    total = np.concatenate(([0.0], np.cumsum(ordered))) / len(ordered)
    true = np.diff(np.interp(points * len(ordered), np.arange(len(total)), total))
    return np.asarray(np.diff(points) * (at[1:] + at[:-1]) / 2 - true)


def gap_variation(arrival_s: Floats) -> float:
    """Coefficient of variation of the gaps, from counts where most gaps are 0 (time recorded in ticks)."""
    gaps = np.diff(arrival_s)
    if (gaps == 0).mean() < _COARSE:
        return float(gaps.std() / gaps.mean())
    window_s = 10 * float(np.median(gaps[gaps > 0]))
    counts = np.bincount((arrival_s / window_s).astype(np.int64))[:-1]
    return float(np.sqrt(counts.var() / counts.mean()))


def conversations(workload: Workload) -> Conversations:
    """Which request continues which, from the shared text; raises `InputError` where none does."""
    spans = workload.prefixes
    if spans is None:
        raise InputError("--sessions", "no two prompts of this trace share text", "leave it out")
    n = len(workload)
    prompt_tokens, output_tokens = workload.prompt_tokens.tolist(), workload.output_tokens.tolist()
    block_tokens = int(np.gcd.reduce(spans.end[spans.end < np.repeat(workload.prompt_tokens, np.diff(spans.offsets))]))
    holders = np.bincount(spans.node)
    common = {int(node) for node in np.flatnonzero(holders > n / 2)}
    common_tokens = max((int(spans.end[spans.node == node].max()) for node in common), default=0)
    latest: dict[int, int] = {}
    parent = np.full(n, -1, dtype=np.int64)
    turn = np.zeros(n, dtype=np.int64)
    for request in range(n):
        rows = [(node, end) for node, end in spans.of(request) if node not in common]
        held = [(latest[node], end) for node, end in rows if node in latest]
        if held:
            before, end = held[-1]
            goes_on = prompt_tokens[request] > prompt_tokens[before] + output_tokens[before]
            if goes_on and end > prompt_tokens[before] - block_tokens:
                parent[request], turn[request] = before, turn[before] + 1
        latest |= dict.fromkeys((node for node, _ in rows), request)
    return Conversations(parent, turn, common_tokens)


def workload_figures(workload: Workload, gaps: str, rate_per_s: float | None, sessions: bool) -> dict[str, Any]:
    """The workload section that mimics ``workload``."""
    talk = conversations(workload) if sessions else None
    opening = np.ones(len(workload), dtype=bool) if talk is None else talk.parent < 0
    section: dict[str, Any] = {"num_requests": len(workload)}
    if rate_per_s is not None:
        section["arrivals"] = {"process": "poisson", "rate_per_s": rate_per_s}
    else:
        opening_s = workload.arrival_s[opening]
        rate = (len(opening_s) - 1) / float(opening_s[-1] - opening_s[0])
        section["arrivals"] = {"process": gaps, "rate_per_s": _round(rate)}
        if gaps != "poisson":
            section["arrivals"]["cv"] = _round(gap_variation(opening_s))
    section["prompt_tokens"] = _empirical(workload.prompt_tokens[opening])
    section["output_tokens"] = _empirical(workload.output_tokens)
    if talk is not None:
        if talk.common_tokens:
            section["prefixes"] = {"groups": 1, "prefix_tokens": talk.common_tokens}
        section["sessions"] = _session_figures(workload, talk)
    return section


def _session_figures(workload: Workload, talk: Conversations) -> dict[str, Any]:
    """Turns, new text and pauses of sessions.

    Those who go on long write less a turn than the others, which independent draws do not know: the new text is scaled
    so that the mean prompt is the trace's. With T turns, prompts have the mean
    opening + (output + new text) E[T (T - 1) / 2] / E[T].
    """
    later = np.flatnonzero(talk.parent >= 0)
    before = talk.parent[later]
    said = workload.prompt_tokens[before] + workload.output_tokens[before]
    new = workload.prompt_tokens[later] - said
    pause_s = workload.arrival_s[later] - workload.arrival_s[before]
    grown = workload.prompt_tokens.mean() - workload.prompt_tokens[talk.parent < 0].mean()
    wanted = grown / talk.turn.mean() - workload.output_tokens.mean()
    new = np.maximum(np.rint(new * (wanted / new.mean())), 1).astype(np.int64)
    reached = np.bincount(talk.turn)
    turns = np.repeat(np.arange(1, len(reached) + 1), reached - np.append(reached[1:], 0))
    return {
        "turns": _steps(turns),
        "followup_tokens": _empirical(new),
        "think_s": _round(float(pause_s.mean())),
        "think_cv": _round(float(pause_s.std() / pause_s.mean())),
    }


def _empirical(values: Ints) -> dict[str, Any]:
    return {"distribution": "empirical", "quantiles": quantile_points(values)}


def _steps(values: Ints) -> dict[str, Any]:
    """Small whole numbers: a point at each end of a value's share up to 0.98, then a line through the tail."""
    reached = np.cumsum(np.bincount(values)[1:]) / len(values)
    points: list[list[float]] = []
    low = 0.0
    for value, high in enumerate(reached.tolist(), start=1):
        if low < _STEPS_UP_TO:
            points += [[round(low + 1e-5 * bool(points), 5), value], [round(high, 5), value]]
            low = high
    tail = [p for p in (0.99, 0.995, 0.9975, 0.999, 0.9995, 1) if p > low + 1e-5]
    points += [[p, int(np.quantile(values, p))] for p in tail]
    return {"distribution": "empirical", "quantiles": points}


def _round(value: float) -> float:
    return float(f"{value:.4g}")


def trace_figures(workload: Workload) -> dict[str, float]:
    """Figures of the trace itself, to hold the preset against."""
    figures = describe_workload(workload)
    own = {"requests": figures["requests"], "span_s": _round(figures["span_s"])}
    if figures["rate_per_s"] is not None:
        own |= {"rate_per_s": _round(figures["rate_per_s"]), "gap_cv": _round(figures["gap_cv"])}
    for name in ("prompt_tokens", "output_tokens"):
        own |= {f"{name}_{key}": _round(figures[name][key]) for key in ("mean", "cv", "p50", "p99")}
    return own | {"prefix_share": _round(figures["prefix_share"])}


def preset_text(document: dict[str, Any]) -> str:
    """The preset as YAML, a list of quantiles on one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    Dumper.add_representer(
        list,
        lambda dumper, items: dumper.represent_sequence(
            "tag:yaml.org,2002:seq", items, flow_style=bool(items) and not isinstance(items[0], str)
        ),
    )
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=110, allow_unicode=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the preset of a trace as YAML."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    for name in ("name", "title", "source", "licence"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--caveat", action="append", default=[])
    parser.add_argument("--gaps", choices=("poisson", "gamma", "weibull"), default="gamma")
    parser.add_argument("--rate", type=float, help="Poisson arrivals at this rate, for a trace without arrival times")
    parser.add_argument("--sessions", action="store_true", help="prompts that go on from earlier ones become turns")
    options = parser.parse_args(arguments)
    workload = read_trace(TraceSpec(path=options.trace))
    document = {
        "name": options.name,
        "title": options.title,
        "source": options.source,
        "licence": options.licence,
        "trace": trace_figures(workload),
        "caveats": options.caveat,
        "workload": workload_figures(workload, options.gaps, options.rate, options.sessions),
    }
    sys.stdout.write(preset_text(document))


if __name__ == "__main__":
    main()
