"""The cheapest deployment, found as brute force would find it, without most of its simulations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sim.planner.bench import Bench, Outcome, Task, Trial
from sim.planner.bounds import Refuted
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.record import Record
from sim.planner.space import Cell
from sim.scenario import Scenario

Group = Sequence[Cell]  # cells that differ in knobs alone


@dataclass
class Found:
    """The answer of a search.

    Attributes:
        best: of the cheapest deployments that keep the promise, the one that keeps it best; None where none does.
        level: outcomes at the cost of the best.
        refuted: {(cell, replicas): why} of what bounds dropped.
        tried: outcomes of everything else that was looked at, cheapest first.
    """

    best: Outcome | None = None
    level: list[Outcome] = field(default_factory=list)
    refuted: dict[tuple[Cell, int], Refuted] = field(default_factory=dict)
    tried: list[Outcome] = field(default_factory=list)


def groups_of(cells: Iterable[Cell]) -> dict[Cell, list[Cell]]:
    """{group: its cells} in order of key."""
    found: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        found[cell.group].append(cell)
    return dict(found)


def rank(ground: Ground, outcome: Outcome) -> tuple[object, ...]:
    """Sorts deployments that keep the promise: cheaper, further from breaking it, wider knobs, by name."""
    cell, replicas = outcome.trial.cell, outcome.trial.replicas
    ratio = outcome.verdict.ratio
    knobs = (-cell.max_num_seqs, -cell.max_num_batched_tokens)
    return (round(ground.cost(cell, replicas), 9), 1.0 if ratio is None else ratio, *knobs, cell.key, replicas)


def cheapest(bench: Bench, ground: Ground, case: Case, cells: Sequence[Cell]) -> Found:
    """Search all ``cells`` in all numbers that the budgets allow, by rising cost.

    A deployment is left out only if a bound refutes it, or if one that costs less keeps the promise; so the best is
    the one that simulating every deployment would give.
    """
    levels: dict[float, list[tuple[Cell, int]]] = defaultdict(list)
    for cell in cells:
        for replicas in range(1, ground.most_replicas(cell) + 1):
            levels[round(ground.cost(cell, replicas), 9)].append((cell, replicas))
    found = Found()
    for _, level in sorted(levels.items()):
        tasks = []
        for replicas, group in _by_number(level):
            left = _unrefuted(ground, case, group, replicas, found)
            tasks += [at_every_knob(case, knobs, replicas, ground) for knobs in groups_of(left).values()]
        outcomes = [outcome for task in bench.together(tasks) for outcome in task]
        kept = [outcome for outcome in outcomes if outcome.verdict.kept]
        if kept:
            found.best, found.level = min(kept, key=lambda outcome: rank(ground, outcome)), outcomes
            return found
        found.tried += outcomes
    return found


def _by_number(level: list[tuple[Cell, int]]) -> list[tuple[int, list[Cell]]]:
    numbers: dict[int, list[Cell]] = defaultdict(list)
    for cell, replicas in level:
        numbers[replicas].append(cell)
    return sorted(numbers.items())


def _unrefuted(ground: Ground, case: Case, cells: Iterable[Cell], replicas: int, found: Found) -> list[Cell]:
    left = []
    for cell in cells:
        why = ground.refuted(case, cell, replicas)
        if why is None:
            left.append(cell)
        else:
            found.refuted[cell, replicas] = why
    return left


def fewest(case: Case, cells: Group, ground: Ground, *, start: int = 1) -> Task[Outcome | None]:
    """The best of the fewest replicas of a group that keep the promise, from ``start`` on; None within the budgets."""
    most = max((ground.most_replicas(cell) for cell in cells), default=0)
    for replicas in range(start, most + 1):
        left = [cell for cell in cells if ground.refuted(case, cell, replicas) is None]
        outcomes = yield from at_every_knob(case, left, replicas, ground)
        kept = [outcome for outcome in outcomes if outcome.verdict.kept]
        if kept:
            return min(kept, key=lambda outcome: rank(ground, outcome))
    return None


def at_every_knob(case: Case, cells: Group, replicas: int, ground: Ground) -> Task[list[Outcome]]:
    """Outcomes of ``cells`` (which differ in knobs alone), in their order.

    The widest knobs run first. Where a run never came near a limit, the runs under other limits that it would not have
    come near either are the same, step by step, and are not simulated.
    """
    outcomes: dict[Cell, Outcome] = {}
    left = sorted(cells, key=lambda cell: (-cell.max_num_seqs, -cell.max_num_batched_tokens))
    while left:
        (ran,) = yield [Trial(case, left[0], replicas)]
        outcomes[left[0]] = ran
        rest = []
        for cell in left[1:]:
            if same_run(case.base, ran.record, left[0], cell, ground):
                outcomes[cell] = Outcome(ran.trial._replace(cell=cell), ran.record, ran.verdict, inferred=True)
            else:
                rest.append(cell)
        left = rest
    return [outcomes[cell] for cell in cells]


def same_run(base: Scenario, record: Record, ran: Cell, other: Cell, ground: Ground) -> bool:
    """Whether ``other`` would have gone through the very run that ``ran`` left in ``record``.

    The scheduler of vLLM asks three limits, and only whether they are reached: sequences, tokens of a step, free
    blocks. With the pool never so full that the longest prompt would not have found its blocks, no admission failed.
    """
    evidence, engine = record.evidence, base.engine
    plain = engine.preset == "vllm" and engine.enable_chunked_prefill and engine.watermark == 0.0
    if evidence is None or not plain or engine.speculative is not None:
        return False
    if evidence.peak_running >= min(ran.max_num_seqs, other.max_num_seqs):
        return False
    if evidence.peak_step_tokens >= min(ran.max_num_batched_tokens, other.max_num_batched_tokens):
        return False
    blocks, others = ground.fit(ran).blocks, ground.fit(other).blocks
    if blocks == others:
        return True
    shares = base.workload.prefixes or base.workload.sessions or base.workload.trace or base.workload.preset
    least = min([*blocks.values(), *others.values()], default=0) - 1
    longest = -(-evidence.longest_prompt_tokens // engine.block_size) + 1
    return not shares and evidence.peak_blocks + longest <= least
