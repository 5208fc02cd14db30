"""Every target of accuracy beside what was reached, and why where it was missed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibration.accuracy_chain import (
    LOOP_RUNS,
    LOOP_TARGETS,
    fitted_devices,
    kernel_residuals,
    worst_engine_error,
)
from calibration.accuracy_tables import table, title_of
from calibration.accuracy_text import REASONS
from calibration.engine_runs.calibrate import EngineCalibration
from calibration.validate import Report
from hardware_profiles.figures import Residual

TARGETS: Final = {"ttft_s.mean": 6.0, "tpot_s.mean": 2.5, "e2e_s.mean": 2.5, "e2e_s.p99": 4.0, "ttft_s.p99": 12.0}
PAST_TARGETS: Final = {"throughput.requests_per_s": 5.0, "throughput.output_tokens_per_s": 5.0}
CLOSED_TARGETS: Final = {"ttft_s.mean": 25.0, "tpot_s.mean": 8.0}
WORST_E2E: Final = 10.0
_KERNELS: Final = {
    "gemm bf16": "bf16 products",
    "gemm fp8": "fp8 products",
    "gemm fp8_block": "block-scaled fp8 products",
    "decode_attention bf16": "decode attention",
    "decode_attention fp8": "decode attention, fp8 cache",
    "prefill_attention bf16": "prefill attention",
    "prefill_attention fp8": "prefill attention, fp8 cache",
    "all_reduce": "all-reduce",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """One target in per cent: ``reason`` names why it may be missed."""

    what: str
    target: float
    reached: float
    where: str = ""
    reason: str = ""

    @property
    def met(self) -> bool:
        """Whether it was reached, at the precision that is shown."""
        return round(self.reached, 2) <= self.target


def standings(cases: Report, engine: EngineCalibration) -> list[Standing]:
    """All targets: of whole runs, of kernels (the worst device counts), of the real engine, of the closed loop."""
    return [*_runs(cases), *_kernels(), *_chain(engine)]


def targets_table(found: list[Standing]) -> str:
    """A row a target; bold where it was missed."""
    rows = []
    for each in found:
        verdict = "met" if each.met else f"**missed by {each.reached - each.target:.2g}**"
        rows.append([each.what, f"{each.target:g}", f"{each.reached:.2f}", each.where, verdict])
    return table(("target", "at most, %", "reached, %", "worst where", ""), rows)


def reasons(found: list[Standing]) -> Iterator[str]:
    """A paragraph for every reason of a miss."""
    missed: dict[str, list[str]] = {}
    for each in found:
        if not each.met:
            missed.setdefault(each.reason, []).append(each.what)
    for reason, whats in missed.items():
        yield f"**{'; '.join(whats)}.** {REASONS.get(reason, 'Not explained.')}"


def _runs(cases: Report) -> Iterator[Standing]:
    below = cases.where(knee="below", group="report").summary()
    for key, target in TARGETS.items():
        if key in below:
            yield Standing(f"below the knee, {title_of(key)}, median", target, below[key].mdape, reason=key)
    worst = below.get("e2e_s.mean")
    if worst is not None:
        yield Standing("below the knee, E2E mean, worst", WORST_E2E, abs(worst.worst), worst.worst_case, "e2e worst")
    past = cases.where(knee="past").summary()
    for key, target in PAST_TARGETS.items():
        if key in past:
            yield Standing(f"past the knee, {title_of(key)}, median", target, past[key].mdape, reason="past")
    closed = cases.where(knee="closed loop").summary()
    for key, target in CLOSED_TARGETS.items():
        if key in closed:
            yield Standing(f"fixed concurrency, {title_of(key)}, median", target, closed[key].mdape, reason="closed")


def _kernels() -> Iterator[Standing]:
    for key, shown in _KERNELS.items():
        for index, statistic in enumerate(("median", "p90")):
            found = [
                Standing(f"{shown}, {statistic}", target[index], 100 * reached, where, _why(key))
                for where, (residual, target) in _devices(key)
                for reached in [(residual.median, residual.p90)[index]]
            ]
            if found:
                yield max(found, key=lambda each: each.reached)


def _devices(kernel: str) -> Iterator[tuple[str, tuple[Residual, tuple[float, float]]]]:
    """(device, (residual, target)) of one kind of kernel; of collectives one for each number of GPUs."""
    for profile in fitted_devices():
        for name, found in kernel_residuals(profile).items():
            family, _, ranks = name.partition(" ")
            if name == kernel:
                yield profile.name, found
            elif family == kernel:
                yield f"{profile.name}, {ranks} GPUs", found


def _why(kernel: str) -> str:
    return "all-reduce" if kernel == "all_reduce" else "attention" if "attention" in kernel else "products"


def _chain(engine: EngineCalibration) -> Iterator[Standing]:
    error, target = worst_engine_error(engine)
    yield Standing("real engine, any of TTFT, TPOT, E2E, tokens/s", target, error, "", "engine")
    step = max(LOOP_RUNS, key=lambda run: run.step_median)
    rate = max(LOOP_RUNS, key=lambda run: abs(run.tokens_per_s))
    yield Standing("closed loop on a CPU, step time, median", LOOP_TARGETS[0], step.step_median, step.load, "loop")
    yield Standing("closed loop on a CPU, tokens/s", LOOP_TARGETS[1], abs(rate.tokens_per_s), rate.load, "loop")
