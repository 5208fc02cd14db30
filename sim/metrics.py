"""From records to the summary: pure functions of columns, vectorised."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sim
from sim.metrics_gaps import WeightedRuns
from sim.metrics_load import load_of
from sim.metrics_pools import fleet_utilization, pool_uses, runs_of
from sim.metrics_steps import drafting_of, kv_of
from sim.records import STATUS, Columns
from sim.result import RunContext, arrays_of
from sim.scenario import SloSpec
from sim.summary import Cost, Latency, Memory, Requests, Slo, Summary, Throughput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Arrays = Mapping[str, NDArray[Any]]

LEVELS = (0.5, 0.9, 0.95, 0.99)


def summarize(
    context: RunContext, requests: Columns, steps: Columns, irregular_gaps_s: Floats, gap_tokens: Ints | None = None
) -> Summary:
    """The summary of a run.

    Args:
        context: scenario, budget and bookkeeping.
        requests: `sim.records.REQUEST_COLUMNS`.
        steps: `sim.records.STEP_COLUMNS`.
        irregular_gaps_s: gaps between tokens of a request that the ``gaps`` column of ``steps`` does not count.
        gap_tokens: how many tokens each of them stands for; one where not given.
    """
    rows, runs = arrays_of(requests), arrays_of(steps)
    done = rows["status"] == STATUS.index("completed")
    latencies = {name: values[done] for name, values in request_latencies(rows).items()}
    duration_s = _duration_s(rows, done)
    scenario, spec = context.scenario, context.scenario.engine.speculative
    throughput = _throughput(rows, done, duration_s, context.gpus)
    own_runs = runs_of(context.pools[-1], runs) if context.pools else runs
    load, overload_note = load_of(rows, own_runs, context)
    statistics = {name: latency(values) for name, values in latencies.items()}
    statistics["itl_s"] = inter_token_latency(runs, irregular_gaps_s, gap_tokens)
    return Summary(
        servecast_version=sim.__version__,
        name=scenario.name,
        scenario_hash=scenario.scenario_hash,
        seed=scenario.seed,
        requests=_requests(rows, context.reject_reasons),
        duration_s=duration_s,
        ttft_s=statistics["ttft_s"],
        tpot_s=statistics["tpot_s"],
        itl_s=statistics["itl_s"],
        e2e_s=statistics["e2e_s"],
        queue_s=statistics["queue_s"],
        throughput=throughput,
        kv=kv_of(rows, own_runs, context),
        memory=context.memory or Memory(),
        utilization=fleet_utilization(runs, context, duration_s),
        slo=_slo(scenario.slo, statistics, latencies, duration_s, len(done)),
        cost=_cost(context, throughput),
        load=load,
        calibration=context.calibration,
        simulation=context.simulation,
        pools=pool_uses(rows, runs, context, duration_s),
        notes=context.notes + overload_note,
        tiers=context.tiers,
        drafting=drafting_of(runs, spec.num_speculative_tokens) if spec else None,
    )


def request_latencies(rows: Arrays) -> dict[str, Floats]:
    """(n,) ttft_s, tpot_s, e2e_s and queue_s of each request, NaN where it never came to that."""
    arrival, first, finish, scheduled = (
        _seconds(rows[name]) for name in ("arrival_s", "first_token_s", "finish_s", "scheduled_s")
    )
    tokens = rows["output_tokens"]
    gaps = np.where(tokens > 1, tokens - 1, np.nan)
    completed = rows["status"] == STATUS.index("completed")
    return {
        "ttft_s": first - arrival,
        "tpot_s": np.where(completed, (finish - first) / gaps, np.nan),
        "e2e_s": np.where(completed, finish - arrival, np.nan),
        "queue_s": scheduled - arrival,
    }


def latency(values_s: Floats) -> Latency:
    """Distribution of the values that are not NaN."""
    measured = values_s[~np.isnan(values_s)]
    if not len(measured):
        return Latency()
    return _latency(
        (float(measured.mean()), float(measured.std()), float(measured.min()), float(measured.max())),
        np.quantile(measured, LEVELS).tolist(),
    )


def inter_token_latency(runs: Arrays, irregular_gaps_s: Floats, gap_tokens: Ints | None = None) -> Latency:
    """Distribution over every gap between two tokens of one request."""
    gaps = WeightedRuns.of(
        runs["duration_s"],
        runs["increment_s"],
        runs["steps"],
        runs["gaps"],
        np.asarray(irregular_gaps_s, np.float64),
        gap_tokens,
    )
    return _latency(gaps.moments(), gaps.quantiles(LEVELS)) if gaps.count else Latency()


def _latency(moments: tuple[float, float, float, float], quantiles: list[float]) -> Latency:
    mean, std, low, high = moments
    p50, p90, p95, p99 = quantiles
    return Latency(mean=mean, std=std, min=low, p50=p50, p90=p90, p95=p95, p99=p99, max=high)


def _seconds(column: NDArray[Any]) -> Floats:
    return np.where(column < 0, np.nan, column)


def _duration_s(rows: Arrays, done: NDArray[np.bool_]) -> float:
    if not done.any():
        return 0.0
    return float(rows["finish_s"][done].max() - _seconds(rows["arrival_s"])[rows["arrival_s"] >= 0].min())


def _requests(rows: Arrays, reasons: tuple[str, ...]) -> Requests:
    count = np.bincount(rows["status"], minlength=len(STATUS)).tolist()
    refused = rows["reason"][rows["reason"] >= 0]
    by_reason = np.bincount(refused, minlength=len(reasons)).tolist()
    return Requests(
        submitted=len(rows["status"]),
        completed=count[STATUS.index("completed")],
        rejected=count[STATUS.index("rejected")],
        unfinished=count[STATUS.index("unfinished")],
        lost=count[STATUS.index("lost")],
        retries=int((rows["attempts"] - 1).sum()),
        preemptions=int(rows["preemptions"].sum()),
        reject_reasons={reason: n for reason, n in zip(reasons, by_reason, strict=True) if n},
    )


def _throughput(rows: Arrays, done: NDArray[np.bool_], duration_s: float, gpus: float) -> Throughput:
    if duration_s <= 0:
        return Throughput()
    input_tokens, output_tokens = int(rows["prompt_tokens"][done].sum()), int(rows["output_tokens"][done].sum())
    return Throughput(
        requests_per_s=int(done.sum()) / duration_s,
        input_tokens_per_s=input_tokens / duration_s,
        output_tokens_per_s=output_tokens / duration_s,
        total_tokens_per_s=(input_tokens + output_tokens) / duration_s,
        output_tokens_per_s_per_gpu=output_tokens / duration_s / gpus,
    )


def _slo(
    slo: SloSpec, statistics: Mapping[str, Latency], latencies: Mapping[str, Floats], duration_s: float, submitted: int
) -> Slo:
    met: dict[str, bool | None] = {}
    for key, (metric, statistic, bound_s) in slo.statistics().items():
        value = getattr(statistics[f"{metric}_s"], statistic)
        met[key] = None if value is None else value <= bound_s
    bounds = slo.per_request()
    if not bounds or not submitted:
        return Slo(met=met)
    missed = np.zeros(len(latencies["e2e_s"]), bool)
    for metric, bound_s in bounds.items():
        missed |= latencies[f"{metric}_s"] > bound_s  # NaN misses nothing: one token has no TPOT
    good = int((~missed).sum())
    goodput = good / duration_s if duration_s > 0 else None
    return Slo(goodput_requests_per_s=goodput, attainment=good / submitted, met=met)


def _cost(context: RunContext, throughput: Throughput) -> Cost:
    gpus = math.ceil(context.gpus)
    if context.usd_per_gpu_hour is None:
        return Cost(gpus=gpus)
    usd_per_hour = context.gpus * context.usd_per_gpu_hour

    def per_million(tokens_per_s: float | None) -> float | None:
        return usd_per_hour / 3600 / tokens_per_s * 1e6 if tokens_per_s else None

    return Cost(
        gpus=gpus,
        usd_per_hour=usd_per_hour,
        usd_per_million_output_tokens=per_million(throughput.output_tokens_per_s),
        usd_per_million_total_tokens=per_million(throughput.total_tokens_per_s),
    )
