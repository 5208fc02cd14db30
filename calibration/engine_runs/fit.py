"""Fit the step time, the host terms and the client's path of an engine to logs of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration.engine_runs.log import EngineRun
from calibration.engine_runs.timer import MeasuredStepTimer, ramps, shape_of
from calibration.least_squares import nonnegative_least_squares
from hardware_profiles.figures import Residual
from sim.cluster.fleet import ClientPath
from sim.cost.shape import COUNTS, StepShape
from sim.errors import InputError

Floats = NDArray[np.float64]
KNOT_FACTOR = 4  # a knot of the token line at each power of four
SLOPE_SPREAD = 0.3  # neighbouring slopes are expected to differ by this fraction of the mean slope ...
STEP_SPREAD = 0.03  # ... and step times of one shape to be known to this fraction
ALONE_S = 0.05  # a request with no other within this time shows the client's path without queueing in it
FEWEST_SHAPES = 6


@dataclass(frozen=True, slots=True)
class EngineFit:
    """What was fitted.

    Attributes:
        timer: step time, gap between steps included.
        path: from the client to the queue and back.
        residual: relative error by step shape, each shape of the runs fitted on counted once.
    """

    timer: MeasuredStepTimer
    path: ClientPath
    residual: Residual


@dataclass(frozen=True, slots=True)
class _Sample:
    """Steps of one shape: mean aggregates, median seconds, how many."""

    shape: StepShape
    seconds: float
    steps: int


def fit_engine(runs: Iterable[EngineRun]) -> EngineFit:
    """Fit one engine on ``runs`` (all of one engine on one machine; see docs/calibration.md for the loads that help).

    Raises:
        InputError: too few different steps to tell the terms apart.
    """
    logs = list(runs)
    samples = _samples(logs)
    _require_enough(samples)
    base_s, knots, slopes_s, (pair_s, context_s, seq_s) = _fit_steps(samples)
    gap_s, gap_seq_s, gap_chunk_s = _fit_gaps(logs)
    timer = MeasuredStepTimer(
        base_s, knots, slopes_s, pair_s, context_s, seq_s, gap_s=gap_s, gap_seq_s=gap_seq_s, gap_chunk_s=gap_chunk_s
    )
    errors = np.array([abs(timer.model_s(sample.shape) / sample.seconds - 1) for sample in samples])
    residual = Residual(
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        worst=float(errors.max()),
        rows=len(samples),
        held_out=False,
    )
    return EngineFit(timer, _client_path(logs), residual)


def _samples(runs: Sequence[EngineRun]) -> list[_Sample]:
    """Steps grouped by shape; decodes of one batch are one shape for each power of two of their context."""
    groups: dict[tuple[int, ...], list[tuple[StepShape, float]]] = {}
    for run in runs:
        for step in run.steps:
            shape = shape_of(step, run.prompt_len)
            context = int(shape.decode_context // max(1, shape.decode_seqs)).bit_length()
            key = (shape.decode_seqs, context, shape.prefill_seqs, shape.prefill_tokens, int(shape.prefill_pairs))
            groups.setdefault(key, []).append((shape, step.dt_s))
    return [_typical(steps) for _, steps in sorted(groups.items())]


def _typical(steps: list[tuple[StepShape, float]]) -> _Sample:
    """The typical step: a median is not moved by the steps that something else on the machine held up."""
    shape = StepShape(**{name: round(np.mean([getattr(s, name) for s, _ in steps])) for name in COUNTS})
    return _Sample(shape, float(np.median([seconds for _, seconds in steps])), len(steps))


def _require_enough(samples: list[_Sample]) -> None:
    prefills = sum(1 for sample in samples if sample.shape.prefill_tokens and not sample.shape.decode_seqs)
    batches = {sample.shape.decode_seqs for sample in samples if not sample.shape.prefill_tokens}
    if len(samples) < FEWEST_SHAPES or prefills < 2 or len(batches) < 2:
        raise InputError(
            "engine runs",
            f"{len(samples)} kinds of step, {prefills} of them prefills, decode batches of {sorted(batches)}: "
            "too few to fit",
            "log single prompts of several lengths and batches of several sizes",
        )


def _fit_steps(samples: list[_Sample]) -> tuple[float, tuple[int, ...], tuple[float, ...], list[float]]:
    """(base, knots, slopes, [pair, context, sequence]), all in seconds, none negative."""
    most = max(sample.shape.tokens for sample in samples)
    knots = _knots(most)
    seconds = np.array([sample.seconds for sample in samples])
    rows = np.array([_row(sample.shape, knots) for sample in samples])
    known_to = STEP_SPREAD * np.sqrt(1.0 + 1.0 / np.array([sample.steps for sample in samples]))
    weights = 1.0 / (seconds * known_to)
    smooth = _smoothness(len(knots), rows.shape[1], (seconds.max() - seconds.min()) / most)
    solution = nonnegative_least_squares(
        np.vstack([rows * weights[:, None], smooth]), np.concatenate([seconds * weights, np.zeros(len(smooth))])
    ).tolist()
    slopes = len(knots) + 1
    return solution[0], knots, tuple(solution[1:slopes]), solution[slopes:]


def _knots(most: int) -> tuple[int, ...]:
    """1, 4, 16, ... while there are measurements well above."""
    knots = [1]
    while knots[-1] * KNOT_FACTOR * 2 <= most:
        knots.append(knots[-1] * KNOT_FACTOR)
    return tuple(knots)


def _row(shape: StepShape, knots: tuple[int, ...]) -> list[float]:
    seqs = shape.decode_seqs + shape.prefill_seqs
    return [1.0, *ramps(shape.tokens, knots), shape.prefill_pairs, shape.decode_context, seqs]


def _smoothness(knots: int, columns: int, mean_slope: float) -> Floats:
    """Rows that hold neighbouring slopes together where measurements do not tell them apart."""
    rows = np.zeros((max(0, knots - 1), columns))
    for i in range(knots - 1):
        rows[i, 1 + i], rows[i, 2 + i] = -1.0, 1.0
    return np.asarray(rows / (SLOPE_SPREAD * mean_slope))


def _fit_gaps(runs: Sequence[EngineRun]) -> list[float]:
    """Host time between two steps that share a request: [of any step, of a sequence, of a prefill chunk]."""
    rows, gaps = [], []
    for run in runs:
        for before, after in zip(run.steps, run.steps[1:], strict=False):
            if set(before.ids) & set(after.ids):
                shape = shape_of(after, run.prompt_len)
                rows.append([1.0, shape.decode_seqs + shape.prefill_seqs, shape.prefill_seqs])
                gaps.append(max(0.0, after.t_s - before.end_s))
    if not gaps:
        return [0.0, 0.0, 0.0]
    matrix, target = np.array(rows), np.array(gaps)
    kept = target <= 5 * np.median(target) + 5e-3  # not those in which something else held the process up
    return [float(value) for value in nonnegative_least_squares(matrix[kept], target[kept])]


def _client_path(runs: Sequence[EngineRun]) -> ClientPath:
    """Medians over requests that met an idle engine alone, and of what comes after the first and the last token."""
    to_queue, first, last = [], [], []
    for run in runs:
        ends = _token_ends(run)
        arrivals = np.array([request.arrival_s for request in run.requests])
        for request in run.requests:
            if request.id not in ends:
                continue
            near = int((np.abs(arrivals - request.arrival_s) < ALONE_S).sum())
            idle = all(not step.t_s <= request.arrival_s <= step.end_s for step in run.steps)
            if near == 1 and idle:
                to_queue.append(request.engine_arrival_s - request.arrival_s)
            first.append(request.arrival_s + request.ttft_s - ends[request.id][0])
            last.append(request.arrival_s + request.e2e_s - ends[request.id][1])
    return ClientPath(_median(to_queue), _median(first), _median(last))


def _token_ends(run: EngineRun) -> dict[int, tuple[float, float]]:
    """When the steps that computed each request's first and last token ended."""
    ends: dict[int, tuple[float, float]] = {}
    for step in run.steps:
        for request, tokens, before in zip(step.ids, step.ntok, step.ctx, strict=True):
            if before + tokens >= run.prompt_len[request]:
                ends[request] = (ends.get(request, (step.end_s, 0.0))[0], step.end_s)
    return ends


def _median(values: list[float]) -> float:
    return max(0.0, float(np.median(values))) if values else 0.0
