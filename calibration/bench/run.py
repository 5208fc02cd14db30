"""Run the microbenchmarks within a time budget and write what was measured, also when interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from calibration.bench.attention import DEFAULT_HEADS, attention_cases, heads_of
from calibration.bench.case import Case, coarse_to_fine, interleaved
from calibration.bench.collectives import rank_counts, time_collectives
from calibration.bench.conditions import Watch
from calibration.bench.device import Device
from calibration.bench.experts import expert_cases
from calibration.bench.gemm import GRID_NK, gemm_case, gemm_cases, model_shapes
from calibration.bench.memory import copy_cases, elementwise_cases
from calibration.bench.table import Row, write_table
from calibration.bench.timing import measure
from sim.errors import InputError, nearest
from sim.models.architecture import Architecture
from sim.models.quantization import resolve_weight_format

SCHEMA_VERSION: Final = 1
REFERENCE_EVERY: Final = 12
_CASE_LIMIT_S: Final = 1.5
_SHARES: Final = 2.0  # a case may take twice its part of what is left of the budget
_COLLECTIVE_SHARE: Final = 0.15  # of the budget is kept for collectives
_FLOPS_LIMIT: Final = {"cpu": 4e10, "cuda": 4e13}

Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure.

    Attributes:
        arch: the model whose exact shapes come first, None for the grid alone.
        tensor_parallel_size: how its layers are cut.
        budget_s: seconds that the run may take.
        families: names to keep; empty = all.
        grid: whether shapes beside the model's are measured too.
    """

    arch: Architecture | None = None
    tensor_parallel_size: int = 1
    budget_s: float = 300.0
    families: tuple[str, ...] = ()
    grid: bool = True


@dataclass(slots=True)
class Outcome:
    """What a run left: rows, metadata, and sentences that the user should read."""

    rows: list[Row] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    interrupted: bool = False


def run_benchmarks(device: Device, plan: Plan, out: Path | None = None, progress: Progress | None = None) -> Outcome:
    """Measure; write the table to ``out`` whatever ends the run, if there is at least one row.

    Raises:
        InputError: ``families`` names nothing that can be measured here.
    """
    begin = time.monotonic()
    outcome, watch = Outcome(), Watch(0 if device.kind == "cuda" else None)
    cases = plan_cases(device, plan)
    ended = "all measured"
    try:
        with device.torch.inference_mode():
            ended = _measure_cases(device, plan, cases, watch, outcome, progress)
        _measure_collectives(device, plan, begin, outcome)
    except KeyboardInterrupt:
        outcome.interrupted, ended = True, "interrupted"
    conditions = watch.conditions()
    outcome.warnings = conditions.warnings() + outcome.warnings
    outcome.metadata = {
        "schema_version": SCHEMA_VERSION,
        "device": device.kind,
        "name": device.name,
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "facts": device.facts,
        "conditions": asdict(conditions),
        "warnings": outcome.warnings,
        "ended": ended,
        "rows": len(outcome.rows),
        "planned": len(cases),
        "model": plan.arch.name if plan.arch else None,
        "tensor_parallel_size": plan.tensor_parallel_size,
    }
    if out is not None and outcome.rows:
        write_table(out, outcome.rows, outcome.metadata)
    return outcome


def plan_cases(device: Device, plan: Plan) -> list[Case]:
    """Every case that fits the device, in an order that leaves a usable table wherever the budget ends it."""
    groups = _model_groups(device, plan) if plan.arch else []
    if plan.grid or plan.arch is None:
        groups += _grid_groups(device)
    groups += [elementwise_cases(device), copy_cases(device)]
    families: dict[str, list[Case]] = {}
    seen: set[tuple[Any, ...]] = set()
    for case in (case for group in groups for case in coarse_to_fine(group)):
        key = (case.family, case.dtype, *sorted(case.columns.items()))
        if key not in seen and case.fits(device) and case.flops <= _FLOPS_LIMIT[device.kind]:
            seen.add(key)
            families.setdefault(case.family, []).append(case)
    unknown = sorted(set(plan.families) - set(families) - set(_COLLECTIVES))
    if unknown:
        raise InputError("--families", f"{unknown[0]!r} is not measured here", nearest(unknown[0], families))
    return interleaved(cases for family, cases in families.items() if not plan.families or family in plan.families)


_COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def _model_groups(device: Device, plan: Plan) -> list[list[Case]]:
    arch = plan.arch
    assert arch is not None
    shapes = model_shapes(arch, resolve_weight_format(arch, "bf16"), plan.tensor_parallel_size)
    groups = [gemm_cases(device, _dtypes(device), shapes)]
    for geometry in heads_of(arch, plan.tensor_parallel_size):
        groups += [*attention_cases(device, geometry)]
    return [*groups, expert_cases(device, arch, plan.tensor_parallel_size)]


def _grid_groups(device: Device) -> list[list[Case]]:
    groups = [gemm_cases(device, _dtypes(device), GRID_NK[device.kind])]
    for geometry in DEFAULT_HEADS:
        groups += [*attention_cases(device, geometry)]
    return groups


def _dtypes(device: Device) -> tuple[str, ...]:
    return ("bf16", "fp8") if device.fp8 else ("bf16",)


def _measure_cases(
    device: Device, plan: Plan, cases: list[Case], watch: Watch, outcome: Outcome, progress: Progress | None
) -> str:
    """Fill ``outcome.rows``; return how it ended."""
    reference = gemm_case("bf16", 256, 512, 512).make(device, 1)
    source = f"servecast calibrate run on {device.name}, torch {device.facts['torch']}"
    kept = 1 - (_COLLECTIVE_SHARE if rank_counts(device) else 0)
    begin = time.monotonic()
    for number, case in enumerate(cases):
        spent = time.monotonic() - begin
        if spent > kept * plan.budget_s:
            outcome.warnings.append(f"budget of {plan.budget_s:g} s spent: {number} of {len(cases)} cases measured")
            return "budget spent"
        if number % REFERENCE_EVERY == 0:
            watch.reference(measure(reference, device.clock, limit_s=0.2).fastest_s)
        share_s = _SHARES * (kept * plan.budget_s - spent) / (len(cases) - number)
        row = _measure(device, case, min(_CASE_LIMIT_S, share_s), watch, source)
        if row is None:
            outcome.warnings.append(f"out of memory: {case.family} {case.columns}")
        else:
            outcome.rows.append(row)
        if progress:
            progress((number + 1) / len(cases), case.family)
    return "all measured"


def _measure(device: Device, case: Case, limit_s: float, watch: Watch, source: str) -> Row | None:
    """One row; None where the memory did not suffice after all."""
    try:
        call = case.make(device, case.copies(device))
        timing = measure(call, device.clock, limit_s=limit_s)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
            raise
        return None
    watch.timing(timing.stable)
    return {"family": case.family, "dtype": case.dtype, "source": source, **case.columns, **asdict(timing)}


def _measure_collectives(device: Device, plan: Plan, begin: float, outcome: Outcome) -> None:
    """Collectives over as many ranks as the machine holds, while the budget lasts."""
    if plan.families and not set(plan.families) & set(_COLLECTIVES):
        return
    counts = rank_counts(device)
    if not counts:
        outcome.warnings.append("collectives not measured: the machine has one device")
    source = f"servecast calibrate run on {device.name}, torch {device.facts['torch']}"
    for ranks in counts:
        if time.monotonic() - begin > plan.budget_s:
            outcome.warnings.append(f"budget of {plan.budget_s:g} s spent: no collectives over {ranks} ranks")
            return
        try:
            timings = time_collectives(device, ranks)
        except RuntimeError as error:
            outcome.warnings.append(str(error))
            continue
        for timing in timings:
            row = asdict(timing)
            columns = {"bytes": row.pop("size_bytes"), "repeats": 0, "stable": True}
            outcome.rows.append({"dtype": "any", "source": source, **row, **columns})
