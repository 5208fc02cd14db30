"""What a workload asks of the servers, in a few figures."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sim.workload import Floats, Ints, Workload

_QUANTILES: Final = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


def describe_workload(workload: Workload) -> dict[str, Any]:
    """Figures of a workload, in plain Python numbers; None where a figure makes no sense.

    Keys: ``requests``; ``sessions`` (None without); ``arrivals``, the requests that have a time of their own, with
    ``span_s`` (first to last of them), ``rate_per_s`` and ``gap_cv`` (coefficient of variation of their gaps);
    ``prompt_tokens`` and ``output_tokens`` (total, mean, cv, min, quantiles, max); ``prefix_share``, the fraction of
    prompt tokens that a cache without bound would hit; ``notes``.
    """
    timed = workload.arrival_s[~np.isnan(workload.arrival_s)]
    sessions = workload.session_id
    return {
        "requests": len(workload),
        "sessions": None if sessions is None else len(np.unique(sessions[sessions >= 0])),
        "arrivals": len(timed),
        **_arrival_figures(timed),
        "prompt_tokens": _length_figures(workload.prompt_tokens),
        "output_tokens": _length_figures(workload.output_tokens),
        "prefix_share": prefix_share(workload),
        "notes": list(workload.notes),
    }


def prefix_share(workload: Workload) -> float:
    """The fraction of prompt tokens that a cache without bound would hit, if every earlier request had been served.

    Counted in tokens: an engine hits whole blocks and computes at least a prompt's last token, so it hits less.
    """
    if workload.prefixes is None:
        return 0.0
    return float(shareable_tokens(workload).sum() / workload.prompt_tokens.sum())


def shareable_tokens(workload: Workload) -> Ints:
    """(n,) tokens at the start of each prompt that an earlier request holds, prompt or output."""
    n = len(workload)
    hits = np.zeros(n, dtype=np.int64)
    spans = workload.prefixes
    if spans is None or not len(spans.node):
        return hits
    owner = np.repeat(np.arange(n), np.diff(spans.offsets))
    held = _held_before(spans.node, spans.end)
    private = spans.node < 0
    held[private] = (workload.prompt_tokens + workload.output_tokens)[~spans.node[private]]
    broken = np.cumsum(held < spans.end)
    before = np.concatenate(([0], broken))
    reachable = before[:-1] == before[spans.offsets[owner]]
    np.maximum.at(hits, owner[reachable], np.minimum(held, spans.end)[reachable])
    return np.minimum(hits, workload.prompt_tokens)


def _held_before(node: Ints, end: Ints) -> Ints:
    """How far earlier rows of the same node reach, for each row; 0 where there is none."""
    order = np.argsort(node, kind="stable")
    first = np.append(True, np.diff(node[order]) != 0)
    lift = np.cumsum(first) * (int(end.max()) + 1)  # keeps the running maximum within a node
    reach = np.maximum.accumulate(end[order] + lift) - lift
    held = np.empty_like(end)
    held[order] = np.where(first, 0, np.roll(reach, 1))
    return held


def _arrival_figures(timed: Floats) -> dict[str, float | None]:
    gaps = np.diff(timed)
    span = float(timed[-1] - timed[0]) if len(timed) else 0.0
    if span == 0:
        return {"span_s": span, "rate_per_s": None, "gap_cv": None}
    return {"span_s": span, "rate_per_s": len(gaps) / span, "gap_cv": float(gaps.std() / gaps.mean())}


def _length_figures(tokens: Ints) -> dict[str, float]:
    mean = float(tokens.mean())
    quantiles = {f"p{100 * q:g}": float(np.quantile(tokens, q)) for q in _QUANTILES}
    figures = {"total": int(tokens.sum()), "mean": mean, "cv": float(tokens.std() / mean), "min": int(tokens.min())}
    return {**figures, **quantiles, "max": int(tokens.max())}
