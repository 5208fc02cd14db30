"""The parts of docs/accuracy.md below whole deployments: kernels, logs of a real engine, the closed loop on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from calibration.accuracy_tables import table
from calibration.engine_runs.calibrate import JUDGED, TARGET, EngineCalibration, calibrate_logs
from hardware_profiles import HardwareProfile, hardware_names, load_hardware
from hardware_profiles.figures import Residual

ENGINE_RUNS: Final = Path("tests", "calibration", "engine_runs")
#: Median and p90 in per cent: products (n, k >= 1024), decode attention (batch <= 512), prefill attention, all-reduce.
KERNEL_TARGETS: Final = {
    ("gemm", "bf16"): (6.0, 18.0),
    ("gemm", "fp8"): (12.0, 35.0),
    ("gemm", "fp8_block"): (12.0, 35.0),
    ("decode_attention", "bf16"): (5.0, 15.0),
    ("decode_attention", "fp8"): (5.0, 15.0),
    ("prefill_attention", "bf16"): (6.0, 25.0),
    ("prefill_attention", "fp8"): (6.0, 25.0),
}
COLLECTIVE_TARGET: Final = (4.0, 15.0)
#: What no target was set for.
UNTARGETED: Final = {
    ("mla_decode", "bf16"): "MLA decode bf16",
    ("mla_decode", "fp8"): "fp8 cache",
    ("mla_prefill", "bf16"): "MLA prefill bf16",
    ("experts", "bf16"): "experts bf16",
    ("experts", "fp8"): "fp8",
    ("experts", "fp8_block"): "fp8 block",
}
_RANKS: Final = (2, 4, 8)
_HEADS: Final = ("device", "bf16 products", "fp8", "fp8 block", "decode attention bf16", "fp8 cache",
                 "prefill attention bf16", "fp8 cache", *(f"all-reduce, {ranks} GPUs" for ranks in _RANKS))  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopRun:
    """One load of a recorded run of the closed loop; errors in per cent, signed but for the steps'."""

    load: str
    step_median: float
    step_p90: float
    ttft: float
    tpot: float
    e2e: float
    tokens_per_s: float


LOOP_TARGETS: Final = (15.0, 10.0)  # median step time, throughput
LOOP_SOURCE: Final = "`servecast calibrate check --end-to-end`, 2026-11-30, two-core AMD EPYC, torch 2.13.0, wall clock"
LOOP_RUNS: Final = (
    LoopRun("gqa moderate", 19.6, 33.9, -14.6, -26.0, -25.6, 3.5),
    LoopRun("gqa saturated", 7.5, 21.3, -4.0, -4.0, -4.7, 6.7),
    LoopRun("mla moderate", 7.5, 19.2, -4.0, -2.9, -2.7, 1.4),
    LoopRun("mla saturated", 3.3, 9.5, -2.8, -1.9, -1.6, 0.2),
    LoopRun("gqa moderate, two hours later", 4.0, 17.3, -0.2, -1.1, -1.8, 2.8),
    LoopRun("gqa saturated, two hours later", 3.5, 16.2, -5.9, -4.4, -5.1, 4.8),
)


def fitted_devices() -> list[HardwareProfile]:
    """Profiles fitted to kernel tables."""
    return [profile for profile in map(load_hardware, hardware_names()) if profile.calibrated]


def kernel_residuals(profile: HardwareProfile) -> dict[str, tuple[Residual, tuple[float, float]]]:
    """{what: (residual on rows that the fit did not see, target)} of one device."""
    found = {}
    for (family, dtype), target in KERNEL_TARGETS.items():
        section = getattr(profile.kernels, family).get(dtype)
        if section is not None and section.residual is not None:
            found[f"{family} {dtype}"] = (section.residual, target)
    for section in profile.kernels.collectives.get("all_reduce", ()):
        if section.residual is not None:
            found[f"all_reduce {section.ranks}"] = (section.residual, COLLECTIVE_TARGET)
    return found


def missed_kernels() -> list[str]:
    """``device, family: median / p90`` of every residual beyond its target."""
    return [
        f"{profile.name} {name.replace('_', ' ')} {_pair(residual)}"
        for profile in fitted_devices()
        for name, (residual, target) in kernel_residuals(profile).items()
        if _missed(residual, target)
    ]


def kernel_table() -> str:
    """A row a device: median / p90 in per cent, bold where a target is missed."""
    names = [*(f"{family} {dtype}" for family, dtype in KERNEL_TARGETS), *(f"all_reduce {ranks}" for ranks in _RANKS)]
    targets = [*KERNEL_TARGETS.values(), *(COLLECTIVE_TARGET for _ in _RANKS)]
    rows = [["*target*", *(f"*{median:g} / {p90:g}*" for median, p90 in targets)]]
    for profile in fitted_devices():
        found = kernel_residuals(profile)
        rows.append([profile.name, *(_cell(*found[name]) if name in found else "-" for name in names)])
    return table(_HEADS, rows)


def untargeted_table() -> str:
    """The same for latent attention and experts, which have no targets."""
    rows = []
    for profile in fitted_devices():
        sections = [getattr(profile.kernels, family).get(dtype) for family, dtype in UNTARGETED]
        rows.append([profile.name, *(_pair(each.residual) if each and each.residual else "-" for each in sections)])
    return table(("device", *UNTARGETED.values()), rows)


def engine_runs(folder: Path = ENGINE_RUNS) -> EngineCalibration:
    """Logs of a real engine, fitted on single prompts and batches."""
    return calibrate_logs(folder)


def engine_table(found: EngineCalibration) -> str:
    """A row a load that was not fitted on: signed errors in per cent."""
    rows = [
        [
            run.load,
            str(run.requests),
            *(f"{100 * run.errors[name]:+.1f}" for name in JUDGED),
            f"{100 * run.step_time_median:.1f}",
            f"{run.batches.equal:,} of {run.batches.steps:,}",
        ]
        for run in found.comparisons
    ]
    return table(("load", "requests", "TTFT", "TPOT", "E2E", "tokens/s", "step time, median", "equal batches"), rows)


def worst_engine_error(found: EngineCalibration) -> tuple[float, float]:
    """The largest judged error, and the target, per cent."""
    return max(100 * abs(run.errors[name]) for run in found.comparisons for name in JUDGED), 100 * TARGET


def loop_table() -> str:
    """The recorded runs of the closed loop, bold where a target is missed."""
    step, rate = LOOP_TARGETS
    rows = [
        [
            run.load,
            _bold(f"{run.step_median:.1f}", run.step_median > step),
            f"{run.step_p90:.1f}",
            *(f"{error:+.1f}" for error in (run.ttft, run.tpot, run.e2e)),
            _bold(f"{run.tokens_per_s:+.1f}", abs(run.tokens_per_s) > rate),
        ]
        for run in LOOP_RUNS
    ]
    return table(("load", "steps, median", "steps, p90", "TTFT", "TPOT", "E2E", "tokens/s"), rows)


def _cell(residual: Residual, target: tuple[float, float]) -> str:
    return _bold(_pair(residual), _missed(residual, target))


def _pair(residual: Residual) -> str:
    return f"{100 * residual.median:.1f} / {100 * residual.p90:.1f}"


def _missed(residual: Residual, target: tuple[float, float]) -> bool:
    return 100 * residual.median > target[0] or 100 * residual.p90 > target[1]


def _bold(text: str, loud: bool) -> str:
    return f"**{text}**" if loud else text
