"""Where nothing keeps the promise: what would have to give way, the least of it first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sim.errors import InputError
from sim.planner.bench import Bench, Outcome, Task, Trial
from sim.planner.capacity import capacity, near
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.outcome import Relaxation
from sim.planner.rows import deployment_of, in_words, promise_words
from sim.planner.search import groups_of
from sim.planner.space import Cell, Options, cells_of
from sim.planner.verdict import ratios_of

_FARTHER = 16  # times the budget that is looked at
_KINDS = 6  # kinds of deployment looked at for each relaxation
_SMALLER = ("fp8", "awq")


def relaxations(
    bench: Bench, ground: Ground, case: Case, options: Options, fitting: Sequence[Cell]
) -> tuple[Relaxation, ...]:
    """Budget, traffic, promise and formats, each relaxed alone and by as little as found, sorted by how much."""
    found = [
        *_larger_budget(bench, case, options),
        *_less_traffic(bench, ground, case, fitting),
        *_looser_promise(bench, ground, case, fitting),
    ]
    if not fitting:
        found += _smaller_formats(case, options)
    return tuple(sorted(found, key=lambda one: (one.times, one.what)))


def _widest(cells: Sequence[Cell]) -> list[Cell]:
    """One cell a kind, with the widest knobs, smallest units first."""
    kinds = [max(group, key=lambda cell: cell.key) for group in groups_of(cells).values()]
    return sorted(kinds, key=lambda cell: cell.key)


def _larger_budget(bench: Bench, case: Case, options: Options) -> list[Relaxation]:
    larger = replace(options, max_gpus=options.max_gpus * _FARTHER, max_usd_per_hour=None, max_watts=None)
    ground = Ground(case.base, larger)
    cells = [cell for cell in _widest(cells_of(case.base, larger)) if ground.fit(cell).refusal is None]
    starts = [(cell, _first_possible(case, cell, ground)) for cell in cells]
    starts.sort(key=lambda start: (ground.cost(start[0], start[1]), start[0].key))
    tasks = [near(case, cell, ground, start) for cell, start in starts[:_KINDS]]
    kept = [outcome for outcome in bench.together(tasks) if outcome is not None]
    if not kept:
        return []
    best = min(kept, key=lambda one: (ground.cost(one.trial.cell, one.trial.replicas), one.trial.cell.key))
    cell, replicas = best.trial.cell, best.trial.replicas
    gpus, usd = cell.gpus * replicas, ground.usd_per_hour(cell, replicas)
    watts = ground.hardware(cell).tdp_w * gpus
    times = max(
        gpus / options.max_gpus,
        usd / options.max_usd_per_hour if usd is not None and options.max_usd_per_hour else 0.0,
        watts / options.max_watts if options.max_watts else 0.0,
    )
    price = "" if usd is None else f", ${usd:,.2f}/h"
    text = f"{gpus} GPUs{price}, {watts / 1e3:.3g} kW at most: {replicas} x {cell.label} on {cell.hardware}"
    return [Relaxation(what="budget", text=text, times=times, deployment=deployment_of(cell, replicas))]


def _first_possible(case: Case, cell: Cell, ground: Ground) -> int:
    """The fewest replicas that bounds do not refute."""
    most = ground.most_replicas(cell)
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if ground.refuted(case, cell, middle) is not None else (low, middle)
    return low


def _less_traffic(bench: Bench, ground: Ground, case: Case, fitting: Sequence[Cell]) -> list[Relaxation]:
    cells = [cell for cell in _widest(fitting) if ground.most_replicas(cell)]
    cells = [cell for cell in cells if ground.refuted(case, cell, ground.most_replicas(cell), 1e-3) is None]
    tasks = [capacity(case, cell, ground.most_replicas(cell), ground) for cell in _spread(cells)]
    held = [limits.holds for limits in bench.together(tasks) if limits.holds is not None]
    if not held:
        return []
    best = max(held, key=lambda one: (one.trial.factor, -ground.cost(one.trial.cell, one.trial.replicas)))
    cell, replicas = best.trial.cell, best.trial.replicas
    load = case.load.given * best.trial.factor
    text = f"{load:.3g} {case.load.unit} instead of {case.load.given:.3g}: {replicas} x {cell.label} on {cell.hardware}"
    times = 1 / best.trial.factor
    return [Relaxation(what="traffic", text=text, times=times, deployment=deployment_of(cell, replicas))]


def _looser_promise(bench: Bench, ground: Ground, case: Case, fitting: Sequence[Cell]) -> list[Relaxation]:
    def measure(cell: Cell) -> Task[Outcome]:
        (outcome,) = yield [Trial(case, cell, ground.most_replicas(cell), whole=True)]
        return outcome

    cells = [cell for cell in _widest(fitting) if ground.most_replicas(cell)]
    outcomes = bench.together([measure(cell) for cell in _spread(cells)])
    served = [
        one
        for one in outcomes
        if one.verdict.ratio is not None and not {"overload", "rejected"} & set(one.verdict.broken)
    ]
    if not served:
        return []
    best = min(served, key=lambda one: (one.verdict.ratio or 0.0, one.trial.cell.key))
    summary = best.record.summary
    assert summary is not None
    bounds = {key: bound_s for key, (_, _, bound_s) in case.slo.statistics().items()}
    broken = [
        f"{promise_words(key)} {in_words(bounds[key] * ratio)} instead of {in_words(bounds[key])}"
        for key, ratio in ratios_of(summary, case.slo).items()
        if ratio > 1
    ]
    if case.slo.per_request() and summary.slo.attainment is not None:
        broken.append(f"{100 * summary.slo.attainment:.1f} % of requests within every bound")
    cell, replicas = best.trial.cell, best.trial.replicas
    text = f"{', '.join(broken)}: {replicas} x {cell.label} on {cell.hardware}"
    times = max(best.verdict.ratio or 1.0, 1.0)
    return [Relaxation(what="promise", text=text, times=times, deployment=deployment_of(cell, replicas))]


def _spread(cells: list[Cell]) -> list[Cell]:
    """A few cells from the smallest unit to the largest."""
    if len(cells) <= _KINDS:
        return cells
    return [cells[round(i * (len(cells) - 1) / (_KINDS - 1))] for i in range(_KINDS)]


def _smaller_formats(case: Case, options: Options) -> list[Relaxation]:
    """Weight formats in which the model would fit within the budget."""
    found = []
    for times, name in enumerate(_SMALLER, 2):
        smaller = replace(options, quantization=(name,))
        ground = Ground(case.base, smaller)
        try:
            cells = cells_of(case.base, smaller)
        except InputError:
            continue
        fits = [cell for cell in _widest(cells) if ground.most_replicas(cell) and ground.fit(cell).refusal is None]
        if fits:
            text = f"weights in {name} fit: {fits[0].label} on {fits[0].hardware} (not simulated)"
            found.append(
                Relaxation(what="formats", text=text, times=float(times), deployment=deployment_of(fits[0], 1))
            )
    return found
