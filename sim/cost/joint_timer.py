"""What ranks that step together ask of the physics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from sim.cost.shape import AffineRun, StepShape, StepTimer

Floats = NDArray[Any]


class JointTimer(StepTimer, Protocol):
    """How long a step of several ranks takes; ranks without tokens are left out of the shapes."""

    def joint(self, shapes: Sequence[StepShape]) -> float:
        """Ticks of a step of all ranks."""
        ...

    def joint_run(self, shapes: Sequence[StepShape], growing_windowed: Sequence[int]) -> AffineRun:
        """Ticks of decode-only steps of all ranks in a row."""
        ...

    def joint_times(self, shapes: Sequence[StepShape], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(n,) ticks of decode-only steps of all ranks, given n contexts and n windowed ones of each rank."""
        ...


class JointStageTimer(JointTimer, Protocol):
    """How long the batches of several ranks take in each stage. ``joint`` is that of a round alone.

    Attributes:
        dummies_block: a rank that runs a dummy waits until that has left the last stage.
    """

    dummies_block: bool

    def joint_host(self, shapes: Sequence[StepShape]) -> float:
        """Ticks until the batches can enter the first stage."""
        ...

    def joint_stages(self, shapes: Sequence[StepShape]) -> list[float]:
        """Ticks in each stage; ranks without tokens are left out of the shapes."""
        ...

    def joint_hops(self, shapes: Sequence[StepShape]) -> list[float]:
        """Ticks from each stage but the last to the next."""
        ...
