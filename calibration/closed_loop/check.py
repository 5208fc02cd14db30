"""The end-to-end check: measure the kernels, fit, predict, run for real, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from calibration.bench.attention import heads_of
from calibration.bench.conditions import Watch
from calibration.bench.device import Device
from calibration.bench.run import Plan, run_benchmarks
from calibration.closed_loop.decoder import Chunk, Decoder, padded
from calibration.closed_loop.loop import PROMPT_TOKEN, ClosedLoop, CoreClock, WallClock
from calibration.closed_loop.model import CONFIGS, architecture
from calibration.closed_loop.profile import machine_profile
from calibration.engine_runs.log import EngineRun
from calibration.engine_runs.overheads import fit_host, no_overheads
from calibration.engine_runs.predict import RunMetrics, measured, predict_with, relative_errors, step_errors
from calibration.fit import fit_kernels
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cluster.fleet import ClientPath
from sim.cost import CostModel
from sim.cost.shape import StepTimer
from sim.engine.config import EngineConfig
from sim.errors import InputError, nearest
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.kv_format import resolve_kv_format
from sim.models.quantization import resolve_weight_format
from sim.workload import Workload

STEP_TARGET: Final = 0.15  # median error of a step's time, on an idle machine
THROUGHPUT_TARGET: Final = 0.10
SLOTS: Final = 16
TOKENS: Final = 256  # of a step, at most
LOADS: Final = {"moderate": 0.7, "saturated": 4.0}  # arrivals, as parts of the rate that can be sustained

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LoadCheck:
    """One load: relative errors of the prediction, as fractions, signed but for the median."""

    load: str
    requests: int
    steps: int
    step_time_median: float
    step_time_p90: float
    step_time_bias: float
    errors: dict[str, float]

    @property
    def met(self) -> bool:
        """Whether both targets hold."""
        throughput = abs(self.errors["output_tokens_per_s"])
        return self.step_time_median <= STEP_TARGET and throughput <= THROUGHPUT_TARGET


@dataclass(slots=True)
class ModelCheck:
    """One model: the profile's residuals, the host terms, and every load."""

    model: str
    kernels: dict[str, float]
    step_host_s: float
    seq_host_s: float
    loads: list[LoadCheck] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much of everything: the full check, or the small one of a test."""

    bench_s: float
    requests: int
    repeats: int
    max_model_len: int
    mean_prompt: int
    mean_output: int


FULL: Final = Sizes(90.0, 60, 2, 1024, 160, 40)
SMALL: Final = Sizes(12.0, 16, 1, 512, 64, 12)


def check_end_to_end(
    device: Device, models: Iterable[str], sizes: Sizes, say: Say = lambda _: None
) -> list[ModelCheck]:
    """Profile the CPU for each model, predict two Poisson loads, serve them for real, and compare.

    Raises:
        InputError: an unknown model, or a device other than the CPU.
    """
    if device.kind != "cpu":
        raise InputError("--device", f"the closed loop runs on the CPU, not on {device.kind!r}", "use --device cpu")
    return [_check_model(device, name, sizes, say) for name in models]


def _check_model(device: Device, name: str, sizes: Sizes, say: Say) -> ModelCheck:
    if name not in CONFIGS:
        raise InputError("--models", f"unknown model {name!r}", nearest(name, CONFIGS))
    watch = Watch()
    arch = architecture(name)
    hardware = _profile(device, arch, sizes, say)
    kernels = cost_model(arch, hardware, no_overheads(TOKENS))
    loop = _Runner(device, arch, sizes)
    say(f"{name}: single prompts and batches, for the host terms")
    overheads = fit_host(kernels, loop.ladder(), TOKENS)
    timer = cost_model(arch, hardware, overheads)
    found = ModelCheck(name, _residuals(hardware), overheads.step_host_s.value, overheads.seq_host_s.value)
    capacity = _capacity(timer, loop)
    for load, part in LOADS.items():
        say(f"{name}: {load} load, predicted and served")
        found.loads.append(_check_load(timer, loop.serve(load, part * capacity, sizes.requests)))
    found.warnings = watch.conditions().warnings()
    return found


def cost_model(arch: Architecture, hardware: HardwareProfile, overheads: EngineOverheads) -> CostModel:
    """Step times of one CPU: 16-bit weights and cache, no parallel layout, no overlap of host and kernels."""
    return CostModel(
        arch,
        resolve_weight_format(arch, "bf16"),
        resolve_kv_format(arch, "bf16"),
        hardware,
        Layout.parse({}),
        overheads,
        async_scheduling=False,
    )


def _profile(device: Device, arch: Architecture, sizes: Sizes, say: Say) -> HardwareProfile:
    import pandas as pd

    latent = any(heads.latent for heads in heads_of(arch, 1))
    attention = ("mla_decode", "mla_prefill") if latent else ("decode_attention", "prefill_attention")
    say(f"{arch.name}: microbenchmarks, {sizes.bench_s:g} s")
    plan = Plan(arch, 1, sizes.bench_s, ("gemm", "elementwise", *attention))
    outcome = run_benchmarks(device, plan)
    rows = pd.DataFrame(outcome.rows)
    hardware = machine_profile(rows, outcome.metadata)
    return hardware.model_copy(update={"kernels": fit_kernels(rows, hardware)})


class _Runner:
    """Serves workloads with one decoder."""

    def __init__(self, device: Device, arch: Architecture, sizes: Sizes) -> None:
        self.config = EngineConfig(
            num_gpu_blocks=SLOTS * -(-sizes.max_model_len // 16) + 1,
            block_size=16,
            max_num_seqs=SLOTS,
            max_num_batched_tokens=TOKENS,
            max_model_len=sizes.max_model_len,
            enable_prefix_caching=False,
            async_scheduling=False,
        )
        self.sizes = sizes
        self._clock = WallClock if device.facts["clock"] == "wall" else CoreClock
        self._decoder = Decoder(device.torch, arch, SLOTS, sizes.max_model_len)

    def run(self, name: str, workload: Workload) -> EngineRun:
        """Serve ``workload`` now."""
        return ClosedLoop(self._decoder, self.config, workload, self._clock).run(name)

    def ladder(self) -> list[EngineRun]:
        """Single prompts of several lengths and batches of one length, after every shape has been computed once."""
        longest = self.sizes.max_model_len // 4
        self._warm_up()
        singles = [_together([length], 8) for length in (16, 64, longest) for _ in range(self.sizes.repeats)]
        batches = [_together([32] * size, 12) for size in (2, 4, 8, SLOTS) for _ in range(self.sizes.repeats)]
        return [self.run("ladder", workload) for workload in (*singles, *batches)]

    def _warm_up(self) -> None:
        for tokens in sorted({padded(tokens) for tokens in range(1, TOKENS + 1)}):
            self._decoder.step([Chunk(0, [PROMPT_TOKEN] * tokens, 0, True)])
        for seqs in range(1, SLOTS + 1):
            self._decoder.step([Chunk(slot, [PROMPT_TOKEN], 16, True) for slot in range(seqs)])

    def serve(self, name: str, rate_per_s: float, requests: int) -> EngineRun:
        """Serve Poisson arrivals of mixed lengths."""
        return self.run(name, self.mix(rate_per_s, requests))

    def mix(self, rate_per_s: float, requests: int) -> Workload:
        """Exponential gaps, exponential prompt and output lengths (at least 4 and 2 tokens)."""
        draw = np.random.default_rng(11)
        longest = self.sizes.max_model_len // 2 - 1
        prompts = np.clip(draw.exponential(self.sizes.mean_prompt, requests), 4, longest)
        outputs = np.clip(draw.exponential(self.sizes.mean_output, requests), 2, longest)
        arrivals = np.cumsum(draw.exponential(1.0, requests)) / rate_per_s
        return Workload(arrivals - arrivals[0], prompts.astype(np.int64), outputs.astype(np.int64))


def _together(prompts: list[int], outputs: int) -> Workload:
    count = len(prompts)
    return Workload(np.zeros(count), np.array(prompts), np.full(count, outputs))


def _capacity(timer: StepTimer, loop: _Runner) -> float:
    """Requests a second that the simulator says the loop can finish when it is never idle."""
    from sim.cluster.fleet import Fleet
    from sim.cluster.router import RoundRobin

    workload = loop.mix(1e6, 4 * loop.sizes.requests)
    fleet = Fleet(workload, [loop.config], timer, RoundRobin())
    fleet.run()
    return len(workload) / float(np.max(fleet.recorder.requests.column("finish_s")))


def _check_load(timer: StepTimer, run: EngineRun) -> LoadCheck:
    errors = step_errors(timer, run)
    predicted: RunMetrics = predict_with(timer, ClientPath(), run)
    return LoadCheck(
        load=run.name,
        requests=len(run.requests),
        steps=len(run.steps),
        step_time_median=float(np.median(np.abs(errors))),
        step_time_p90=float(np.quantile(np.abs(errors), 0.9)),
        step_time_bias=float(np.median(errors)),
        errors=relative_errors(predicted, measured(run)),
    )


def _residuals(hardware: HardwareProfile) -> dict[str, float]:
    """Median residual of each fitted section."""
    found: dict[str, float] = {}
    for family, sections in hardware.kernels:
        fits = sections.values() if isinstance(sections, dict) else [sections]
        for fit in fits:
            if getattr(fit, "residual", None) is not None:
                found[family] = fit.residual.median
    return found


def as_dict(check: ModelCheck) -> dict[str, Any]:
    """For JSON."""
    return asdict(check)
