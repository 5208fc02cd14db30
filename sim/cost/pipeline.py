"""Pipeline parallelism: what each stage of layers takes, and what lies between two stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hardware_profiles.assume import collective_fit
from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost import kernels
from sim.cost.laws import ACTIVATION_BYTES
from sim.cost.shape import AffineRun, StepShape, StepTimer
from sim.cost.speculative import Drafter, LookupDrafter, SpeculativeCostModel
from sim.cost.step import CostModel
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat
from sim.models.sharding import stages

_TENSORS: Final = 2  # hidden states and residual
# Assumed: a send and its receive over NVLink, over PCIe, between nodes; and the share of the link that they reach.
_ALPHA_S: Final = {"nvlink": 10e-6, "c2c": 10e-6, "infinity-fabric": 10e-6, "pcie": 15e-6}
_ALPHA_BETWEEN_NODES_S: Final = 25e-6
_LINK: Final = 0.7


class Hop(Protocol):
    """Ticks from one stage to the next for a batch of so many tokens."""

    def __call__(self, tokens: int) -> float:
        """Ticks for ``tokens`` tokens."""
        ...


def in_series(first: float, runs: Sequence[AffineRun]) -> AffineRun:
    """Steps that pass stages one after the other, the first in ``first``: on a line as long as each of ``runs`` is."""
    increment, steps = 0.0, math.inf
    for _, slope, length in runs:
        increment += slope
        steps = min(steps, length)
    return AffineRun(first, increment, steps)


class PipelineTimer:
    """Times of a pipeline (a `sim.engine.pipelined.StageTimer`) from those of its stages.

    A batch alone takes the host's time, every stage and every hop between; many batches in flight are limited by the
    slowest stage. A hop delays its batch and occupies no stage: sends and receives run beside the kernels.

    Args:
        stages: step times of each stage.
        host: ticks of host work before a batch enters: (fixed, for each sequence).
        hops: from each stage but the last to the next.
    """

    def __init__(self, stages: Sequence[StepTimer], host: tuple[float, float], hops: Sequence[Hop]) -> None:
        self.window = stages[0].window
        self._stages = list(stages)
        self._host = host
        self._hops = list(hops)

    def host(self, shape: StepShape) -> float:
        """Ticks until a batch can enter the first stage."""
        fixed, each = self._host
        return fixed + each * (shape.decode_seqs + shape.prefill_seqs)

    def stages(self, shape: StepShape) -> list[float]:
        """Ticks in each stage."""
        return [stage.step(shape) for stage in self._stages]

    def hops(self, shape: StepShape) -> list[float]:
        """Ticks from each stage but the last to the next."""
        tokens = shape.tokens
        return [hop(tokens) for hop in self._hops] if tokens else [0] * len(self._hops)

    # -- the StepTimer protocol: a batch alone --------------------------------------------------------------------

    def step(self, shape: StepShape) -> float:
        """Ticks of a batch that waits for nobody."""
        if not shape.tokens:
            return 0
        return self.host(shape) + sum(self.stages(shape)) + sum(self.hops(shape))

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Steps of a batch alone, as long as every stage stays on its line."""
        return in_series(self.step(shape), [stage.decode_run(shape, growing_windowed) for stage in self._stages])

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """Durations of decode-only steps of a batch alone, one for each context."""
        total = np.zeros(len(context)) + self.host(shape) + sum(self.hops(shape))
        for stage in self._stages:
            total += stage.decode_times(shape, context, windowed)
        return total

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator over all stages; ``pipeline_transfer`` are the hops."""
        if not shape.tokens:
            return {}
        parts: dict[str, float] = {}
        for stage in self._stages:
            for name, seconds in stage.breakdown(shape).items():
                parts[name] = parts.get(name, 0.0) + seconds
        parts["host"] = parts.get("host", 0.0) + self.host(shape)
        parts["pipeline_transfer"] = sum(self.hops(shape))
        return parts


class Share:
    """One of ``parts`` equal stages of a step whose whole time is given, in whole ticks."""

    def __init__(self, whole: StepTimer, parts: int) -> None:
        self.window = whole.window
        self._whole = whole
        self._parts = parts

    def step(self, shape: StepShape) -> int:
        """Ticks of the stage, rounded up."""
        return math.ceil(self._whole.step(shape) / self._parts)

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Equal steps for as long as the members stay the same: given times do not depend on contexts."""
        return AffineRun(self.step(shape), 0, math.inf)

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """The same time at every context."""
        return np.full(len(context), self.step(shape))

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """The share of each part."""
        return {name: seconds / self._parts for name, seconds in self._whole.breakdown(shape).items()}


