"""What a running vLLM server counted, as a workload to start what-ifs from.

Names are those of vllm/v1/metrics/loggers.py: ``vllm:request_prompt_tokens`` and ``vllm:request_generation_tokens``
(histograms), ``vllm:request_success_total``, ``vllm:prefix_cache_queries_total`` and ``..._hits_total``.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from reports.convert.prometheus import Increase
from sim.errors import InputError

PROMPTS: Final = "vllm:request_prompt_tokens"
OUTPUTS: Final = "vllm:request_generation_tokens"
REQUESTS: Final = "vllm:request_success"
_STAGES: Final = 48


@dataclass(frozen=True, slots=True)
class Scraped:
    """A workload section, and what its reader should know."""

    workload: dict[str, Any]
    notes: tuple[str, ...]


def workload_of(increases: Iterable[Increase], seconds: float | None) -> Scraped:
    """Rate and lengths of what was served.

    Args:
        increases: the series; those of several engines are added up.
        seconds: over which a single dump was counted; a range query knows it.

    Raises:
        InputError: no finished request, no histogram of lengths, no time.
    """
    totals: dict[str, float] = defaultdict(float)
    buckets: dict[str, dict[float, float]] = {PROMPTS: defaultdict(float), OUTPUTS: defaultdict(float)}
    rates: list[Increase] = []
    for one in increases:
        base = one.name.removesuffix("_bucket")
        if base in buckets and "le" in one.labels:
            buckets[base][float(one.labels["le"].replace("+Inf", "inf"))] += one.amount
        else:
            totals[one.name.removesuffix("_total")] += one.amount
            if one.name.startswith(REQUESTS) and one.points:
                rates.append(one)
    count = totals.get(f"{PROMPTS}_count") or totals.get(REQUESTS) or max(buckets[PROMPTS].values(), default=0.0)
    if not count:
        raise InputError(PROMPTS, "no request was counted", "scrape a vLLM server that has served some")
    seconds = _span(rates, seconds)
    notes = list(_notes(totals, count, seconds))
    arrivals = _arrivals(rates, count, seconds)
    workload = {
        "num_requests": max(1, round(min(count, 100_000))),
        "arrivals": arrivals,
        "prompt_tokens": _lengths(buckets[PROMPTS], PROMPTS),
        "output_tokens": _lengths(buckets[OUTPUTS], OUTPUTS),
    }
    if arrivals["process"] == "stages":
        del workload["num_requests"]
    return Scraped(workload, tuple(notes))


def _span(rates: list[Increase], seconds: float | None) -> float:
    spans = [one.points[-1][0] - one.points[0][0] for one in rates]
    if seconds is None and not spans:
        raise InputError(
            "--seconds", "a dump does not say over which time it counted", "give the seconds since the server started"
        )
    found = seconds if seconds is not None else max(spans)
    if not 0 < found < 1e10:
        raise InputError("--seconds", f"{found:g} is no time", "give the seconds over which requests were counted")
    return found


def _arrivals(rates: list[Increase], count: float, seconds: float) -> dict[str, Any]:
    """Poisson at the mean rate, in stages where a range query shows the rate over time."""
    times = sorted({time for one in rates for time, _ in one.points})
    if len(times) < 4:
        return {"process": "poisson", "rate_per_s": _short(count / seconds)}
    stride = max(1, -(-(len(times) - 1) // _STAGES))
    edges = [*times[:-1:stride], times[-1]]
    stages: list[dict[str, float]] = []
    for begin, end in itertools.pairwise(edges):
        grown = sum(_between(one, begin, end) for one in rates)
        if stages and grown <= 0:
            stages[-1]["duration_s"] += end - begin
            stages[-1]["rate_per_s"] *= 1 - (end - begin) / stages[-1]["duration_s"]
        elif grown > 0:
            stages.append({"rate_per_s": grown / (end - begin), "duration_s": end - begin})
    for stage in stages:
        stage["rate_per_s"], stage["duration_s"] = _short(stage["rate_per_s"]), _short(stage["duration_s"])
    return {"process": "stages", "stages": stages}


def _between(one: Increase, begin: float, end: float) -> float:
    inside = [value for time, value in one.points if begin <= time <= end]
    return sum(after - before if after >= before else after for before, after in itertools.pairwise(inside))


def _lengths(buckets: dict[float, float], name: str) -> dict[str, Any]:
    """Quantiles at the edges of the buckets; above the last edge, twice that edge."""
    edges = sorted(buckets)
    total = max(buckets.values(), default=0.0)
    finite = [edge for edge in edges if math.isfinite(edge)]
    if not total or not finite:
        raise InputError(name, "no histogram of it is there", "scrape /metrics whole, or query the _bucket series")
    quantiles: dict[float, int] = {}
    below = 1.0
    for edge in finite:
        share = round(min(buckets[edge] / total, 1.0), 6)
        if not quantiles:
            if share == 0:
                below = max(edge, 1.0)
                continue
            quantiles[0.0] = round(below)
        quantiles[share] = round(max(edge, 1.0))
        if share == 1.0:
            break
    if not quantiles:
        quantiles[0.0] = round(finite[-1])
    if 1.0 not in quantiles:
        quantiles[1.0] = round(2 * finite[-1])
    return {"distribution": "empirical", "quantiles": quantiles}


def _notes(totals: dict[str, float], count: float, seconds: float) -> Iterable[str]:
    yield f"{count:,.0f} requests in {seconds:,.0f} s; finished ones are counted, as if they had arrived then"
    for name, what in ((PROMPTS, "prompt"), (OUTPUTS, "output")):
        if f"{name}_sum" in totals:
            yield f"mean {what} length by the server's sum: {totals[f'{name}_sum'] / count:,.1f} tokens"
    queries, hits = totals.get("vllm:prefix_cache_queries", 0.0), totals.get("vllm:prefix_cache_hits", 0.0)
    if queries:
        yield f"prefix cache hits: {100 * hits / queries:.1f} % of tokens; add prefixes or sessions to have them here"


def _short(value: float) -> float:
    return float(f"{value:.6g}")
