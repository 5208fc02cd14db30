"""How sure a percentile of one run is: confidence intervals by resampling stretches of the run."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.metrics import request_latencies
from sim.records import STATUS, Columns
from sim.result import arrays_of
from sim.scenario import SloSpec
from sim.workload import Floats

BLOCKS: Final = 20
RESAMPLES: Final = 400
CONFIDENCE: Final = 0.95
_SEED: Final = 7
_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_ALWAYS: Final = (("ttft", "p99"), ("tpot", "p99"), ("e2e", "p99"))


def intervals_of(requests: Columns, slo: SloSpec) -> dict[str, tuple[float, float]]:
    """{``metric_statistic_s``: (low, high)} of the promised statistics, and of p99 of TTFT, TPOT and E2E.

    Requests are taken in order of arrival, since neighbours share the state of the servers.
    """
    rows: dict[str, NDArray[Any]] = dict(arrays_of(requests))
    order = np.argsort(rows["arrival_s"], kind="stable")
    done = (rows["status"] == STATUS.index("completed"))[order]
    latencies = request_latencies(rows)
    asked = dict.fromkeys([(m, s) for m, s, _ in slo.statistics().values() if m != "itl"] + list(_ALWAYS))
    found = {}
    for metric, statistic in asked:
        values = latencies[f"{metric}_s"][order][done]
        if (interval := interval_of(values[~np.isnan(values)], statistic)) is not None:
            found[f"{metric}_{statistic}_s"] = interval
    return found


def interval_of(values: Floats, statistic: str) -> tuple[float, float] | None:
    """`CONFIDENCE` interval of a mean or percentile of ``values``, which depend on their neighbours.

    The values are cut into `BLOCKS` consecutive blocks, and whole blocks are drawn with replacement (block bootstrap,
    Kuensch 1989); the spread of the statistic over the draws, widened by sqrt(B / (B - 1)) for the finite number of
    blocks, gives the interval. None for fewer values than blocks. The draws are the same every time.
    """
    n = len(values)
    if n < BLOCKS:
        return None
    rng = np.random.default_rng(np.random.SeedSequence(_SEED))
    weights = rng.multinomial(BLOCKS, np.full(BLOCKS, 1 / BLOCKS), size=RESAMPLES).astype(np.float64)
    block = np.arange(n) * BLOCKS // n
    if statistic == "mean":
        sums, sizes = np.bincount(block, values, BLOCKS), np.bincount(block, minlength=BLOCKS)
        drawn, here = weights @ sums / (weights @ sizes), float(values.mean())
    else:
        level = _LEVELS[statistic]
        order = np.argsort(values, kind="stable")
        ranked, blocks = values[order], block[order]
        held = np.cumsum(weights[:, blocks], axis=1)
        places = (held < level * held[:, -1:]).sum(axis=1)
        drawn, here = ranked[np.minimum(places, n - 1)], float(np.quantile(values, level))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    wider = np.sqrt(BLOCKS / (BLOCKS - 1))
    return max(0.0, here - wider * max(0.0, here - float(low))), here + wider * max(0.0, float(high) - here)
