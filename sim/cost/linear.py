"""The step time of scheduling tests: whole microseconds, linear in tokens and sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.shape import AffineRun, StepShape

Counts = NDArray[Any]


class LinearStepTimer:
    """``base_us + per_token_us * tokens + per_seq_us * sequences`` microseconds; 0 for a step without tokens."""

    __slots__ = ("base_us", "per_seq_us", "per_token_us", "window")

    def __init__(self, base_us: int, per_token_us: int, per_seq_us: int) -> None:
        self.base_us = base_us
        self.per_token_us = per_token_us
        self.per_seq_us = per_seq_us
        self.window: int | None = None

    def step(self, shape: StepShape) -> int:
        """Microseconds of one step."""
        tokens = shape.tokens
        if not tokens:
            return 0
        return self.base_us + self.per_token_us * tokens + self.per_seq_us * (shape.decode_seqs + shape.prefill_seqs)

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Equal steps for as long as the members stay the same."""
        return AffineRun(self.step(shape), 0, math.inf)

    def decode_times(self, shape: StepShape, context: Counts, windowed: Counts) -> Counts:
        """Equal steps, whatever they attend."""
        return np.full(len(context), self.step(shape))

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds under the one name ``step_time``."""
        return {"step_time": self.step(shape) * 1e-6}
