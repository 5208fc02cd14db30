"""Simulate a logged run with the product's engine and a fitted timer, and compare."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from calibration.engine_runs.fit import EngineFit
from calibration.engine_runs.log import EngineRun
from calibration.engine_runs.timer import step_spans
from sim.cluster.fleet import ClientPath, Fleet
from sim.cluster.router import RoundRobin
from sim.cost.shape import StepTimer
from sim.engine.log import Line
from sim.workload import Floats, Ints, Workload


@dataclass(frozen=True, slots=True)
class RunMetrics:
    """What a client and the step log show of one run.

    Attributes:
        ttft_s, tpot_s, e2e_s: means over requests (TPOT over those with at least two tokens).
        output_tokens_per_s: from the first arrival to the last token.
        steps: engine steps.
        tokens_per_step, seqs_per_step: means over steps.
    """

    ttft_s: float
    tpot_s: float
    e2e_s: float
    output_tokens_per_s: float
    steps: int
    tokens_per_step: float
    seqs_per_step: float


@dataclass(frozen=True, slots=True)
class BatchAgreement:
    """Steps of a run whose members, in order, and tokens of each equal the simulated ones."""

    equal: int
    steps: int
    first_difference: int | None


def measured(run: EngineRun) -> RunMetrics:
    """The metrics of the real run."""
    arrival = np.array([request.arrival_s for request in run.requests])
    first = arrival + [request.ttft_s for request in run.requests]
    finish = arrival + [request.e2e_s for request in run.requests]
    tokens = np.array([sum(step.ntok) for step in run.steps])
    seqs = np.array([len(step.ids) for step in run.steps])
    return _metrics(arrival, first, finish, _outputs(run), tokens, seqs)


def predict(fit: EngineFit, run: EngineRun) -> RunMetrics:
    """The metrics that the simulator gives for the arrivals, lengths and settings of ``run``."""
    return predict_with(fit.timer, fit.path, run)


def predict_with(timer: StepTimer, path: ClientPath, run: EngineRun) -> RunMetrics:
    """As `predict`, with any step timer whose tick is a second."""
    fleet = Fleet(_workload(run), [run.settings.config()], timer, RoundRobin(), path=path)
    fleet.run()
    rows = fleet.recorder.requests.sorted_by("id")
    arrival, first, finish = (np.asarray(rows.column(name)) for name in ("arrival_s", "first_token_s", "finish_s"))
    steps = fleet.recorder.steps
    count = np.asarray(steps.column("steps"))
    decodes = np.asarray(steps.column("decode_seqs"))
    tokens = np.repeat(decodes + np.asarray(steps.column("prefill_tokens")), count)
    seqs = np.repeat(decodes + np.asarray(steps.column("prefill_seqs")), count)
    return _metrics(arrival, first, finish, _outputs(run), tokens, seqs)


def relative_errors(predicted: RunMetrics, real: RunMetrics) -> dict[str, float]:
    """Signed relative error of each metric, as fractions."""
    truth = asdict(real)
    return {name: value / truth[name] - 1 for name, value in asdict(predicted).items() if truth[name]}


def step_errors(timer: StepTimer, run: EngineRun) -> Floats:
    """(steps,) signed relative error of step times, for the real batches (see `step_spans`)."""
    return np.array([timer.step(shape) / seconds - 1 for shape, seconds in step_spans(run)])


def replay_batches(fit: EngineFit, run: EngineRun) -> BatchAgreement:
    """Schedule the run with each request joining before the step at which it really was in the queue.

    This holds the scheduler alone against the engine: no step time enters.
    """
    order = sorted(run.requests, key=lambda request: (request.engine_arrival_s, request.id))
    begins = np.array([step.t_s for step in run.steps])
    joins = np.searchsorted(begins, [request.engine_arrival_s for request in order])
    lines: list[Line] = []
    fleet = Fleet(
        Workload(
            arrival_s=np.full(len(order), np.nan),
            prompt_tokens=np.array([request.prompt_len for request in order]),
            output_tokens=np.array([request.output_len for request in order]),
        ),
        [run.settings.config()],
        fit.timer,
        RoundRobin(),
        on_line=lines.append,
        arrival_steps={index: int(step) for index, step in enumerate(joins)},
    )
    fleet.run()
    ours = [_batch(line, [request.id for request in order]) for line in lines]
    theirs = [list(zip(step.ids, step.ntok, strict=True)) for step in run.steps]
    equal = [mine == real for mine, real in zip(ours, theirs, strict=False)]
    first = next((i for i, same in enumerate(equal) if not same), None)
    return BatchAgreement(sum(equal), max(len(ours), len(theirs)), first)


def _batch(line: Line, ids: list[int]) -> list[tuple[int, int]]:
    members = line.get("ids", [])
    return list(zip([ids[i] for i in members], line.get("ntok", [1] * len(members)), strict=True))


def _workload(run: EngineRun) -> Workload:
    return Workload(
        arrival_s=np.array([request.arrival_s for request in run.requests]),
        prompt_tokens=np.array([request.prompt_len for request in run.requests]),
        output_tokens=_outputs(run),
    )


def _outputs(run: EngineRun) -> Ints:
    return np.array([request.output_len for request in run.requests])


def _metrics(
    arrival: Floats, first: Floats, finish: Floats, outputs: Ints, step_tokens: Ints, step_seqs: Ints
) -> RunMetrics:
    several = outputs > 1
    return RunMetrics(
        ttft_s=float((first - arrival).mean()),
        tpot_s=float(((finish - first)[several] / (outputs[several] - 1)).mean()) if several.any() else 0.0,
        e2e_s=float((finish - arrival).mean()),
        output_tokens_per_s=float(outputs.sum() / (finish.max() - arrival.min())),
        steps=len(step_tokens),
        tokens_per_step=float(step_tokens.mean()),
        seqs_per_step=float(step_seqs.mean()),
    )
