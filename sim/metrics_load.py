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
    """Arrival rate, backlog, what was full how long; and a sentence if arrivals outrun service.

    A request waits until it is scheduled; where prefill and decode are apart, until a decode engine has taken it.
    """
    blocks = (runs["used_blocks"] + runs["used_blocks_end"]) / 2
    batch_full = _share(runs, runs["running"] >= context.scenario.engine.max_num_seqs)
    kv_full = _share(runs, blocks >= KV_FULL * (context.num_gpu_blocks - 1))
    taken = (rows["status"] != STATUS.index("rejected")) & (rows["arrival_s"] >= 0)
    arrival, scheduled, finish = (rows[name][taken] for name in ("arrival_s", "scheduled_s", "finish_s"))
    begun = rows["first_token_s"][taken] if context.pools else scheduled
    if not len(arrival):
        return Load(batch_full_fraction=batch_full, kv_full_fraction=kv_full), ()
    first, last, count = float(arrival.min()), float(arrival.max()), len(arrival)
    middle = (first + last) / 2
    waiting, halfway = (_waiting(arrival, begun, at_s) for at_s in (last, middle))
    overloaded = waiting >= max(WAITING_MIN, WAITING_SHARE * count) and waiting > WAITING_GROWTH * halfway
    load = Load(
        arrivals_per_s=(count - 1) / (last - first) if last > first else None,
        waiting_at_last_arrival=waiting,
        overloaded=overloaded and last > first,
        batch_full_fraction=batch_full,
        kv_full_fraction=kv_full,
    )
    if not load.overloaded:
        return load, ()
    where = f" ({_waiting(arrival, scheduled, last)} of them for prefill)" if context.pools else ""
    served = int(((finish > middle) & (finish <= last)).sum()) / (last - middle)
    return load, (
        f"Overloaded: arrivals ({load.arrivals_per_s:.3g} requests/s) outrun service ({served:.3g} requests/s); "
        f"{waiting} of {count} requests still waited{where} when the last one arrived, so latencies grow with the run.",
    )


def _waiting(arrival: NDArray[Any], begun: NDArray[Any], at_s: float) -> int:
    return int(((arrival <= at_s) & ((begun < 0) | (begun > at_s))).sum())


def _share(runs: Arrays, where: NDArray[np.bool_]) -> float | None:
    time_s = row_times_s(runs)
    total_s = float(time_s.sum())
    return float(time_s[where].sum()) / total_s if total_s > 0 else None
