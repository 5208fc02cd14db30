"""The outcome of one simulated point, small enough to keep as a file of its own."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.errors import InputError
from sim.planner.evidence import Evidence
from sim.schema import StrictModel
from sim.summary import Summary

Status = Literal["done", "stopped", "refused", "failed"]


class Refusal(StrictModel):
    """Why a point has no figures, in the words of an `InputError`."""

    field: str
    problem: str
    remedy: str = ""

    @classmethod
    def of(cls, error: InputError) -> Refusal:
        """What ``error`` says."""
        return cls(field=error.field, problem=error.problem, remedy=error.remedy)

    def error(self) -> InputError:
        """The error again."""
        return InputError(self.field, self.problem, self.remedy)

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


class Record(StrictModel):
    """What became of a point.

    ``done``: simulated to its end. ``stopped``: given up because a statistic was certain to exceed ``beyond`` times its
    bound, or the promise was broken otherwise.
    ``refused``: cannot be served, or asks for what is not simulated. ``failed``: a defect, or its worker was lost; such
    a point is tried again next time.

    Attributes:
        key: the scenario's hash.
        servecast_version: whose figures these are.
        refusal: why there is no summary.
        beyond: of a stopped run; 1 where the promise was broken by more than a statistic.
        summary: as `simulate` gives it, with ``wall_s`` 0, so that the same point gives the same bytes.
        evidence: what a plan reads off a run beyond its summary.
        intervals: 95 % confidence intervals of statistics, by ``metric_statistic_s``.
    """

    key: str
    servecast_version: str
    status: Status
    refusal: Refusal | None = None
    beyond: float = 1.0
    summary: Summary | None = None
    evidence: Evidence | None = None
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        """What it is kept under: runs of one scenario that were stopped at different ceilings are different runs."""
        return name_of(self.key, self.beyond if self.status == "stopped" else 1.0)

    def settles(self, ceiling: float) -> bool:
        """Whether it says what a run with this ceiling would."""
        return self.status != "stopped" or self.beyond >= ceiling


def name_of(key: str, ceiling: float) -> str:
    """The name of a run that is given up beyond ``ceiling``."""
    return key if ceiling == 1.0 else f"{key}-{ceiling:.9g}"
