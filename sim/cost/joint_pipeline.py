"""Stages of data-parallel ranks that share experts: what a batch of each rank takes in each stage, all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost.collectives import occupied
from sim.cost.joint import Floats, JointModel
from sim.cost.joint_timer import JointTimer
from sim.cost.pipeline import Hop, PipelineTimer, host_before, in_series, stage_hops, stage_models
from sim.cost.shape import AffineRun, StepShape
from sim.cost.speculative import Drafter
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat


class JointPipeline(PipelineTimer):
    """Times of a pipeline of ranks (a `JointStageTimer`) from those of its stages.

    In each stage the ranks step together (`sim.cost.joint`); before it they wait for the host and the hop of the rank
    with the largest batch.

    Args:
        stages: joint step times of each stage.
        host: ticks of host work before a batch enters: (fixed, for each sequence).
        hops: from each stage but the last to the next, of one rank.
        dummies_block: whether the engine waits for a rank's dummy before it goes on.
    """

    def __init__(
        self, stages: Sequence[JointTimer], host: tuple[float, float], hops: Sequence[Hop], *, dummies_block: bool
    ) -> None:
        super().__init__(stages, host, hops)
        self._joint = list(stages)
        self.dummies_block = dummies_block

    def joint_host(self, shapes: Sequence[StepShape]) -> float:
        """Ticks until the batches can enter the first stage."""
        return max(self.host(shape) for shape in shapes)

    def joint_stages(self, shapes: Sequence[StepShape]) -> list[float]:
        """Ticks in each stage."""
        return [stage.joint(shapes) for stage in self._joint]

    def joint_hops(self, shapes: Sequence[StepShape]) -> list[float]:
        """Ticks from each stage but the last to the next."""
        return self.hops(max(shapes, key=lambda shape: shape.tokens))

    def joint(self, shapes: Sequence[StepShape]) -> float:
        """Ticks of batches that wait for nobody."""
        return self.joint_host(shapes) + sum(self.joint_stages(shapes)) + sum(self.joint_hops(shapes))

    def joint_run(self, shapes: Sequence[StepShape], growing_windowed: Sequence[int]) -> AffineRun:
        """Steps of such batches in a row, as long as every stage stays on its line."""
        return in_series(self.joint(shapes), [stage.joint_run(shapes, growing_windowed) for stage in self._joint])

    def joint_times(self, shapes: Sequence[StepShape], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(n,) ticks of decode-only batches that wait for nobody, given n contexts and n windowed ones of each rank."""
        before = self.joint_host(shapes) + sum(self.joint_hops(shapes))
        return np.asarray(before + np.sum([stage.joint_times(shapes, sums) for stage in self._joint], axis=0))


def joint_pipeline_model(
    arch: Architecture,
    weights: WeightFormat,
    kv: KvFormat,
    hardware: HardwareProfile,
    layout: Layout,
    overheads: EngineOverheads,
    *,
    rank_by_rank: bool,
    drafter: Drafter | None = None,
    dummy: int = 1,
    **options: Any,
) -> JointPipeline:
    """The physics of a pipeline of ranks. Arguments are those of `CostModel`, and:

    Args:
        rank_by_rank: vLLM's engine: all stages of a rank lie beside each other, so that the ranks of a stage are as far
            apart as a rank has GPUs, and dummies block. Otherwise all ranks of a stage lie beside each other, as in
            SGLang and TensorRT-LLM, whose ranks are parts of their TP groups.
        drafter: what drafts behind the last stage; None: nothing.
        dummy: tokens of a rank without requests.
    """
    tensor, node = layout.tensor_parallel_size, layout.gpus_per_node
    width, within = tensor * layout.data_parallel_size, node
    if rank_by_rank:
        ranks_of_a_node = max(1, node // (tensor * layout.pipeline_parallel_size))
        width, within = tensor, min(node, tensor * ranks_of_a_node)
    of_a_stage = layout.model_copy(update={"gpus_per_node": within})
    overlap = occupied(layout.all2all_backend, hardware) if layout.enable_dbo else None
    models = stage_models(drafter, arch, weights, kv, hardware, of_a_stage, overheads, **options)
    parts = [JointModel(model, layout.data_parallel_size, overlap=overlap, dummy=dummy) for model in models]
    host = host_before(overheads, options.get("async_scheduling", True))
    hops = stage_hops(hardware, arch.hidden_size, layout, width)
    return JointPipeline(parts, host, hops, dummies_block=rank_by_rank)
