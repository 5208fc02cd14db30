"""When requests arrive: the processes a scenario may name (documents only, no drawing)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.errors import InputError
from sim.schema import StrictModel
from workloads.choice import chooser

Rate = Annotated[float, Field(strict=True, gt=0, le=1e9)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=1e9)]
Pause = Annotated[float, Field(strict=True, ge=0, le=1e9)]
Cv = Annotated[float, Field(strict=True, ge=1e-3, le=100)]
PauseCv = Annotated[float, Field(strict=True, ge=0, le=100)]


class ConstantArrivals(StrictModel):
    """One request every ``1 / rate_per_s`` seconds, the first at 0."""

    process: Literal["constant"] = "constant"
    rate_per_s: Rate


class PoissonArrivals(StrictModel):
    """Independent arrivals at ``rate_per_s``: exponential gaps (cv 1)."""

    process: Literal["poisson"] = "poisson"
    rate_per_s: Rate


class GammaArrivals(StrictModel):
    """Gamma-distributed gaps of mean ``1 / rate_per_s`` and coefficient of variation ``cv`` (above 1: bursty)."""

    process: Literal["gamma"] = "gamma"
    rate_per_s: Rate
    cv: Cv


class WeibullArrivals(StrictModel):
    """Weibull-distributed gaps of mean ``1 / rate_per_s`` and coefficient of variation ``cv``."""

    process: Literal["weibull"] = "weibull"
    rate_per_s: Rate
    cv: Cv


class Stage(StrictModel):
    """``rate_per_s`` for ``duration_s``; the next stage begins at its end."""

    rate_per_s: Rate
    duration_s: Seconds


class StagesArrivals(StrictModel):
    """Rates that change at the end of each stage; ``gaps`` says how requests arrive within them (``cv`` as there)."""

    process: Literal["stages"] = "stages"
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    gaps: Literal["constant", "poisson", "gamma", "weibull"] = "poisson"
    cv: Cv | None = None

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if self.gaps in ("gamma", "weibull") and self.cv is None:
            raise InputError("cv", "required, but missing", f"gaps: {self.gaps} needs the coefficient of variation")
        if self.gaps in ("constant", "poisson") and self.cv is not None:
            raise InputError(
                "cv", f"has no meaning for gaps: {self.gaps}", "remove it, or set gaps to gamma or weibull"
            )
        return self

    @property
    def duration_s(self) -> float:
        """Length of all stages, seconds."""
        return sum(stage.duration_s for stage in self.stages)


class ClosedLoopArrivals(StrictModel):
    """``concurrency`` users, each sending its next request ``think_s`` after the last one finished; all begin at 0.

    ``think_cv`` spreads the pauses (gamma-distributed; 0: always ``think_s``, 1: exponential). With a shared ``queue``
    whoever is free takes the next request of one list, as benchmark clients with a limit of concurrency do.
    """

    process: Literal["closed_loop"] = "closed_loop"
    concurrency: Annotated[int, Field(strict=True, ge=1)]
    think_s: Pause = 0.0
    think_cv: PauseCv = 0.0
    queue: Literal["own", "shared"] = "own"


Arrivals = ConstantArrivals | PoissonArrivals | GammaArrivals | WeibullArrivals | StagesArrivals | ClosedLoopArrivals

ArrivalsSpec = Annotated[
    Arrivals,
    BeforeValidator(
        chooser(
            "process",
            {
                "constant": ConstantArrivals,
                "poisson": PoissonArrivals,
                "gamma": GammaArrivals,
                "weibull": WeibullArrivals,
                "stages": StagesArrivals,
                "closed_loop": ClosedLoopArrivals,
            },
            "an arrival process",
        )
    ),
]
