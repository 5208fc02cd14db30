"""What the profile's error of step times leaves open: the range of each figure over slower and faster runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sim.assemble import Pace
from sim.schema import StrictModel
from sim.summary import Band, Extent, Interval, Latency, Summary, Throughput

#: Slower by a factor 1 + error, faster by its inverse: as likely in a ratio, and never to nothing.
PACES: Final[dict[str, Pace]] = {
    "p50 slow": lambda error: 1 + error.p50,
    "p50 fast": lambda error: 1 / (1 + error.p50),
    "p90 slow": lambda error: 1 + error.p90,
    "p90 fast": lambda error: 1 / (1 + error.p90),
}

_Choose = Callable[[Sequence[float]], float]


def band_of(predicted: Summary, found: Mapping[str, Summary]) -> Band:
    """The band of a run.

    A figure's range spans the run as predicted and both others: a scheduler may do better on a slower machine.

    Args:
        predicted: the run itself; its ``calibration`` has the errors.
        found: the run at each of `PACES`, by name.
    """
    calibration = predicted.calibration
    assert calibration.step_time_error_p50 is not None
    assert calibration.step_time_error_p90 is not None

    def interval(level: str, error: float) -> Interval:
        runs = (predicted, found[f"{level} slow"], found[f"{level} fast"])
        return Interval(step_time_error=error, low=_extent(runs, min), high=_extent(runs, max))

    return Band(
        p50=interval("p50", calibration.step_time_error_p50), p90=interval("p90", calibration.step_time_error_p90)
    )


def _extent(runs: Sequence[Summary], choose: _Choose) -> Extent:
    def latency(name: str) -> Latency:
        return Latency(**_chosen([getattr(run, name) for run in runs], choose))

    return Extent(
        ttft_s=latency("ttft_s"),
        tpot_s=latency("tpot_s"),
        itl_s=latency("itl_s"),
        e2e_s=latency("e2e_s"),
        throughput=Throughput(**_chosen([run.throughput for run in runs], choose)),
        goodput_requests_per_s=_of([run.slo.goodput_requests_per_s for run in runs], choose),
        attainment=_of([run.slo.attainment for run in runs], choose),
    )


def _chosen(blocks: Sequence[StrictModel], choose: _Choose) -> dict[str, float | None]:
    """Each figure of equal blocks, chosen over all of them."""
    return {name: _of([getattr(block, name) for block in blocks], choose) for name in type(blocks[0]).model_fields}


def _of(values: Sequence[float | None], choose: _Choose) -> float | None:
    measured = [value for value in values if value is not None]
    return choose(measured) if measured else None
