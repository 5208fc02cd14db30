"""From the workload section of a scenario to the requests of a run."""

from __future__ import annotations

from pathlib import Path

from sim.errors import InputError
from sim.workload import Workload
from workloads.spec import WorkloadSpec
from workloads.streams import Aspect, stream
from workloads.synthetic import synthesize


def build_workload(spec: WorkloadSpec, seed: int, base_dir: Path | None = None) -> Workload:
    """The requests that ``spec`` describes; the same spec and seed give the same columns.

    Args:
        spec: the workload section of a scenario.
        seed: a whole number, at least 0. Arrivals, prompt lengths, output lengths, ... have streams of their own.
        base_dir: folder that a relative ``trace.path`` is looked up in; None = the current one.

    Raises:
        InputError: an unreadable or malformed trace (with its line), or a workload without requests.
    """
    stream(seed, Aspect.ARRIVALS)
    if spec.trace is None:
        try:
            return synthesize(spec, seed)
        except InputError as error:
            raise InputError(f"workload.{error.field}", error.problem, error.remedy) from None
    from workloads.traces import replay

    return replay(spec.trace, seed, base_dir)
