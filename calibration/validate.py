"""Predictions held against measured cases: signed errors by metric and statistic."""

from __future__ import annotations

import json
import math
import multiprocessing
import signal
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibration.cases import SCALAR, WINDOWED, Case, Window
from sim.errors import InputError
from sim.result import Result
from sim.summary import STATISTICS


@dataclass(frozen=True, slots=True)
class Score:
    """One number of one case.

    Attributes:
        name: the case, and the window of it as ``case/window``.
        predicted: None where the simulation measured nothing of the kind.
        tags: of the case and its window, for grouping.
    """

    name: str
    metric: str
    statistic: str
    measured: float
    predicted: float | None
    tags: Mapping[str, str]

    @property
    def key(self) -> str:
        """``metric.statistic``."""
        return f"{self.metric}.{self.statistic}"

    @property
    def error_pct(self) -> float | None:
        """100 x (predicted - measured) / measured; of a measured 0 only a predicted 0 has one."""
        if self.predicted is None or self.measured == 0:
            return 0.0 if self.predicted == self.measured else None
        return 100.0 * (self.predicted - self.measured) / self.measured


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors of one ``metric.statistic`` in per cent.

    Attributes:
        n: how many.
        mdape: median of their sizes.
        mape: mean of their sizes.
        bias: mean of them, signed.
        worst: the largest in size, signed.
        worst_case: its name.
    """

    n: int
    mdape: float
    mape: float
    bias: float
    worst: float
    worst_case: str


@dataclass(frozen=True, slots=True)
class Report:
    """Scores of all cases, in the order of the cases and their documents."""

    scores: tuple[Score, ...]

    def summary(self) -> dict[str, Accuracy]:
        """Accuracy by ``metric.statistic``, in order of first occurrence; scores without a prediction are left out."""
        by_key: dict[str, list[Score]] = {}
        for score in self.scores:
            by_key.setdefault(score.key, []).append(score)
        found = ((key, accuracy(scores)) for key, scores in by_key.items())
        return {key: value for key, value in found if value is not None}

    def where(self, **tags: str) -> Report:
        """The scores whose case has these tags."""
        wanted = tags.items()
        return Report(tuple(s for s in self.scores if all(s.tags.get(key) == value for key, value in wanted)))

    def unpredicted(self) -> list[Score]:
        """What was measured and could not be predicted."""
        return [score for score in self.scores if score.predicted is None]

    def exceeding(self, limits: Mapping[str, float]) -> list[str]:
        """Sentences for each ``metric.statistic`` whose mdape is above its limit in per cent.

        A limit named by a metric alone (``ttft_s``, or ``ttft``) holds for each of its statistics.

        Raises:
            InputError: a limit on something that no case measures.
        """
        summary = self.summary()
        broken = []
        for name, limit in limits.items():
            keys = [key for key in summary if name in (key, key.split(".")[0], key.split(".")[0].removesuffix("_s"))]
            if not keys:
                raise InputError(f"--max-error {name}", "no case predicts this", f"measured: {', '.join(summary)}")
            for key in keys:
                if summary[key].mdape > limit:
                    broken.append(f"{key}: median error {summary[key].mdape:.2f} % is above {limit:g} %")
        return broken

    def to_json(self) -> str:
        """The contract's document, indented, with a newline at its end."""
        cases = [
            {
                "name": score.name,
                "metric": score.metric,
                "statistic": score.statistic,
                "measured": score.measured,
                "predicted": score.predicted,
                "error_pct": score.error_pct,
            }
            for score in self.scores
        ]
        summary = {
            key: {"n": value.n, "mdape": value.mdape, "mape": value.mape, "bias": value.bias}
            for key, value in self.summary().items()
        }
        return json.dumps({"cases": cases, "summary": summary}, indent=2, allow_nan=False) + "\n"


def accuracy(scores: Iterable[Score]) -> Accuracy | None:
    """The errors of ``scores`` together; None where none has a prediction."""
    signed = [(score.error_pct, score.name) for score in scores if score.error_pct is not None]
    if not signed:
        return None
    errors = [error for error, _ in signed]
    sizes = [abs(error) for error in errors]
    worst, name = max(signed, key=lambda pair: abs(pair[0]))
    return Accuracy(
        len(errors), statistics.median(sizes), statistics.fmean(sizes), statistics.fmean(errors), worst, name
    )


