"""One point: what a worker does, wherever it runs. Nothing but input, output and the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import sim
from sim.errors import InputError
from sim.planner.record import Record, Refusal, name_of


@dataclass(frozen=True, slots=True)
class Job:
    """A scenario to simulate, as plain data that travels to any worker.

    Attributes:
        key: the scenario's hash.
        document: the scenario, paths made absolute.
        min_attainment: where not None, the run is given up once its promise is broken for certain; the share of
            requests that must meet the bounds on each request.
        ceiling: of the promise's statistics: a run is given up once one is certain to exceed its bound so many times.
    """

    key: str
    document: dict[str, Any]
    min_attainment: float | None = None
    ceiling: float = 1.0

    @property
    def name(self) -> str:
        """Tells it from other runs of the same scenario."""
        return name_of(self.key, self.ceiling) if self.min_attainment is not None else f"{self.key}-whole"


def measure(job: Job) -> Record:
    """Simulate the scenario of ``job``; whatever goes wrong is an outcome, never an exception."""
    from sim.engine.stall import SimulationStalledError
    from sim.planner.watch import PromiseBrokenError

    try:
        return _measure(job)
    except PromiseBrokenError as broken:
        refusal = Refusal(field=broken.key, problem="is broken, whatever comes later")
        record = _without(job, "stopped", refusal)
        return record.model_copy(update={"evidence": broken.evidence, "beyond": broken.beyond})
    except InputError as error:
        return _without(job, "refused", Refusal.of(error))
    except SimulationStalledError as stalled:
        return _without(job, "refused", Refusal(field="engine", problem=f"the engine stalls: {stalled}"))
    except Exception as defect:
        return lost(job, defect)


def lost(job: Job, error: Exception) -> Record:
    """The record of a point that no worker could bring to an end."""
    return _without(job, "failed", Refusal(field="simulation", problem=f"{type(error).__name__}: {error}"))


def _measure(job: Job) -> Record:
    from sim import Scenario, simulate
    from sim.planner.evidence import evidence_of
    from sim.planner.intervals import intervals_of
    from sim.planner.watch import Watch

    scenario = Scenario.from_dict(job.document)
    watch = None if job.min_attainment is None else Watch(scenario.slo, job.min_attainment, job.ceiling)
    result = simulate(scenario, watch=watch)
    simulation = result.summary.simulation.model_copy(update={"wall_s": 0.0})
    return Record(
        key=job.key,
        servecast_version=sim.__version__,
        status="done",
        summary=result.summary.model_copy(update={"simulation": simulation}),
        evidence=evidence_of(result.step_columns, int(np.max(result.request_columns.column("prompt_tokens")))),
        intervals=intervals_of(result.request_columns, scenario.slo),
    )


def _without(job: Job, status: Any, refusal: Refusal) -> Record:
    return Record(key=job.key, servecast_version=sim.__version__, status=status, refusal=refusal)