def pipeline_model(
    arch: Architecture,
    weights: WeightFormat,
    kv: KvFormat,
    hardware: HardwareProfile,
    layout: Layout,
    overheads: EngineOverheads,
    drafter: Drafter | None = None,
    **options: Any,
) -> PipelineTimer:
    """The physics of a pipeline: a `CostModel` a stage. Arguments are those of `CostModel`, and what drafts behind it.

    Every stage has a host of its own. With ``async_scheduling`` it prepares a batch while its GPU runs the one before,
    and only the planning of a batch comes before its first kernel; without, each stage takes host and GPU time.
    """
    models = stage_models(drafter, arch, weights, kv, hardware, layout, overheads, **options)
    host = host_before(overheads, options.get("async_scheduling", True))
    return PipelineTimer(models, host, stage_hops(hardware, arch.hidden_size, layout, layout.tensor_parallel_size))


def stage_models(
    drafter: Drafter | None, arch: Architecture, weights: WeightFormat, kv: KvFormat, *others: Any, **options: Any
) -> list[CostModel]:
    """A `CostModel` a stage; the last one drafts. ``others``: hardware, layout and overheads."""
    parts = list(stages(arch, others[1]))
    model = (arch, weights, kv, *others)
    if drafter is None:
        return [CostModel(*model, **options, stage=part) for part in parts]
    none = LookupDrafter(0.0, drafter.rows_per_draft)
    return [SpeculativeCostModel(drafter if part.last else none, *model, **options, stage=part) for part in parts]


def host_before(overheads: EngineOverheads, ahead: bool) -> tuple[float, float]:
    """Host seconds before a batch enters the first stage, fixed and for each sequence; 0 where no host runs ahead."""
    return (overheads.step_host_s.value, overheads.seq_host_s.value) if ahead else (0.0, 0.0)


def stage_hops(hardware: HardwareProfile, hidden: int, layout: Layout, width: int) -> list[Hop]:
    """The hops of a pipeline whose stages take ``width`` GPUs each, one stage's beside the next one's."""
    count, node = layout.pipeline_parallel_size, layout.gpus_per_node
    crossings = [(index + 1) * width % node == 0 and count * width > node for index in range(count - 1)]
    return [activation_hop(hardware, hidden, layout, out) for out in crossings]


def activation_hop(hardware: HardwareProfile, hidden: int, layout: Layout, between_nodes: bool) -> Hop:
    """Seconds to hand a batch to the next stage: hidden states and residual in 16 bit.

    Each TP rank sends its share to its counterpart, which gathers the rest from its own stage
    (vllm/distributed/parallel_state.py, send_tensor_dict with all_gather_group).
    """
    links, tensor = hardware.links, layout.tensor_parallel_size
    link = links.inter_node_bytes_per_s.value if between_nodes else links.gpu_bytes_per_s.value
    alpha = _ALPHA_BETWEEN_NODES_S if between_nodes else _ALPHA_S.get(links.kind, _ALPHA_BETWEEN_NODES_S)
    per_token = _TENSORS * ACTIVATION_BYTES * hidden
    gather = None
    if tensor > 1:
        fit = collective_fit(hardware, "all_gather", tensor, layout.gpus_per_node)
        gather = kernels.collective(fit, per_token)

    def seconds(tokens: int) -> float:
        sent = alpha + tokens * per_token / tensor / (link * _LINK)
        return sent + gather(tokens) if gather else sent

    return seconds
