"""Step times stretched by one factor: a machine that is slower or faster than its profile says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from sim.cost.joint import JointModel
from sim.cost.joint_pipeline import JointPipeline
from sim.cost.pipeline import PipelineTimer
from sim.cost.shape import AffineRun, StepShape, StepTimer


class PacedTimer:
    """A `StepTimer` whose steps take ``factor`` times those of ``timer``, the host's share included."""

    def __init__(self, timer: StepTimer, factor: float) -> None:
        self.window = timer.window
        self._timer = timer
        self._factor = factor

    def step(self, shape: StepShape) -> float:
        """Duration of one step."""
        return self._factor * self._timer.step(shape)

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """The same line, steeper by the factor."""
        return _stretched(self._timer.decode_run(shape, growing_windowed), self._factor)

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """(n,) durations of decode-only steps."""
        return self._factor * self._timer.decode_times(shape, context, windowed)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator, each stretched alike."""
        return {name: self._factor * seconds for name, seconds in self._timer.breakdown(shape).items()}


class PacedJoint(PacedTimer):
    """The same for ranks that step together."""

    def __init__(self, timer: JointModel | JointPipeline, factor: float) -> None:
        PacedTimer.__init__(self, timer, factor)
        self._ranks = timer

    def joint(self, shapes: Sequence[StepShape]) -> float:
        """Duration of a step of all ranks."""
        return self._factor * self._ranks.joint(shapes)

    def joint_times(
        self, shapes: Sequence[StepShape], sums: Sequence[tuple[NDArray[Any], NDArray[Any]]]
    ) -> NDArray[Any]:
        """(n,) durations of decode-only steps of all ranks."""
        return self._factor * self._ranks.joint_times(shapes, sums)

    def joint_run(self, shapes: Sequence[StepShape], growing_windowed: Sequence[int]) -> AffineRun:
        """Decode-only steps of all ranks."""
        return _stretched(self._ranks.joint_run(shapes, growing_windowed), self._factor)


class PacedPipeline(PacedTimer):
    """The same for the stages of a pipeline, its hosts and its hops."""

    def __init__(self, timer: PipelineTimer, factor: float) -> None:
        super().__init__(timer, factor)
        self._pipeline = timer

    def host(self, shape: StepShape) -> float:
        """Until a batch can enter the first stage."""
        return self._factor * self._pipeline.host(shape)

    def stages(self, shape: StepShape) -> list[float]:
        """Time in each stage."""
        return [self._factor * seconds for seconds in self._pipeline.stages(shape)]

    def hops(self, shape: StepShape) -> list[float]:
        """Time from each stage but the last to the next."""
        return [self._factor * seconds for seconds in self._pipeline.hops(shape)]


class PacedJointPipeline(PacedJoint, PacedPipeline):
    """The same for stages of ranks that step together."""

    def __init__(self, timer: JointPipeline, factor: float) -> None:
        PacedJoint.__init__(self, timer, factor)
        self._pipeline = self._rounds = timer
        self.dummies_block = timer.dummies_block

    def joint_host(self, shapes: Sequence[StepShape]) -> float:
        """Until the batches can enter the first stage."""
        return self._factor * self._rounds.joint_host(shapes)

    def joint_stages(self, shapes: Sequence[StepShape]) -> list[float]:
        """Time in each stage."""
        return [self._factor * seconds for seconds in self._rounds.joint_stages(shapes)]

    def joint_hops(self, shapes: Sequence[StepShape]) -> list[float]:
        """Time from each stage but the last to the next."""
        return [self._factor * seconds for seconds in self._rounds.joint_hops(shapes)]


def paced(timer: StepTimer, factor: float) -> StepTimer:
    """``timer`` with every step ``factor`` times as long; itself where that changes nothing."""
    if factor == 1.0:
        return timer
    if isinstance(timer, JointPipeline):
        return PacedJointPipeline(timer, factor)
    if isinstance(timer, JointModel):
        return PacedJoint(timer, factor)
    if isinstance(timer, PipelineTimer):
        return PacedPipeline(timer, factor)
    return PacedTimer(timer, factor)


def _stretched(run: AffineRun, factor: float) -> AffineRun:
    return AffineRun(factor * run.first, factor * run.increment, run.steps)
