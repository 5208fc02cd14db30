"""One scenario in, one result out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from sim.assemble import Parts
from sim.band import PACES, band_of
from sim.cluster.fleet import Fleet
from sim.cost.shape import StepShape, StepTimer
from sim.cost.work import ModelWork
from sim.deploy import Pools, assemble_pools, fleet_of
from sim.engine.log import Line
from sim.errors import InputError
from sim.files import whole_file
from sim.metrics import summarize
from sim.result import PoolShare, Result, RunContext, StepWork
from sim.scenario import Scenario
from sim.scenario.support import require_supported
from sim.summary import Calibration, Memory, Simulation, Summary
from sim.tier_use import tiers_of
from sim.workload import Workload
from workloads import build_workload


def simulate(
    scenario: Scenario,
    *,
    exact: bool = False,
    band: bool = False,
    step_log: Path | None = None,
    progress: Callable[[float], None] | None = None,
    watch: Callable[[Fleet], None] | None = None,
) -> Result:
    """Simulate ``scenario`` and measure it.

    Args:
        scenario: what to run; defaults are filled in.
        exact: one event a step instead of time by change. Same decisions, same times to 1e-9, slower.
        band: run four times more, with steps slower and faster by the profile's error, and put the range of each figure
            into ``summary.band``. No band where the scenario gives the step times.
        step_log: write one JSON object a step to this file (written whole, then renamed into place).
        progress: called now and then with the share of the work that is over, 0 to 1.
        watch: called with the fleet before it runs; a process that it adds to the fleet's environment may look at the
            records and raise, which ends the run with that exception.

    Raises:
        InputError: the scenario cannot be served, or asks for what is not simulated.
        SimulationStalledError: requests wait and nothing can move.
    """
    begin = time.perf_counter()
    if not isinstance(scenario, Scenario):
        what = type(scenario).__name__
        raise InputError("simulate", f"takes a Scenario, got a {what}", "Scenario.from_file(PATH) or .parse(DICT)")
    scenario = scenario.resolved()
    require_supported(scenario)
    pools = assemble_pools(scenario)
    workload = build_workload(scenario.workload, scenario.seed)
    band = band and scenario.engine.step_time is None
    tell = _share_of(progress, 0, 1 + len(PACES) if band else 1)
    with _step_log(step_log) as on_line:
        fleet = fleet_of(scenario, pools, workload, jump=not exact, on_line=on_line, progress=tell)
        if watch is not None:
            watch(fleet)
        fleet.run()
    result = _measure(scenario, pools, workload, fleet, begin)
    if band:
        result.summary = _with_band(scenario, workload, result.summary, exact, progress)
    return result


def _with_band(
    scenario: Scenario, workload: Workload, predicted: Summary, exact: bool, progress: Callable[[float], None] | None
) -> Summary:
    """The summary, and what it would be on machines whose steps take longer or less long."""
    found: dict[str, Summary] = {}
    for number, (name, pace) in enumerate(PACES.items(), start=1):
        begin = time.perf_counter()
        pools = assemble_pools(scenario, pace)
        fleet = fleet_of(
            scenario, pools, workload, jump=not exact, progress=_share_of(progress, number, 1 + len(PACES))
        )
        fleet.run()
        found[name] = _measure(scenario, pools, workload, fleet, begin).summary
    return predicted.model_copy(update={"band": band_of(predicted, found)})


def _share_of(progress: Callable[[float], None] | None, number: int, runs: int) -> Callable[[float], None] | None:
    """The progress of run ``number`` of several, told as that of all."""
    return None if progress is None else lambda share: progress((number + share) / runs)


def _measure(scenario: Scenario, pools: Pools, workload: Workload, fleet: Fleet, begin: float) -> Result:
    recorder = fleet.recorder
    requests, steps, gaps_s, gap_tokens = recorder.counted(workload.warmup)
    simulation = Simulation(events=fleet.events, engine_steps=fleet.engine_steps, wall_s=time.perf_counter() - begin)
    context = _whole(
        scenario,
        {
            name: RunContext(
                scenario=pool,
                num_gpu_blocks=parts.engine.num_gpu_blocks,
                block_size=parts.engine.block_size,
                bytes_per_token=parts.budget.kv_bytes_per_token if parts.budget else None,
                memory=_memory(parts),
                calibration=_calibration(pool, parts),
                simulation=simulation,
                usd_per_gpu_hour=parts.served.hardware.usd_per_hour,
                reject_reasons=tuple(recorder.reasons),
                notes=(*workload.notes, *fleet.notes),
                work=_work(pool, parts),
                breakdown=_breakdown(pool, parts),
                places=fleet.places(number),
                mean_replicas=_mean_replicas(fleet, number) if scenario.cluster.events else None,
                tiers=tiers_of(fleet, number, parts),
                frees_behind=parts.engine.kept_tokens is not None,
            )
            for number, (name, (pool, parts)) in enumerate(pools.items())
        },
    )
    summary = summarize(context, requests, steps, gaps_s, gap_tokens)
    return Result(summary, context, requests, steps, gaps_s, gap_tokens)


def _whole(scenario: Scenario, contexts: dict[str, RunContext]) -> RunContext:
    """The context of all pools together."""
    if len(contexts) == 1:
        return next(iter(contexts.values()))
    shares, first = [], 0
    for name, context in contexts.items():
        shares.append(PoolShare(name, first, context))
        first += context.engines
    parts = list(contexts.values())
    prices = [context.usd_per_gpu_hour for context in parts]
    usd = [price * context.gpus for price, context in zip(prices, parts, strict=True) if price is not None]
    gpus = sum(context.gpus for context in parts)
    return replace(
        parts[-1],
        scenario=scenario,
        pools=tuple(shares),
        usd_per_gpu_hour=sum(usd) / gpus if len(usd) == len(parts) else None,
        work=None,
        calibration=_joint_calibration([context.calibration for context in parts]),
    )


def _joint_calibration(calibrations: Sequence[Calibration]) -> Calibration:
    """That of a fleet: as good as that of its worst pool."""
    known = [one for one in calibrations if one.step_time_error_source is not None]
    return Calibration(
        hardware=" + ".join(dict.fromkeys(one.hardware for one in calibrations)),
        calibrated=all(one.calibrated for one in calibrations),
        step_time_error_p50=max((one.step_time_error_p50 or 0.0 for one in known), default=None),
        step_time_error_p90=max((one.step_time_error_p90 or 0.0 for one in known), default=None),
        step_time_error_source="; ".join(dict.fromkeys(str(one.step_time_error_source) for one in known)) or None,
        notes=tuple(dict.fromkeys(note for one in calibrations for note in one.notes)),
    )


def _mean_replicas(fleet: Fleet, pool: int) -> float | None:
    """Replicas of a pool that were there, on average from the first arrival to the last finish."""
    requests = fleet.recorder.requests
    arrival_s, finish_s = (np.asarray(requests.column(name)) for name in ("arrival_s", "finish_s"))
    begin, end = float(arrival_s.min(initial=np.inf)), float(finish_s.max(initial=-1.0))
    if end <= begin:
        return None
    tick_s = fleet.recorder.tick_s
    spans = [(since * tick_s, end if to is None else to * tick_s) for since, to in fleet.lifecycle.presence(pool)]
    return sum(max(0.0, min(to, end) - max(since, begin)) / (end - begin) for since, to in spans)


def _work(scenario: Scenario, parts: Parts) -> StepWork | None:
    if scenario.engine.step_time is not None:
        return None
    served, gpus = parts.served, scenario.layout.gpus_per_replica // scenario.layout.data_parallel_size
    work = ModelWork(served.arch, served.weights, served.kv, scenario.layout)
    return StepWork(
        flops=work.flops,
        bytes_moved=work.bytes_moved,
        peak_flops_per_s=served.hardware.peak_flops(work.dtype) * gpus,
        peak_bytes_per_s=served.hardware.memory_bandwidth_bytes_per_s * gpus,
    )


def _breakdown(scenario: Scenario, parts: Parts) -> Callable[[Mapping[str, int]], dict[str, float]] | None:
    return None if scenario.engine.step_time is not None else partial(_step_parts, parts.timer)


def _step_parts(timer: StepTimer, counts: Mapping[str, int]) -> dict[str, float]:
    return timer.breakdown(StepShape(**counts))


def _memory(parts: Parts) -> Memory | None:
    budget = parts.budget
    if budget is None:
        return None
    return Memory(
        total_bytes=budget.total_bytes,
        usable_bytes=budget.usable_bytes,
        weights_bytes=budget.weights_bytes,
        activation_bytes=budget.activation_bytes,
        overhead_bytes=budget.overhead_bytes,
        kv_bytes=budget.kv_bytes,
    )


def _calibration(scenario: Scenario, parts: Parts) -> Calibration:
    hardware = parts.served.hardware
    if scenario.engine.step_time is not None:
        return Calibration(hardware=hardware.name, calibrated=False, notes=("step times are given by the scenario",))
    error = hardware.step_error
    return Calibration(
        hardware=hardware.name,
        calibrated=hardware.calibrated,
        step_time_error_p50=error.p50,
        step_time_error_p90=error.p90,
        step_time_error_source=f"{error.provenance}: {error.source}",
        notes=hardware.notes,
    )


@contextmanager
def _step_log(path: Path | None) -> Iterator[Callable[[Line], None] | None]:
    """Lines to ``path``: under a temporary name until the run is whole."""
    if path is None:
        yield None
        return
    with whole_file(path, "--steps") as partial, partial.open("w", encoding="utf-8") as file:
        yield lambda line: print(json.dumps(line, separators=(",", ":")), file=file)
