"""What a plan reads off a run beyond its summary."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics_steps import row_times_s
from sim.records import Columns
from sim.result import arrays_of
from sim.schema import StrictModel

Arrays = dict[str, NDArray[Any]]


class Evidence(StrictModel):
    """How close the run came to its limits, and where its time went.

    Attributes:
        peak_running: most requests in one step of an engine.
        peak_step_tokens: most tokens in one step of an engine.
        peak_blocks: most KV blocks held by the requests of one engine.
        longest_prompt_tokens: of any request.
        prefill_time_share: share of step time spent in steps that compute prompts.
        decode_step_s: mean duration of a step that only decodes; None without one.
    """

    peak_running: int
    peak_step_tokens: int
    peak_blocks: int
    longest_prompt_tokens: int
    prefill_time_share: float
    decode_step_s: float | None = None


def evidence_of(steps: Columns, longest_prompt_tokens: int) -> Evidence:
    """Read the evidence of a run, or of what there is of one, off its rows of steps."""
    runs: Arrays = dict(arrays_of(steps))
    time_s = row_times_s(runs)
    prefills = runs["prefill_tokens"] > 0
    decode_steps = int(runs["steps"][~prefills].sum())
    total_s = float(time_s.sum())
    return Evidence(
        peak_running=_most(runs["running"]),
        peak_step_tokens=_most(runs["decode_seqs"] + runs["prefill_tokens"]),
        peak_blocks=max(_most(runs["used_blocks"]), _most(runs["used_blocks_end"])),
        longest_prompt_tokens=longest_prompt_tokens,
        prefill_time_share=float(time_s[prefills].sum()) / total_s if total_s > 0 else 0.0,
        decode_step_s=float(time_s[~prefills].sum()) / decode_steps if decode_steps else None,
    )


def _most(values: NDArray[np.integer[Any]]) -> int:
    return int(values.max()) if len(values) else 0
