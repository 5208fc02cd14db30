"""Physics: pure functions from a step's aggregates to seconds."""

from sim.cost.linear import LinearStepTimer
from sim.cost.shape import AffineRun, StepShape, StepTimer
from sim.cost.step import CostModel

__all__ = ["AffineRun", "CostModel", "LinearStepTimer", "StepShape", "StepTimer"]
