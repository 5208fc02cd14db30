"""What holds a deployment back, in words: read off the run in which it first breaks the promise."""

from __future__ import annotations

from sim.planner.bench import Outcome
from sim.planner.ground import Ground

_FULL = 0.97  # of the cache, at its fullest step
_MOSTLY = 0.5


def binding_limit(outcome: Outcome, ground: Ground, mean_tokens: float) -> str:
    """Why the run of ``outcome`` breaks the promise: in a few words, and the figures after a semicolon.

    Args:
        outcome: of a load just above what the deployment sustains.
        ground: knows the cell's memory.
        mean_tokens: prompt and output of a request together, on average.
    """
    cell, evidence = outcome.trial.cell, outcome.record.evidence
    broken = outcome.verdict.broken[0] if outcome.verdict.broken else ""
    if evidence is None:
        return str(outcome.record.refusal)
    blocks = min(ground.fit(cell).blocks.values()) - 1
    if evidence.peak_blocks >= _FULL * blocks:
        tokens = blocks * outcome.trial.case.base.engine.block_size
        return f"KV memory caps concurrency at {max(1, round(tokens / mean_tokens))} requests"
    if evidence.peak_running >= cell.max_num_seqs:
        return f"max_num_seqs caps the batch at {cell.max_num_seqs}"
    share = evidence.prefill_time_share
    prompts = f"{100 * share:.0f} % of step time computes prompts"
    if broken.startswith("ttft"):
        return f"prefill compute; {prompts}" if share > _MOSTLY else f"TTFT under bursts; {prompts}"
    step = "" if evidence.decode_step_s is None else f"{evidence.decode_step_s * 1e3:.3g} ms"
    if broken.startswith(("tpot", "itl")):
        bound_s = outcome.trial.case.slo.statistics()[broken][2]
        if evidence.decode_step_s is not None and evidence.decode_step_s < 0.85 * bound_s:
            return f"prompts computed between tokens; {prompts}, a decode step alone is {step}"
        return f"memory bandwidth; a decode step reads weights and cache for {step}"
    if share > _MOSTLY:
        return f"prefill compute; {prompts}"
    return f"decode throughput; a decode step is {step}" if step else prompts
