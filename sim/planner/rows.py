"""From outcomes to the rows that a reader sees."""

from __future__ import annotations

from typing import Any

from sim.planner.bench import Outcome
from sim.planner.binding import binding_limit
from sim.planner.capacity import Capacity
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.outcome import Deployment, FrontPoint, Measured, Row
from sim.planner.power import upkeep_of
from sim.planner.space import Cell
from sim.planner.verdict import ratios_of


def deployment_of(cell: Cell, replicas: int) -> Deployment:
    """A cell in a number."""
    split: dict[str, Any] | None = None
    if cell.split is not None:
        s = cell.split
        split = {
            "prefill": {"replicas": s.prefill, "layout": s.prefill_layout.model_dump()},
            "decode": {"replicas": s.decode, "layout": s.decode_layout.model_dump()},
            "transfer_gb_per_s": s.transfer_gb_per_s,
        }
    return Deployment(
        hardware=cell.hardware,
        label=cell.label,
        replicas=replicas,
        gpus=cell.gpus * replicas,
        layout=cell.layout.model_dump(exclude={"replicas"}),
        split=split,
        quantization=cell.quantization,
        kv_cache_dtype=cell.kv_cache_dtype,
        max_num_seqs=cell.max_num_seqs,
        max_num_batched_tokens=cell.max_num_batched_tokens,
    )


def refused_row(cell: Cell, replicas: int, ground: Ground, why: str) -> Row:
    """The row of a kind that does not keep the promise within the budgets."""
    return Row(
        deployment=deployment_of(cell, replicas),
        keeps=False,
        why=why,
        cost=ground.cost(cell, replicas),
        usd_per_hour=ground.usd_per_hour(cell, replicas),
        calibrated=ground.hardware(cell).calibrated,
    )


def kept_row(outcome: Outcome, ground: Ground, limits: Capacity, mean_tokens: float) -> Row:
    """The row of a kind that keeps the promise, in its fewest replicas."""
    trial, summary = outcome.trial, outcome.record.summary
    assert summary is not None
    case, cell, replicas = trial.case, trial.cell, trial.replicas
    simulated, _ = case.part(replicas)
    usd = ground.usd_per_hour(cell, replicas)
    upkeep = upkeep_of(
        summary, ground.hardware(cell), cell.gpus * simulated, None if usd is None else usd * simulated / replicas
    )
    headroom = limits.factor - 1.0
    blocks = min(ground.fit(cell).blocks.values()) - 1
    return Row(
        deployment=deployment_of(cell, replicas),
        keeps=True,
        cost=ground.cost(cell, replicas),
        usd_per_hour=usd,
        promise=promise_of(outcome),
        attainment=summary.slo.attainment,
        ratio=outcome.verdict.ratio,
        most_load=case.load.given * limits.factor,
        headroom=headroom,
        headroom_usd_per_hour=None if usd is None else usd * headroom / limits.factor,
        limit=binding_limit(limits.breaks, ground, mean_tokens) if limits.breaks else "",
        concurrency=int(blocks * case.base.engine.block_size / mean_tokens),
        output_tokens_per_s_per_gpu=summary.throughput.output_tokens_per_s_per_gpu,
        output_tokens_per_s_per_user=speed_of(summary.tpot_s.mean),
        watts=None if upkeep.watts is None else upkeep.watts * replicas / simulated,
        kwh_per_million_output_tokens=upkeep.kwh_per_million_output_tokens,
        usd_per_million_output_tokens=upkeep.usd_per_million_output_tokens,
        usd_per_million_total_tokens=upkeep.usd_per_million_total_tokens,
        calibrated=summary.calibration.calibrated,
        scenario_hash=outcome.record.key,
    )


def promise_of(outcome: Outcome) -> dict[str, Measured]:
    """{key: what was measured} of every bound on a statistic."""
    summary = outcome.record.summary
    assert summary is not None
    slo = outcome.trial.case.slo
    found = {}
    for key, ratio in ratios_of(summary, slo).items():
        bound_s = slo.statistics()[key][2]
        low_s, high_s = outcome.record.intervals.get(key, (None, None))
        found[key] = Measured(value_s=ratio * bound_s, bound_s=bound_s, low_s=low_s, high_s=high_s)
    return found


def point_of(outcome: Outcome, ground: Ground) -> FrontPoint | None:
    """A run as a point of the fronts; None where it was not measured to its end."""
    summary, trial = outcome.record.summary, outcome.trial
    if summary is None or summary.throughput.output_tokens_per_s_per_gpu is None:
        return None
    return FrontPoint(
        label=trial.cell.label,
        hardware=trial.cell.hardware,
        quantization=trial.cell.quantization,
        replicas=trial.replicas,
        load=trial.case.load.given * trial.factor,
        keeps=outcome.verdict.kept,
        output_tokens_per_s_per_gpu=summary.throughput.output_tokens_per_s_per_gpu,
        output_tokens_per_s_per_user=speed_of(summary.tpot_s.mean),
        cost=ground.cost(trial.cell, trial.replicas),
        e2e_mean_s=summary.e2e_s.mean,
        ttft_p99_s=summary.ttft_s.p99,
        tpot_p99_s=summary.tpot_s.p99,
    )


def speed_of(tpot_s: float | None) -> float | None:
    """Tokens a second that a user sees after the first one."""
    return 1 / tpot_s if tpot_s else None


def budget_words(case: Case, cell: Cell, ground: Ground) -> str:
    """Why not even one unit of ``cell`` is within the budgets."""
    usd = ground.usd_per_hour(cell, 1)
    watts = ground.hardware(cell).tdp_w * cell.gpus
    price = "" if usd is None else f", ${usd:,.2f}/h"
    return f"one unit is {cell.gpus} GPU{'s' if cell.gpus > 1 else ''}{price}, {watts:,.0f} W at most: over the budget"


def in_words(seconds: float) -> str:
    """A duration with a fitting unit: 19.1 ms, 2 s."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def promise_words(key: str) -> str:
    """ttft_p99_s as TTFT p99; other keys of a verdict as they are."""
    metric, _, statistic = key.removesuffix("_s").partition("_")
    return f"{metric.upper()} {statistic}" if statistic else key
