"""The simulations of a plan as a table."""

from __future__ import annotations

from typing import Any

from sim.planner.bench import Bench


def runs_of(bench: Bench) -> list[dict[str, Any]]:
    """A row a simulated scenario, in the order in which they were first asked for."""
    rows: dict[str, dict[str, Any]] = {}
    for outcome in bench.outcomes:
        trial, record, summary = outcome.trial, outcome.record, outcome.record.summary
        row = {
            "scenario_hash": record.key,
            "hardware": trial.cell.hardware,
            "layout": trial.cell.label,
            "replicas": trial.replicas,
            "gpus": trial.cell.gpus * trial.replicas,
            "quantization": trial.cell.quantization,
            "kv_cache_dtype": str(trial.cell.kv_cache_dtype),
            "max_num_seqs": trial.cell.max_num_seqs,
            "max_num_batched_tokens": trial.cell.max_num_batched_tokens,
            "load": trial.case.load.given * trial.factor,
            "status": record.status,
            "keeps": outcome.verdict.kept,
            "broken": ", ".join(outcome.verdict.broken),
            "ttft_p99_s": summary and summary.ttft_s.p99,
            "tpot_p99_s": summary and summary.tpot_s.p99,
            "e2e_mean_s": summary and summary.e2e_s.mean,
            "output_tokens_per_s_per_gpu": summary and summary.throughput.output_tokens_per_s_per_gpu,
            "kv_mean_utilization": summary and summary.kv.mean_utilization,
        }
        rows.setdefault(record.key, row)
    return list(rows.values())
