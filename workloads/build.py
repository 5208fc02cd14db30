"""From the workload section of a scenario to the requests of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from sim.errors import InputError
from sim.workload import Workload
from workloads.spec import WorkloadSpec
from workloads.streams import Aspect, stream
from workloads.synthetic import synthesize

MAX_TIME_S: Final = 1e10  # 317 years, told to 2 microseconds


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
            return _telling_tokens_apart(synthesize(spec, seed))
        except InputError as error:
            raise InputError(f"workload.{error.field}", error.problem, error.remedy) from None
    from workloads.traces import replay

    return _telling_tokens_apart(replay(spec.trace, seed, base_dir))


def _telling_tokens_apart(workload: Workload) -> Workload:
    """``workload``; raises `InputError` for times so late that a float cannot tell a token from the next."""
    for field, times_s in (("arrivals", workload.arrival_s), ("think_s", workload.think_s)):
        latest_s = float(np.nanmax(times_s, initial=0.0)) if times_s is not None else 0.0
        if latest_s > MAX_TIME_S:
            problem = f"a time of {latest_s:.3g} s is past {MAX_TIME_S:.0e} s"
            raise InputError(field, problem, "give seconds from the first request, or a higher rate")
    return workload
