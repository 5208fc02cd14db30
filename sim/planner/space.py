"""What a plan searches: every deployment that the engine knows, the options allow and the simulator supports."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hardware_profiles import HardwareProfile, load_hardware
from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.memory import check_layout
from sim.models.quantization import resolve_weight_format
from sim.scenario import Scenario
from sim.scenario.support import require_supported
from workloads.spec import WorkloadSpec

_RANKS: Final = (2, 4, 8, 16, 32, 64)
_SPLIT: Final = 4  # most replicas of a phase in the smallest unit of a prefill/decode split
SEQUENCES: Final = (64, 128, 256, 512)
STEP_TOKENS: Final = (2048, 8192, 16384)


@dataclass(frozen=True, slots=True)
class Options:
    """What a plan may choose from, and its budget. None: what the scenario says, or the usual choice.

    Attributes:
        hardware: names or paths of profiles.
        max_gpus: of the whole deployment.
        max_usd_per_hour, max_watts: of the whole deployment; watts at the power limit of every GPU.
        tensor_parallel, pipeline_parallel: sizes to try.
        data_parallel: whether mixture-of-experts models are also tried with data-parallel attention.
        disaggregation: whether prefill and decode are also tried apart.
        quantization, kv_cache_dtype: formats of weights and cache.
        max_num_seqs, max_num_batched_tokens: knobs of the engine.
        usd_per_gpu_hour: {hardware: price} that replaces the profile's.
        min_attainment: share of requests that must meet the bounds on each request, where there are any.
        error_band: relative error of step times within which two deployments tie; None: by the profile.
    """

    hardware: tuple[str, ...] | None = None
    max_gpus: int = 8
    max_usd_per_hour: float | None = None
    max_watts: float | None = None
    tensor_parallel: tuple[int, ...] | None = None
    pipeline_parallel: tuple[int, ...] = (1,)
    data_parallel: bool = True
    disaggregation: bool = False
    quantization: tuple[str | None, ...] | None = None
    kv_cache_dtype: tuple[str, ...] | None = None
    max_num_seqs: tuple[int, ...] | None = None
    max_num_batched_tokens: tuple[int, ...] | None = None
    usd_per_gpu_hour: dict[str, float] = field(default_factory=dict)
    min_attainment: float = 0.99
    error_band: float | None = None


@dataclass(frozen=True, slots=True)
class Split:
    """The smallest unit of a prefill/decode split: engines of each phase, and their link."""

    prefill: int
    decode: int
    prefill_layout: Layout
    decode_layout: Layout
    transfer_gb_per_s: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A kind of deployment; how many of it (`Deployment.replicas`) is another question.

    Attributes:
        hardware: name or path of the profile.
        layout: of one engine; that of a split's decode engines where there is a split.
        split: None where engines do both phases.
        quantization, kv_cache_dtype, max_num_seqs, max_num_batched_tokens: as in the scenario.
    """

    hardware: str
    layout: Layout
    quantization: str | None
    kv_cache_dtype: Any
    max_num_seqs: int
    max_num_batched_tokens: int
    split: Split | None = None

    @property
    def gpus(self) -> int:
        """GPUs of one unit."""
        if self.split is None:
            return self.layout.gpus_per_replica
        s = self.split
        return s.prefill * s.prefill_layout.gpus_per_replica + s.decode * s.decode_layout.gpus_per_replica

    @property
    def group(self) -> Cell:
        """The cell without its knobs: deployments that differ in no more than those are one kind to a reader."""
        return replace(self, max_num_seqs=0, max_num_batched_tokens=0)

    @property
    def key(self) -> tuple[Any, ...]:
        """Sorts cells the same everywhere: hardware, size, layout, formats, knobs."""
        formats = (self.quantization or "", str(self.kv_cache_dtype))
        return (self.hardware, self.gpus, self.label, formats, self.max_num_seqs, self.max_num_batched_tokens)

    @property
    def label(self) -> str:
        """The layout in a few letters: TP4, TP2 PP2, TP8 DP2 EP, 2 x TP2 + 3 x TP4."""
        if self.split is None:
            return self.layout.label
        s = self.split
        return f"{s.prefill} x {s.prefill_layout.label} + {s.decode} x {s.decode_layout.label}"

    def scenario(self, base: Scenario, replicas: int, workload: WorkloadSpec | None = None) -> Scenario:
        """``base`` deployed as ``replicas`` of this cell. Raises `InputError` where that is no scenario."""
        document = base.model_dump(mode="json", exclude={"layout", "workload"})
        document["workload"] = (workload or base.workload).model_dump(mode="json", exclude_none=True)
        document["hardware"] = self.hardware
        document["engine"] |= {
            "quantization": self.quantization,
            "kv_cache_dtype": self.kv_cache_dtype,
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
        }
        if self.split is None:
            document["layout"] = {**self.layout.model_dump(), "replicas": replicas}
            document["cluster"]["disaggregation"] = None
        else:
            document["layout"] = {"gpus_per_node": self.layout.gpus_per_node}
            document["cluster"]["disaggregation"] = self._split(replicas)
        return Scenario.from_dict(document)

    def _split(self, replicas: int) -> dict[str, Any]:
        assert self.split is not None
        s = self.split
        return {
            "prefill": {"replicas": s.prefill * replicas, "layout": s.prefill_layout.model_dump()},
            "decode": {"replicas": s.decode * replicas, "layout": s.decode_layout.model_dump()},
            "transfer_gb_per_s": s.transfer_gb_per_s,
        }


