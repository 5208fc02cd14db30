"""Step time of a real engine as measured from its log: a piecewise line in tokens, and what attention and host add."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.engine_runs.log import EngineRun, StepLog
from sim.cost.shape import AffineRun, StepShape


@dataclass(slots=True)
class MeasuredStepTimer:
    """Seconds of a step (a `StepTimer`), every coefficient at least 0.

    A step takes ``gap + base_s + tokens(n) + pair_s * prefill_pairs + context_s * decode_context + seq_s * sequences``.

    Attributes:
        base_s: of any step.
        knots: ascending token counts, the first is 1.
        slopes_s: seconds a token above each knot, up to the next one; the last goes on for ever.
        pair_s: an attended (query, key) pair of a prefill chunk.
        context_s: a cached token that a decode attends.
        seq_s: a sequence (decode or chunk) in the step.
        gap_s, gap_seq_s, gap_chunk_s: host time between two steps: of any step, of a sequence, of a prefill chunk.
    """

    base_s: float
    knots: tuple[int, ...]
    slopes_s: tuple[float, ...]
    pair_s: float
    context_s: float
    seq_s: float
    gap_s: float = 0.0
    gap_seq_s: float = 0.0
    gap_chunk_s: float = 0.0
    window: int | None = None

    def step(self, shape: StepShape) -> float:
        """Seconds of one step and the gap before it; 0 without tokens."""
        if not shape.tokens:
            return 0.0
        return self.gap(shape) + self.model_s(shape)

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """Steps on one line for as long as the members stay the same: only the contexts grow."""
        return AffineRun(self.step(shape), self.context_s * shape.decode_seqs, math.inf)

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """(n,) seconds of steps with the counts of ``shape`` that attend ``context`` tokens each."""
        return np.asarray(self.step(shape) + self.context_s * (context - shape.decode_context))

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by term."""
        if not shape.tokens:
            return {}
        return {
            "base": self.base_s,
            "tokens": self._tokens_s(shape.tokens),
            "prefill_attention": self.pair_s * shape.prefill_pairs,
            "decode_attention": self.context_s * shape.decode_context,
            "sequences": self.seq_s * (shape.decode_seqs + shape.prefill_seqs),
            "host": self.gap(shape),
        }

    def gap(self, shape: StepShape) -> float:
        """Host seconds between the step before and this one."""
        seqs = shape.decode_seqs + shape.prefill_seqs
        return self.gap_s + self.gap_seq_s * seqs + self.gap_chunk_s * shape.prefill_seqs

    def model_s(self, shape: StepShape) -> float:
        """Seconds from the step's begin to its output."""
        return (
            self.base_s
            + self._tokens_s(shape.tokens)
            + self.pair_s * shape.prefill_pairs
            + self.context_s * shape.decode_context
            + self.seq_s * (shape.decode_seqs + shape.prefill_seqs)
        )

    def _tokens_s(self, tokens: int) -> float:
        return sum(slope * length for slope, length in zip(self.slopes_s, ramps(tokens, self.knots), strict=True))


def ramps(tokens: float, knots: tuple[int, ...]) -> list[float]:
    """How much of ``tokens`` lies above each knot and below the next.

    >>> ramps(20, (1, 4, 16))
    [3, 12, 4]
    """
    ends = [*knots[1:], math.inf]
    return [min(max(tokens - low, 0), high - low) for low, high in zip(knots, ends, strict=True)]


def shape_of(step: StepLog, prompt_len: dict[int, int]) -> StepShape:
    """The aggregates of a logged step."""
    shape = StepShape()
    for request, tokens, before in zip(step.ids, step.ntok, step.ctx, strict=True):
        prompt = prompt_len[request]
        if before >= prompt:
            shape.decode_seqs += 1
            shape.decode_context += before + tokens
        else:
            shape.add_prefill(tokens, before, None)
        shape.sampled_seqs += before + tokens >= prompt
    shape.decode_context_windowed = shape.decode_context
    return shape


def step_spans(run: EngineRun) -> Iterator[tuple[StepShape, float]]:
    """(shape, seconds) of every step, the gap before it included where it follows a step of the same requests."""
    members: set[int] = set()
    end_s = 0.0
    for step in run.steps:
        begin_s = end_s if members & set(step.ids) else step.t_s
        yield shape_of(step, run.prompt_len), step.end_s - begin_s
        members, end_s = set(step.ids), step.end_s
