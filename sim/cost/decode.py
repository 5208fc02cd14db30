"""Decode-only steps of one size: a sum of straight lines in the contexts."""

from __future__ import annotations

import math
from typing import NamedTuple

from sim.cost.shape import StepShape
from sim.cost.table import Table


class DecodeParts(NamedTuple):
    """What decode-only steps of one size take whatever their contexts, and attention against the summed contexts.

    Attributes:
        attention_free_s: GPU seconds of all but attention.
        hidden_s: host seconds that the GPU may hide.
        exposed_s: host seconds that the GPU waits for.
        full: attention of the layers that attend everything, if any.
        windowed: attention of those with a window, if any.
    """

    attention_free_s: float
    hidden_s: float
    exposed_s: float
    full: Table | None
    windowed: Table | None

    def line(self, shape: StepShape, growing_windowed: float) -> tuple[float, float, float]:
        """GPU seconds of the first step, their growth a step, and the steps to the next node of a table."""
        gpu, slope, steps = self.attention_free_s, 0.0, math.inf
        for table, context, growth in (
            (self.full, shape.decode_context, shape.decode_seqs),
            (self.windowed, shape.decode_context_windowed, growing_windowed),
        ):
            if table is not None:
                intercept, piece_slope, end = table.piece(context)
                gpu += intercept + piece_slope * context
                if growth:
                    slope += piece_slope * growth
                    steps = min(steps, (end - context) // growth + 1)
        return gpu, slope, steps