def supported(scenario: Scenario) -> InputError | None:
    """Why the simulator cannot run ``scenario`` at all; None where it can. The one place that a plan asks."""
    try:
        require_supported(scenario)
    except InputError as error:
        return error
    return None


def cells_of(base: Scenario, options: Options) -> list[Cell]:
    """Every cell of at most ``max_gpus`` that divides the model and that the simulator supports, in order of key.

    Raises `InputError` for options that name what there is not.
    """
    _check(options)
    arch = load_model(base.model)
    for quantization in _quantizations(base, options):
        resolve_weight_format(arch, quantization)
    for kv in _kv_dtypes(base, options):
        resolve_kv_format(arch, kv)
    found: list[Cell] = []
    for name in options.hardware or (base.hardware,):
        hardware = load_hardware(name)
        formats = list(itertools.product(_quantizations(base, options), _kv_dtypes(base, options)))
        knobs = list(itertools.product(*_knobs(base, options)))
        for layout, split in _shapes(arch, hardware, base, options):
            for (quantization, kv), (sequences, tokens) in itertools.product(formats, knobs):
                cell = Cell(name, layout, quantization, kv, sequences, tokens, split)
                if cell.gpus <= options.max_gpus:
                    found.append(cell)
    return sorted((cell for cell in found if _runs(base, cell)), key=lambda cell: cell.key)


def _runs(base: Scenario, cell: Cell) -> bool:
    """Whether the cell is a scenario that is supported."""
    try:
        return supported(cell.scenario(base, 1)) is None
    except InputError:
        return False


def _check(options: Options) -> None:
    if options.max_gpus < 1:
        raise InputError("--max-gpus", f"must be at least 1, got {options.max_gpus}")
    for name, value in (("--max-usd-per-hour", options.max_usd_per_hour), ("--max-watts", options.max_watts)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise InputError(name, f"must be more than 0, got {value:g}")
    if not 0 < options.min_attainment <= 1:
        raise InputError(
            "--min-attainment", f"must be a share, more than 0 and at most 1, got {options.min_attainment:g}"
        )
    if options.error_band is not None and not 0 <= options.error_band < 1:
        raise InputError("--error-band", f"must be a share, at least 0 and below 1, got {options.error_band:g}")


def _quantizations(base: Scenario, options: Options) -> tuple[str | None, ...]:
    return options.quantization if options.quantization is not None else (base.engine.quantization,)


def _kv_dtypes(base: Scenario, options: Options) -> tuple[Any, ...]:
    return options.kv_cache_dtype or (base.engine.kv_cache_dtype.model_dump(mode="json"),)


def _knobs(base: Scenario, options: Options) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Values of both knobs: those asked for, else the scenario's own where it gives them, else the usual ones."""
    given = base.given.get("engine", {})
    engine = base.engine
    sequences = options.max_num_seqs or ((engine.max_num_seqs,) if "max_num_seqs" in given else SEQUENCES)
    tokens = options.max_num_batched_tokens or (
        (engine.max_num_batched_tokens,) if "max_num_batched_tokens" in given else STEP_TOKENS
    )
    return tuple(sorted(set(sequences))), tuple(sorted(set(tokens)))


def _shapes(
    arch: Architecture, hardware: HardwareProfile, base: Scenario, options: Options
) -> Iterator[tuple[Layout, Split | None]]:
    layouts = list(_layouts(arch, hardware, options))
    yield from ((layout, None) for layout in layouts)
    if options.disaggregation:
        yield from _splits([layout for layout in layouts if layout.data_parallel_size == 1], hardware, options)


def _layouts(arch: Architecture, hardware: HardwareProfile, options: Options) -> Iterator[Layout]:
    """Layouts of one engine that divide the model: TP within a node, PP as asked, data-parallel attention for MoE."""
    node = hardware.links.gpus_per_node
    experts = any(run.mlp is not None and run.mlp.num_experts for run in arch.layers)
    for tp in options.tensor_parallel or range(1, min(node, options.max_gpus) + 1):
        spread = [(1, False)] + ([(1, True)] if experts and tp > 1 else [])
        spread += [(dp, True) for dp in _RANKS] if experts and options.data_parallel else []
        for pp, (dp, expert_parallel) in itertools.product(options.pipeline_parallel, spread):
            layout = Layout.parse(
                {
                    "tensor_parallel_size": tp,
                    "pipeline_parallel_size": pp,
                    "data_parallel_size": dp,
                    "enable_expert_parallel": expert_parallel,
                    "gpus_per_node": node,
                }
            )
            if layout.gpus_per_replica <= options.max_gpus and _divides(arch, layout):
                yield layout


def _divides(arch: Architecture, layout: Layout) -> bool:
    try:
        check_layout(arch, layout)
    except InputError:
        return False
    return True


def _splits(layouts: list[Layout], hardware: HardwareProfile, options: Options) -> Iterator[tuple[Layout, Split]]:
    """Prefill and decode apart, in every ratio of small numbers; caches travel over the network between nodes."""
    port_gb_per_s = hardware.links.inter_node_bytes_per_s.value / 1e9
    for one, other in itertools.product(layouts, layouts):
        ports = min(one.tensor_parallel_size, other.tensor_parallel_size)
        for prefill, decode in itertools.product(range(1, _SPLIT + 1), repeat=2):
            if math.gcd(prefill, decode) > 1:
                continue
            if prefill * one.gpus_per_replica + decode * other.gpus_per_replica <= options.max_gpus:
                yield other, Split(prefill, decode, one, other, port_gb_per_s * ports)
