"""The traffic of a plan as one number to turn up and down: requests a second, or users."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.errors import InputError
from sim.scenario import Scenario, SloSpec
from sim.workload import Workload
from workloads import build_workload
from workloads.lengths import mean_length
from workloads.spec import WorkloadSpec

RESIDENCES: Final = 8.0  # arrivals last this many times as long as a request may take
MOST_REQUESTS: Final = 20_000
_TPOT_S: Final = 0.05  # where no bound says how long a token may take


@dataclass(frozen=True, slots=True)
class Load:
    """The traffic that a scenario asks for, and how to ask for more or less of it.

    Patterns stay as they are (common random numbers): twice the load is the same arrivals at half the distance. A run
    has as many requests as the scenario says, or more, so that arrivals last `RESIDENCES` times as long as the promise
    lets a request take: a shorter run would end before the servers are as full as they will be.

    Attributes:
        base: the scenario, its workload as given.
        given: the load it asks for, in ``unit``.
        unit: ``requests/s``, ``sessions/s`` or ``users``.
        span_s: how long its arrivals last; 0 for users in a closed loop.
        steady_s: how long arrivals should last at least.
        lengthens: whether a run may have more requests than the scenario says (a trace has what it has).
    """

    base: Scenario
    given: float
    unit: str
    span_s: float
    steady_s: float
    lengthens: bool

    @classmethod
    def of(cls, scenario: Scenario) -> Load:
        """The load of ``scenario``. Raises `InputError` where its workload cannot be built."""
        workload = build_workload(scenario.workload, scenario.seed)
        spec = scenario.workload
        steady_s = RESIDENCES * residence_s(scenario.slo, workload)
        arrivals: Any = spec.trace.arrivals if spec.trace is not None and spec.trace.arrivals else spec.arrivals
        if arrivals is not None and arrivals.process == "closed_loop":
            return cls(scenario, float(arrivals.concurrency), "users", 0.0, steady_s, spec.trace is None)
        timed = workload.arrival_s[workload.arrival_s >= 0]
        span_s = float(timed.max() - timed.min())
        if span_s <= 0:
            raise InputError("workload", "all requests arrive at once", "give arrivals with a rate")
        unit = "sessions/s" if spec.sessions is not None else "requests/s"
        lengthens = spec.trace is None and arrivals.process != "stages"
        given = _nominal(arrivals) or (len(timed) - 1) / span_s
        return cls(scenario, given, unit, span_s, steady_s, lengthens)

    def at(self, factor: float) -> WorkloadSpec:
        """The workload at ``factor`` times the given load."""
        spec = self.base.workload
        document = spec.model_dump(mode="json", exclude_none=True)
        document.pop("preset", None)
        if spec.trace is not None and spec.trace.arrivals is None:
            document["trace"]["rate_scale"] = spec.trace.rate_scale * factor
        else:
            section = document if spec.trace is None else document["trace"]
            section["arrivals"] = _scaled(section["arrivals"], factor)
        if self.lengthens:
            requests = self.requests(factor)
            if requests is not None:
                document.pop("duration_s", None)
                document["num_requests"] = requests
        return WorkloadSpec.parse(document, "workload")

    def requests(self, factor: float) -> int | None:
        """Requests of a run at ``factor`` times the given load; None where the scenario's limit stands."""
        count = self.base.workload.num_requests
        if self.unit == "users":
            return max(count or 0, min(MOST_REQUESTS, math.ceil(RESIDENCES * self.given * factor)))
        if count is None:  # limited by time: as long, or as long as it takes
            longer = max(1.0, self.steady_s / self.span_s) * factor
            return min(math.ceil(self.given * self.span_s * longer), max(MOST_REQUESTS, 1))
        longer = max(1.0, self.steady_s * factor / self.span_s)
        return max(count, min(MOST_REQUESTS, math.ceil(count * longer)))

    def scaled(self, factor: float) -> Load:
        """``factor`` times this load as a load of its own."""
        spec = self.at(factor)
        base = self.base.model_copy(update={"workload": spec})
        span_s = self.span_s / factor
        if self.lengthens and spec.num_requests is not None and self.base.workload.num_requests is not None:
            span_s *= spec.num_requests / self.base.workload.num_requests
        return replace(self, base=base, given=self.given * factor, span_s=span_s)


def _nominal(arrivals: Any) -> float | None:
    """The mean rate that arrivals are drawn with; None for a trace's own times."""
    if arrivals is None:
        return None
    if arrivals.process == "stages":
        return float(sum(stage.rate_per_s * stage.duration_s for stage in arrivals.stages) / arrivals.duration_s)
    return float(arrivals.rate_per_s)


def residence_s(slo: SloSpec, workload: Workload) -> float:
    """How long a request of mean length may take under the promise, seconds."""
    bounds: dict[str, list[float]] = {"ttft": [], "tpot": [], "itl": [], "e2e": []}
    for metric, _, bound_s in slo.statistics().values():
        bounds[metric].append(bound_s)
    for metric, bound_s in slo.per_request().items():
        bounds[metric].append(bound_s)
    tokens = float(workload.output_tokens.mean())
    token_s = max([*bounds["tpot"], *bounds["itl"]] or [_TPOT_S])
    stages_s = max(bounds["ttft"] or [0.0]) + tokens * token_s
    return min([stages_s, *([max(bounds["e2e"])] if bounds["e2e"] else [])])


def _scaled(arrivals: dict[str, Any], factor: float) -> dict[str, Any]:
    process = arrivals["process"]
    if process == "closed_loop":
        return {**arrivals, "concurrency": max(1, round(arrivals["concurrency"] * factor))}
    if process == "stages":
        stages = [{**stage, "rate_per_s": stage["rate_per_s"] * factor} for stage in arrivals["stages"]]
        return {**arrivals, "stages": stages}
    return {**arrivals, "rate_per_s": arrivals["rate_per_s"] * factor}


def mean_tokens(spec: WorkloadSpec) -> tuple[float, float] | None:
    """Mean prompt and output tokens of a synthetic workload; None for a trace."""
    if spec.prompt_tokens is None or spec.output_tokens is None:
        return None
    return mean_length(spec.prompt_tokens), mean_length(spec.output_tokens)
