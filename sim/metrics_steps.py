"""What the rows of steps say about KV cache and hardware; a row is a run of steps whose times form a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.result import RunContext
from sim.summary import Drafting, Kv, Utilization

Floats = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]

SHAPE_COLUMNS = (
    "decode_seqs",
    "prefill_seqs",
    "prefill_tokens",
    "prefill_pairs",
    "prefill_pairs_windowed",
    "prefill_context",
    "prefill_context_windowed",
    "sampled_seqs",
    "draft_tokens",
)


def row_times_s(runs: Arrays) -> Floats:
    """(rows,) seconds that all steps of a row take together."""
    n = runs["steps"].astype(np.float64)
    return np.asarray(n * runs["duration_s"] + runs["increment_s"] * n * (n - 1) / 2)


def busy_time_s(runs: Arrays, *, overlap: bool) -> float:
    """Seconds in which steps ran, all engines added up; rows of one engine may ``overlap`` in a pipeline."""
    length = row_times_s(runs)
    if not overlap:
        return float(length.sum())
    total = 0.0
    for replica in np.unique(runs["replica"]):
        own = runs["replica"] == replica
        start, end = runs["start_s"][own], runs["start_s"][own] + length[own]
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
        before = np.concatenate([[-np.inf], np.maximum.accumulate(end)[:-1]])
        total += float(np.maximum(end - np.maximum(start, before), 0.0).sum())
    return total


def kv_use(runs: Arrays, usable_blocks: int) -> tuple[float | None, float | None]:
    """Peak and mean share of the blocks in use; the mean weighs each step by its time."""
    if not len(runs["steps"]):
        return None, None
    peak = max(int(runs["used_blocks"].max()), int(runs["used_blocks_end"].max())) / usable_blocks
    time_s = float(row_times_s(runs).sum())
    return peak, _block_seconds(runs) / time_s / usable_blocks if time_s > 0 else None


def kv_waste(runs: Arrays, block_size: int, frees_behind: bool = False) -> dict[str, float]:
    """What of the KV memory that nobody else can have holds no token, as shares of it, by the names in `Kv`.

    That memory is what requests hold and the free gaps that are too small for the next one. Each step weighs by its
    time; within a row blocks grow linearly and each decode adds a token a step. Where requests free what their
    attention window leaves behind, tokens grow as blocks do. Empty where nothing was ever held.
    """
    block_seconds = _block_seconds(runs)
    if block_seconds <= 0:
        return {}
    growth = block_size * block_growth(runs) if frees_behind else token_growth(runs)
    tokens = _weighted_sum(runs, runs["held_tokens"], growth)
    reserved = _weighted_sum(runs, runs["reserved_tokens"], np.where(runs["reserved_tokens"], -growth, 0.0))
    stranded, shared = (
        _weighted_sum(runs, runs[name], np.zeros(len(growth))) for name in ("stranded_tokens", "shared_tokens")
    )
    whole = block_seconds * block_size + stranded
    waste = 1 - tokens / whole
    internal = waste - (reserved + stranded) / whole
    return {
        "waste_fraction": waste,
        "internal_fragmentation": max(internal, 0.0),  # below 0 by rounding only
        "external_fragmentation": stranded / whole,
        "reserved_unused": reserved / whole,
        "shared_fraction": shared / (tokens + shared) if tokens + shared > 0 else 0.0,
    }


def _block_seconds(runs: Arrays) -> float:
    """Blocks in use times seconds."""
    return _weighted_sum(runs, runs["used_blocks"], block_growth(runs))


def block_growth(runs: Arrays) -> Floats:
    """(rows,) blocks by which what is held grows with each step of a row, on average."""
    return np.asarray((runs["used_blocks_end"] - runs["used_blocks"]) / np.maximum(runs["steps"] - 1.0, 1.0))


def kv_of(rows: Arrays, runs: Arrays, context: RunContext) -> Kv:
    """The KV cache of the engines that ran ``runs`` and served ``rows``."""
    peak, mean = kv_use(runs, max(context.num_gpu_blocks - 1, 1))
    admitted = rows["scheduled_s"] >= 0
    prompts = int(rows["prompt_tokens"][admitted].sum())
    return Kv(
        num_gpu_blocks=context.num_gpu_blocks,
        block_size=context.block_size,
        capacity_tokens=context.num_gpu_blocks * context.block_size,
        bytes_per_token=context.bytes_per_token,
        peak_utilization=peak,
        mean_utilization=mean,
        prefix_hit_rate=int(rows["cached_tokens"][admitted].sum()) / prompts if prompts else None,
        **kv_waste(runs, context.block_size, context.frees_behind),
    )


def step_utilization(runs: Arrays, context: RunContext, duration_s: float) -> Utilization:
    """Busy share, MFU and MBU while busy, and sequences a step."""
    steps = int(runs["steps"].sum())
    busy_s = busy_time_s(runs, overlap=context.scenario.layout.pipeline_parallel_size > 1)
    if not steps or busy_s <= 0 or duration_s <= 0:
        return Utilization()
    sequences = int(np.dot(runs["steps"], runs["decode_seqs"] + runs["prefill_seqs"]))
    mfu = mbu = None
    if (work := context.work) is not None:
        shape = middle_step(runs)
        mfu = float(np.dot(work.flops(shape), runs["steps"])) / busy_s / work.peak_flops_per_s
        mbu = float(np.dot(work.bytes_moved(shape), runs["steps"])) / busy_s / work.peak_bytes_per_s
    ran_s = float((runs["start_s"] + row_times_s(runs)).max() - runs["start_s"].min())  # may outlast the last answer
    return Utilization(
        busy_fraction=busy_s / max(duration_s, ran_s) / context.mean_engines,
        mfu=mfu,
        mbu=mbu,
        mean_batch_size=sequences / steps,
    )


def _weighted_sum(runs: Arrays, start: NDArray[Any], slope: NDArray[Any]) -> float:
    """Sum over all steps of (start + i * slope) times the step's duration."""
    n = runs["steps"].astype(np.float64)
    duration, increment = runs["duration_s"], runs["increment_s"]
    first_power, second_power = n * (n - 1) / 2, (n - 1) * n * (2 * n - 1) / 6
    line = n * start * duration + first_power * (start * increment + slope * duration)
    return float((line + second_power * slope * increment).sum())


