"""Calibrate to a real engine: run the ladder, fit, predict the mixes, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.bench.conditions import Watch
from calibration.engine_runs.fit import EngineFit, fit_engine
from calibration.engine_runs.ladder import FITTED, Load, fitting_loads, mixed_lengths, mixes
from calibration.engine_runs.log import EngineRun, read_runs, write_run
from calibration.engine_runs.overheads import profile_with_engine
from calibration.engine_runs.predict import (
    BatchAgreement,
    measured,
    predict,
    relative_errors,
    replay_batches,
    step_errors,
)
from calibration.engine_runs.vllm_engine import VllmEngine
from hardware_profiles import HardwareProfile
from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.engine.config import EngineConfig
from sim.errors import InputError
from sim.workload import Workload

TARGET: Final = 0.05  # of mean TTFT, TPOT, E2E and throughput, on an idle machine
POOR_FIT: Final = 0.05  # median residual; 1 % on an idle machine
JUDGED: Final = ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """One run that was not fitted on: relative errors as fractions, signed but for the step median."""

    load: str
    requests: int
    errors: dict[str, float]
    step_time_median: float
    batches: BatchAgreement

    @property
    def met(self) -> bool:
        """Whether every judged metric is within the target."""
        return all(abs(self.errors[name]) <= TARGET for name in JUDGED if name in self.errors)


@dataclass(frozen=True, slots=True)
class EngineCalibration:
    """The fit, and how it predicts the runs that it did not see.

    Attributes:
        warnings: sentences that say why to run again.
    """

    fit: EngineFit
    fitted_on: tuple[EngineRun, ...]
    comparisons: tuple[RunComparison, ...]
    warnings: tuple[str, ...]

    def profile(self, hardware: HardwareProfile) -> HardwareProfile:
        """``hardware`` with the host terms of this engine."""
        return profile_with_engine(hardware, self.fitted_on, self.fit.path)


def calibrate_from(runs: dict[str, EngineRun]) -> EngineCalibration:
    """Fit on the runs named ``single*`` and ``batch*``, compare on the others.

    Raises:
        InputError: too few runs to fit on.
    """
    fitted = {name: run for name, run in runs.items() if name.startswith(FITTED)}
    fit = fit_engine(fitted.values())
    compared = [_compare(fit, name, run) for name, run in runs.items() if name not in fitted]
    return EngineCalibration(fit, tuple(fitted.values()), tuple(compared), _warnings(fit, runs))


def calibrate_logs(folder: Path) -> EngineCalibration:
    """As `calibrate_from`, for a folder of logs."""
    return calibrate_from(read_runs(folder))


def calibrate_engine(
    model: dict[str, Any], settings: dict[str, Any], out: Path, requests: int = 40, say: Say = lambda _: None
) -> EngineCalibration:
    """Start an engine with random weights, log the ladder and the mixes to ``out``, fit and compare.

    Args:
        model: a Hugging Face configuration.
        settings: of vLLM's ``AsyncEngineArgs``; ``max_model_len``, ``max_num_seqs``, ``max_num_batched_tokens`` and
            ``block_size`` must be among them.
        out: an existing folder.
        requests: of each mix.
    """
    say("starting the engine")
    engine = VllmEngine(model, settings)
    try:
        longest, seqs = int(settings["max_model_len"]), int(settings["max_num_seqs"])
        loads = fitting_loads(longest, seqs)
        for load in (loads[2], loads[-1]):  # not kept: kernels are compiled, caches and allocators warm up
            engine.serve(load)
        runs = _serve(engine, loads, out, say)
        rate = sustained_rate(fit_engine(runs.values()), next(iter(runs.values())).settings.config())
        runs |= _serve(engine, mixes(rate, requests, longest), out, say)
    finally:
        engine.close()
    return calibrate_from(runs)


def sustained_rate(fit: EngineFit, config: EngineConfig, requests: int = 200) -> float:
    """Requests a second that a never idle engine finishes, lengths as in the mixes, says the simulator."""
    prompts, outputs = mixed_lengths(np.random.default_rng(0), requests, config.max_model_len)
    fleet = Fleet(Workload(np.zeros(requests), prompts, outputs), [config], fit.timer, RoundRobin())
    fleet.run()
    return requests / float(np.max(fleet.recorder.requests.column("finish_s")))


def as_dict(found: EngineCalibration) -> dict[str, Any]:
    """For JSON."""
    return {
        "fitted_on": [run.name for run in found.fitted_on],
        "timer": asdict(found.fit.timer),
        "client_path": asdict(found.fit.path),
        "residual": found.fit.residual.model_dump(),
        "warnings": list(found.warnings),
        "comparisons": [{**asdict(run), "met": run.met} for run in found.comparisons],
    }


def _serve(engine: VllmEngine, loads: Iterable[Load], out: Path, say: Say) -> dict[str, EngineRun]:
    runs = {}
    for load in loads:
        say(f"serving {load.name}: {len(load.prompt_tokens)} requests")
        watch = Watch()
        document = engine.serve(load)
        document["summary"]["warnings"] = watch.conditions().warnings()
        write_run(out / f"{load.name}.json.gz", document)
        runs[load.name] = EngineRun.from_dict(load.name, document)
    return runs


def _warnings(fit: EngineFit, runs: dict[str, EngineRun]) -> tuple[str, ...]:
    """What disturbed the runs, each kind once, and whether the steps follow the fitted form at all."""
    told: dict[str, str] = {}
    for name, run in runs.items():
        for sentence in run.summary.get("warnings", ()):
            told.setdefault(sentence.partition(":")[0], f"{name}: {sentence}")
    if fit.residual.median > POOR_FIT:
        told["fit"] = (
            f"the fit misses its own steps by {fit.residual.median:.0%} (median): run again on an idle machine"
        )
    return tuple(told.values())


def _compare(fit: EngineFit, name: str, run: EngineRun) -> RunComparison:
    return RunComparison(
        load=name,
        requests=len(run.requests),
        errors=relative_errors(predict(fit, run), measured(run)),
        step_time_median=float(np.median(np.abs(step_errors(fit.timer, run)))),
        batches=replay_batches(fit, run),
    )


def check_folder(folder: Path) -> None:
    """Refuse a place that logs cannot be written to before an engine is started."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError("--out", f"cannot make {str(folder)!r} ({error.strerror})", "choose another place") from None
