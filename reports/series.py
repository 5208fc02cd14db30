"""How a run went over time: means over equal bins, exact to the row, whatever the number of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics_steps import row_times_s, token_growth
from sim.records import STATUS
from sim.result import Result, arrays_of

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Series:
    """Means over bins; all but ``edges_s`` are (bins,).

    Attributes:
        edges_s: (bins + 1,) from the first arrival (0) to the end of the run.
        running: sequences in the batch, all engines together.
        waiting: requests not scheduled yet.
        kv_utilization: blocks in use over blocks there are, 0 to 1.
        kv_tokens: slots that hold tokens, over all slots.
        kv_reserved: slots held for tokens to come, likewise.
        kv_stranded: free slots in gaps too small for the next request, likewise.
        output_tokens_per_s: tokens sampled.
        prefill_tokens_per_s: prompt tokens computed (cached ones are not).
    """

    edges_s: Floats
    running: Floats
    waiting: Floats
    kv_utilization: Floats
    kv_tokens: Floats
    kv_reserved: Floats
    kv_stranded: Floats
    output_tokens_per_s: Floats
    prefill_tokens_per_s: Floats

    @property
    def middle_s(self) -> Floats:
        """(bins,) middle of each bin."""
        return np.asarray((self.edges_s[1:] + self.edges_s[:-1]) / 2)


def last_arrival_s(result: Result) -> float:
    """The last arrival, in seconds since the first."""
    arrivals = arrays_of(result.request_columns)["arrival_s"]
    arrived = arrivals[arrivals >= 0]
    return float(arrived.max() - arrived.min()) if len(arrived) else 0.0


def series_of(result: Result, bins: int = 160) -> Series | None:
    """The series of a run; None where no step ran."""
    runs, rows = arrays_of(result.step_columns), arrays_of(result.request_columns)
    if not len(runs["steps"]):
        return None
    length_s = row_times_s(runs)
    begin = float(rows["arrival_s"][rows["arrival_s"] >= 0].min(initial=runs["start_s"].min()))
    end = float((runs["start_s"] + length_s).max())
    edges = np.linspace(begin, max(end, begin + 1e-9), bins + 1)
    blocks = (runs["used_blocks"] + runs["used_blocks_end"]) / 2
    all_blocks = (result.context.num_gpu_blocks - 1) * result.context.scenario.layout.replicas

    grown = token_growth(runs) * (runs["steps"] - 1) / 2
    all_slots = max(all_blocks, 1) * result.context.block_size

    def mean(total_of_row: NDArray[Any]) -> Floats:
        return _spread(runs, length_s, total_of_row, edges)

    return Series(
        edges_s=edges - begin,
        running=mean(runs["running"] * length_s),
        waiting=_waiting(rows, edges),
        kv_utilization=mean(blocks * length_s) / max(all_blocks, 1),
        kv_tokens=mean((runs["held_tokens"] + grown) * length_s) / all_slots,
        kv_reserved=mean(np.where(runs["reserved_tokens"], runs["reserved_tokens"] - grown, 0.0) * length_s)
        / all_slots,
        kv_stranded=mean(runs["stranded_tokens"] * length_s) / all_slots,
        output_tokens_per_s=mean(runs["sampled_seqs"] * runs["steps"] + runs["accepted_tokens"]),
        prefill_tokens_per_s=mean(runs["prefill_tokens"] * runs["steps"]),
    )


def _spread(runs: Arrays, length_s: Floats, total_of_row: NDArray[Any], edges: Floats) -> Floats:
    """Spread each row's total evenly over its time; the amount a second in each bin, engines added up."""
    amount = np.zeros(len(edges) - 1)
    for replica in np.unique(runs["replica"]):
        own = runs["replica"] == replica
        start, total = runs["start_s"][own], np.cumsum(total_of_row[own], dtype=np.float64)
        moments = np.column_stack([start, start + length_s[own]]).ravel()
        upto = np.column_stack([np.concatenate([[0.0], total[:-1]]), total]).ravel()
        amount += np.diff(np.interp(edges, np.maximum.accumulate(moments), upto))
    return amount / np.diff(edges)


def _waiting(rows: Arrays, edges: Floats) -> Floats:
    """Mean number of requests between entering the queue and their first step."""
    taken = (rows["status"] != STATUS.index("rejected")) & (rows["queued_s"] >= 0)
    scheduled = rows["scheduled_s"][taken]
    waited = _time_since(rows["queued_s"][taken], edges) - _time_since(scheduled[scheduled >= 0], edges)
    return np.asarray(np.diff(waited).clip(min=0) / np.diff(edges))


def _time_since(moments: Floats, edges: Floats) -> Floats:
    """For each edge the sum of (edge - moment) over the moments before it."""
    moments = np.sort(moments)
    upto = np.searchsorted(moments, edges)
    return np.asarray(edges * upto - np.concatenate([[0.0], np.cumsum(moments)])[upto])
