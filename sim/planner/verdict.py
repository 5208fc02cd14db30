"""Whether a simulated deployment keeps the promise, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

from sim.planner.record import Record
from sim.scenario import SloSpec
from sim.summary import Summary


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a record says about a promise.

    Attributes:
        kept: whether every bound holds, every request is served, and requests do not pile up.
        broken: what does not hold, the worst first: keys of the promise, ``attainment``, ``overload``, ``rejected``,
            or ``refused``; nothing where the run was given up since others keep the promise better.
        ratio: the largest measured value over its bound; None where the run was not measured to its end.
    """

    kept: bool
    broken: tuple[str, ...] = ()
    ratio: float | None = None


def judge(record: Record, slo: SloSpec, min_attainment: float) -> Verdict:
    """Hold ``record`` against ``slo``."""
    if record.summary is None:
        assert record.refusal is not None
        if record.status == "stopped":
            return Verdict(False, (record.refusal.field,) if record.beyond >= 1 else ())
        return Verdict(False, ("refused",))
    ratios = ratios_of(record.summary, slo)
    broken = [key for key, ratio in sorted(ratios.items(), key=lambda item: -item[1]) if ratio > 1]
    requests, load = record.summary.requests, record.summary.load
    if slo.per_request() and (record.summary.slo.attainment or 0.0) < min_attainment:
        broken.append("attainment")
    if requests.rejected or requests.unfinished:
        broken.append("rejected")
    if load.overloaded:
        broken.append("overload")
    return Verdict(not broken, tuple(broken), max(ratios.values(), default=0.0))


def ratios_of(summary: Summary, slo: SloSpec) -> dict[str, float]:
    """{key: measured over bound} of the bounds on statistics that were measured."""
    ratios = {}
    for key, (metric, statistic, bound_s) in slo.statistics().items():
        value = getattr(getattr(summary, f"{metric}_s"), statistic)
        if value is not None:
            ratios[key] = value / bound_s
    return ratios
