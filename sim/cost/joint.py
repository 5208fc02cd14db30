"""Steps of several data-parallel ranks together: the slowest rank and the shared experts set the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.cost.shape import AffineRun, StepShape, StepTimer
from sim.cost.step import CostModel

Floats = NDArray[Any]

# vLLM splits a batch in two from so many tokens of a rank on (vllm/config/parallel.py, dbo_*_token_threshold).
_SPLIT_DECODE_TOKENS: Final = 32
_SPLIT_PREFILL_TOKENS: Final = 512


class JointModel:
    """Seconds of a step in which every rank computes its own batch and all share their experts.

    Ranks meet twice in each layer with experts, when tokens are dispatched and combined. Layers are alike, so a step
    takes the slowest rank's own work (attention, dense layers, all that its own tokens need), the exchange of the
    largest batch, and the experts' work on the tokens of all ranks. A rank without requests runs a dummy token.

    With ``overlap`` batches are cut into two halves where they are large enough: one half computes while the other's
    tokens travel. The halves take turns in each layer: the second's attention runs while the first is dispatched, the
    first's experts while the second is, the second's experts while the first's results come back, and the first's next
    attention while the second's do. Each of the four takes as long as the longer of the two. What is set aside of the
    GPU for the exchange is lost to all that the step computes: its products are launched on the other multiprocessors
    from first to last, whatever is under way (``deep_gemm_num_sms`` in SGLang's two-batch overlap of prefills, the
    limits around a step in two of vLLM). Each half reads the weights anew.

    Args:
        model: of one rank, all ranks taken to be alike.
        ranks: how many.
        overlap: two half-batches, given the share of the GPU that is set aside for the exchange of so many tokens.
            None: whole batches.
        dummy: tokens of a rank without requests.
    """

    def __init__(
        self, model: CostModel, ranks: int, *, overlap: Callable[[int], float] | None = None, dummy: int = 1
    ) -> None:
        self.window = model.window
        self._model = model
        self._ranks = ranks
        self._overlap = overlap
        self._dummy = dummy

    # -- ranks together -------------------------------------------------------------------------------------------

    def joint(self, shapes: Sequence[StepShape]) -> float:
        """Seconds of a step of all ranks; those without tokens are left out of ``shapes``."""
        gpu, _, _ = self._line(shapes, None)
        hidden, exposed = self._host(shapes)
        return max(gpu, hidden) + exposed + self._model.gap_s

    def joint_run(self, shapes: Sequence[StepShape], growing_windowed: Sequence[int]) -> AffineRun:
        """Decode-only steps of all ranks, as long as one rank stays the slowest."""
        gpu, slope, steps = self._line(shapes, growing_windowed)
        hidden, exposed = self._host(shapes)
        first = max(gpu, hidden) + exposed + self._model.gap_s
        if gpu >= hidden or slope <= 0.0:
            return AffineRun(first, slope, steps)
        return AffineRun(first, 0.0, min(steps, math.floor((hidden - gpu) / slope) + 1))

    def joint_times(self, shapes: Sequence[StepShape], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(n,) seconds of decode-only steps of all ranks with the counts of ``shapes``; whole batches alone.

        Args:
            shapes: of the ranks that have tokens.
            sums: of each of them, n contexts and n contexts cut to the window.
        """
        owns = [
            self._model.gpu_times(shape, *contexts) - self._shared(shape)
            for shape, contexts in zip(shapes, sums, strict=True)
        ]
        experts, exchange = self._model.routed_s(self._mean_rows(shapes)), self._model.exchange_s(self._most(shapes))
        hidden, exposed = self._host(shapes)
        gpu = np.maximum.reduce(owns) + experts + sum(exchange)
        return np.asarray(np.maximum(gpu, hidden) + exposed + self._model.gap_s)

    def _most(self, shapes: Sequence[StepShape]) -> int:
        return max(self._model.rows(shape) for shape in shapes)

    def _mean_rows(self, shapes: Sequence[StepShape]) -> float:
        """Tokens of a rank on average, those of dummies included."""
        rows = sum(self._model.rows(shape) for shape in shapes)
        return (rows + self._dummy * (self._ranks - len(shapes))) / self._ranks

    def _host(self, shapes: Sequence[StepShape]) -> tuple[float, float]:
        parts = [self._model.host_parts_s(shape) for shape in shapes]
        return max(hidden for hidden, _ in parts), max(exposed for _, exposed in parts)

    def _line(self, shapes: Sequence[StepShape], growing: Sequence[float] | None) -> AffineRun:
        largest = self._most(shapes)
        prefills = any(shape.prefill_tokens for shape in shapes)
        split = self._overlap
        if largest < (_SPLIT_PREFILL_TOKENS if prefills else _SPLIT_DECODE_TOKENS):
            split = None
        if split:
            if growing is not None:
                growing = [count * _half_of(shape.decode_seqs) for count, shape in zip(growing, shapes, strict=True)]
            shapes = [_half(shape) for shape in shapes]
            largest = -(-largest // 2)
        own, slope, steps = self._slowest(shapes, growing)
        experts, exchange = self._model.routed_s(self._mean_rows(shapes)), self._model.exchange_s(largest)
        if not split:
            return AffineRun(own + experts + sum(exchange), slope, steps)
        free = 1.0 - split(largest)
        first = sum(max(way, part / free) for part in (own, experts) for way in exchange)
        hidden = [way * free - own for way in exchange if way * free > own]  # until attention is the longer
        if slope > 0.0 and hidden:
            steps = min(steps, math.floor(min(hidden) / slope) + 1)
        return AffineRun(first, slope / free * (2 - len(hidden)), steps)

    def _slowest(self, shapes: Sequence[StepShape], growing: Sequence[float] | None) -> AffineRun:
        """Seconds of the slowest rank's own work, their growth, and the steps until another one is the slowest."""
        model = self._model
        if growing is None:
            return AffineRun(max(model.gpu_s(shape) - self._shared(shape) for shape in shapes), 0.0, math.inf)
        lines = [model.decode_line(shape, count) for shape, count in zip(shapes, growing, strict=True)]
        own = [(line.first - self._shared(shape), line.increment) for line, shape in zip(lines, shapes, strict=True)]
        first, slope = max(own)
        steps = min(line.steps for line in lines)
        for start, rise in own:
            if rise > slope:
                steps = min(steps, math.floor((first - start) / (rise - slope)) + 1)
        return AffineRun(first, slope, steps)

    def _shared(self, shape: StepShape) -> float:
        """What the model of one rank counts for experts and exchange."""
        rows = self._model.rows(shape)
        return self._model.routed_s(rows) + sum(self._model.exchange_s(rows))

    # -- the StepTimer protocol: all ranks alike ------------------------------------------------------------------

    def step(self, shape: StepShape) -> float:
        """Seconds of a step in which every rank has the same batch."""
        return self.joint([shape] * self._ranks) if shape.tokens else 0.0

    def decode_run(self, shape: StepShape, growing_windowed: int) -> AffineRun:
        """The same for decode-only steps in a row."""
        return self.joint_run([shape] * self._ranks, [growing_windowed] * self._ranks)

    def decode_times(self, shape: StepShape, context: NDArray[Any], windowed: NDArray[Any]) -> NDArray[Any]:
        """Durations of decode-only steps with the counts of ``shape``, one for each context."""
        return self._model.decode_times(shape, context, windowed)

    def breakdown(self, shape: StepShape) -> dict[str, float]:
        """Seconds by operator of a step in which every rank has the same batch; overlap is not taken off."""
        return self._model.breakdown(shape)


class JointSteps:
    """Steps of ranks together where step times are given: the slowest rank sets the time."""

    def __init__(self, timer: StepTimer) -> None:
        self.window = timer.window
        self._timer = timer
        self.step = timer.step
        self.decode_run = timer.decode_run
        self.decode_times = timer.decode_times
        self.breakdown = timer.breakdown

    def joint(self, shapes: Sequence[StepShape]) -> float:
        """Ticks of a step of all ranks."""
        return max(self._timer.step(shape) for shape in shapes)

    def joint_run(self, shapes: Sequence[StepShape], growing_windowed: Sequence[int]) -> AffineRun:
        """Decode-only steps of all ranks: given times do not depend on contexts."""
        return AffineRun(self.joint(shapes), 0, math.inf)

    def joint_times(self, shapes: Sequence[StepShape], sums: Sequence[tuple[Floats, Floats]]) -> Floats:
        """(n,) ticks of decode-only steps of all ranks."""
        times = [self._timer.decode_times(shape, *contexts) for shape, contexts in zip(shapes, sums, strict=True)]
        return np.asarray(np.maximum.reduce(times))


def _half(shape: StepShape) -> StepShape:
    """The larger half of a batch: of its decodes, and of its prompts' tokens."""
    decodes, prompts = _half_of(shape.decode_seqs), _half_of(shape.prefill_tokens)
    return StepShape(
        decode_seqs=-(-shape.decode_seqs // 2),
        decode_context=shape.decode_context * decodes,
        decode_context_windowed=shape.decode_context_windowed * decodes,
        prefill_seqs=-(-shape.prefill_seqs // 2),
        prefill_tokens=-(-shape.prefill_tokens // 2),
        prefill_pairs=shape.prefill_pairs * prompts,
        prefill_pairs_windowed=shape.prefill_pairs_windowed * prompts,
        prefill_context=shape.prefill_context * prompts,
        prefill_context_windowed=shape.prefill_context_windowed * prompts,
        sampled_seqs=-(-shape.sampled_seqs // 2),
        draft_tokens=-(-shape.draft_tokens // 2),
    )


def _half_of(count: int) -> float:
    """The share of ``count`` that its larger half is; sums over a half grow by exactly that share."""
    return -(-count // 2) / count if count else 0.0