def validate_cases(cases: Sequence[Case], jobs: int = 2, progress: Callable[[float], None] | None = None) -> Report:
    """Simulate every case and score it; the order of the scores does not depend on ``jobs``.

    Args:
        cases: see `calibration.cases.load_cases`.
        jobs: processes; 1 stays in this one.
        progress: called with the share of cases that are done, 0 to 1.

    Raises:
        InputError: a scenario that cannot be simulated, with the case's file and name.
    """
    if jobs < 1:
        raise InputError("jobs", f"{jobs} processes can do nothing", "give 1 or more")
    scores: list[Score] = []
    for done, found in enumerate(_predictions(cases, min(jobs, len(cases)))):
        scores += found
        if progress:
            progress((done + 1) / len(cases))
    return Report(tuple(scores))


def _predictions(cases: Sequence[Case], jobs: int) -> Iterator[list[Score]]:
    if jobs <= 1:
        yield from map(score_case, cases)
        return
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _leave_interrupts_to_the_parent)
    try:
        yield from pool.map(score_case, cases)
    except BrokenProcessPool:
        raise InputError("jobs", "a process died, probably for want of memory", f"try fewer than {jobs}") from None
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def score_case(case: Case) -> list[Score]:
    """Simulate one case and hold it against what was measured. Raises `InputError` naming the case."""
    from sim.run import simulate

    try:
        result = simulate(case.scenario)
    except InputError as error:
        where = f"{case.file}: {case.name}: " if case.file else f"{case.name}: "
        raise InputError(f"{where}scenario.{error.field}", error.problem, error.remedy) from None
    return [score for window in case.windows for score in _scores(case, window, result)]


def _scores(case: Case, window: Window, result: Result) -> Iterator[Score]:
    summary = result.summary.model_dump()
    latencies = {} if window.whole else _latencies(result, window)
    name = f"{case.name}/{window.name}" if window.name else case.name
    for metric, statistic, measured in window.measured:
        found: Any = latencies[metric] if metric in latencies else summary[metric]
        predicted = found if statistic == SCALAR else found[statistic]
        value = None if predicted is None else float(predicted)
        yield Score(name, metric, statistic, measured, value, {**case.tags, **window.tags})


def _latencies(result: Result, window: Window) -> dict[str, dict[str, float | None]]:
    """Statistics of the latencies of the requests that arrive within ``window`` and complete."""
    frame = result.requests
    arrived = (frame["arrival_s"] >= window.start_s) & (frame["arrival_s"] < window.end_s)
    chosen = frame.loc[arrived & (frame["status"] == "completed"), list(WINDOWED)]
    return {metric: _statistics(chosen[metric].to_numpy(dtype=float)) for metric in WINDOWED}


def _statistics(values: NDArray[np.float64]) -> dict[str, float | None]:
    """As `sim.summary.Latency`; values that are NaN (one token has no TPOT) count for nothing."""
    measured = values[~np.isnan(values)]
    if not len(measured):
        return dict.fromkeys(STATISTICS)
    p50, p90, p95, p99 = np.quantile(measured, (0.5, 0.9, 0.95, 0.99)).tolist()
    mean, std, low, high = (float(f(measured)) for f in (np.mean, np.std, np.min, np.max))
    return dict(zip(STATISTICS, (mean, std, low, p50, p90, p95, p99, high), strict=True))


def parse_limits(given: Iterable[str]) -> dict[str, float]:
    """``metric.statistic=PCT`` texts as limits in per cent. Raises `InputError` naming the text."""
    limits: dict[str, float] = {}
    for text in given:
        key, _, value = text.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not key or not (math.isfinite(limit) and limit >= 0):
            raise InputError(f"--max-error {text}", "is not of the form METRIC=PCT", "for example ttft_s.mean=6")
        limits[key] = limit
    return limits
