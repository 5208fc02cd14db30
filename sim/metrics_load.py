"""Whether service kept up with arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.metrics_steps import row_times_s
from sim.records import STATUS
from sim.result import RunContext
from sim.summary import Load

Arrays = Mapping[str, NDArray[Any]]

KV_FULL: Final = 0.95
# Overload: at the last arrival at least this share of all requests waits, and clearly more than halfway there.
WAITING_SHARE: Final = 0.05
WAITING_MIN: Final = 10
WAITING_GROWTH: Final = 1.5


def load_of(rows: Arrays, runs: Arrays, context: RunContext) -> tuple[Load, tuple[str, ...]]:
    """Arrival rate, backlog, what was full how long; and a sentence if arrivals outrun service."""
    taken = rows["status"] != STATUS.index("rejected")
    arrival, scheduled, finish = (rows[name][taken] for name in ("arrival_s", "scheduled_s", "finish_s"))
    time_s = row_times_s(runs)
    total_s = float(time_s.sum())
    full: dict[str, float | None] = {"batch_full_fraction": None, "kv_full_fraction": None}
    if total_s > 0:
        blocks = (runs["used_blocks"] + runs["used_blocks_end"]) / 2
        full["batch_full_fraction"] = _share(time_s, runs["running"] >= context.scenario.engine.max_num_seqs)
        full["kv_full_fraction"] = _share(time_s, blocks >= KV_FULL * (context.num_gpu_blocks - 1))
    known = arrival >= 0
    if not known.any():
        return Load(**full), ()
    first, last = float(arrival[known].min()), float(arrival[known].max())
    middle = (first + last) / 2
    waiting, halfway = (_waiting(arrival[known], scheduled[known], at) for at in (last, middle))
    count = int(known.sum())
    overloaded = waiting >= max(WAITING_MIN, WAITING_SHARE * count) and waiting > WAITING_GROWTH * halfway
    rate = (count - 1) / (last - first) if last > first else None
    load = Load(arrivals_per_s=rate, waiting_at_last_arrival=waiting, overloaded=overloaded, **full)
    if not overloaded or rate is None:
        return load, ()
    served = int(((finish > middle) & (finish <= last)).sum()) / (last - middle)
    return load, (
        f"Overloaded: arrivals ({rate:.3g} requests/s) outrun service ({served:.3g} requests/s); {waiting} of {count} "
        "requests still waited when the last one arrived, so latencies grow with the length of the run.",
    )


def _waiting(arrival: NDArray[Any], scheduled: NDArray[Any], at_s: float) -> int:
    return int(((arrival <= at_s) & ((scheduled < 0) | (scheduled > at_s))).sum())


def _share(time_s: NDArray[Any], where: NDArray[np.bool_]) -> float:
    return float(time_s[where].sum() / time_s.sum())