def token_growth(runs: Arrays) -> Floats:
    """(rows,) tokens by which the contexts of the decodes of a row grow with each step, on average."""
    return np.asarray(runs["decode_seqs"] + runs["accepted_tokens"] / runs["steps"])


def middle_step(runs: Arrays) -> dict[str, Floats]:
    """The shape of each row's mean step: contexts grow by the tokens that come out."""
    shape = {name: runs[name].astype(np.float64) for name in SHAPE_COLUMNS}
    grown = (runs["steps"] - 1) / 2 * token_growth(runs)
    unbounded = runs["decode_context_windowed"] == runs["decode_context"]
    shape["decode_context"] = runs["decode_context"] + grown
    shape["decode_context_windowed"] = runs["decode_context_windowed"] + np.where(unbounded, grown, 0.0)
    return shape


def drafting_of(runs: Arrays, num_speculative_tokens: int) -> Drafting:
    """What came of drafts: steps of a request that verified some, and output tokens beyond one a step."""
    drafts = int(np.dot(runs["draft_tokens"], runs["steps"]))
    accepted = int(runs["accepted_tokens"].sum())
    steps = round(drafts / num_speculative_tokens)
    return Drafting(
        verify_steps=steps,
        draft_tokens=drafts,
        accepted_tokens=accepted,
        acceptance_rate=accepted / drafts if drafts else None,
        tokens_per_step=1 + accepted / steps if steps else None,
    )
