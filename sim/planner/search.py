"""The cheapest deployment, found as brute force would find it, without most of its simulations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sim.planner.bench import Bench, Outcome, Task, Trial
from sim.planner.bounds import Refuted
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.hunt import Hunt, rank
from sim.planner.record import Record
from sim.planner.space import Cell
from sim.scenario import Scenario

Group = Sequence[Cell]  # cells that differ in knobs alone
_SEVERAL: Final = 2


@dataclass
class Found:
    """The answer of a search.

    Attributes:
        best: of the cheapest deployments that keep the promise, the one that keeps it best; None where none does.
        level: outcomes at the cost of the best.
        refuted: {(cell, replicas): why} of what bounds dropped.
        tried: outcomes of everything else that was looked at, cheapest first.
        spared: deployments known to be too small from runs of others, see `sim.planner.hunt`.
        outbid: deployments that by a bound cannot keep the promise as well as one of equal cost.
    """

    best: Outcome | None = None
    level: list[Outcome] = field(default_factory=list)
    refuted: dict[tuple[Cell, int], Refuted] = field(default_factory=dict)
    tried: list[Outcome] = field(default_factory=list)
    spared: list[tuple[Cell, int]] = field(default_factory=list)
    outbid: list[tuple[Cell, int]] = field(default_factory=list)


def groups_of(cells: Iterable[Cell]) -> dict[Cell, list[Cell]]:
    """{group: its cells} in order of key."""
    found: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in cells:
        found[cell.group].append(cell)
    return dict(found)


def cheapest(bench: Bench, ground: Ground, case: Case, cells: Sequence[Cell]) -> Found:
    """Search all ``cells`` in all numbers that the budgets allow, by rising cost.

    A deployment is left out only if a bound refutes it, if one that costs less keeps the promise, or if its decode
    engines were too few behind other prefill engines. Of equal cost, a run is given up once it is certain not to keep
    the promise as well as the best so far. So the best is the one that simulating every deployment would give.
    """
    levels: dict[float, list[tuple[Cell, int]]] = defaultdict(list)
    for cell in cells:
        for replicas in range(1, ground.most_replicas(cell) + 1):
            levels[round(ground.cost(cell, replicas), 9)].append((cell, replicas))
    found = Found()
    hunt = Hunt(case, ground, spared=found.spared)
    for _, level in sorted(levels.items()):
        groups: list[tuple[int, Group]] = []
        for replicas, group in _by_number(level):
            left = _unrefuted(ground, case, group, replicas, found)
            groups += [(replicas, knobs) for knobs in groups_of(left).values()]
        outcomes: list[Outcome] = []
        for wave in _waves(groups):
            left_of = [(replicas, _not_outbid(ground, hunt, knobs, replicas, found)) for replicas, knobs in wave]
            tasks = [at_every_knob(case, knobs, replicas, ground, hunt) for replicas, knobs in left_of]
            outcomes += [outcome for task in bench.together(tasks) for outcome in task]
        if hunt.best is not None:
            found.best, found.level = hunt.best, outcomes
            return found
        found.tried += outcomes
    return found


def _not_outbid(ground: Ground, hunt: Hunt, cells: Group, replicas: int, found: Found) -> list[Cell]:
    """Those of ``cells`` that bounds allow to keep the promise as well as the best so far."""
    if hunt.tighter is None:
        return list(cells)
    lost = [cell for cell in cells if ground.refuted(hunt.tighter, cell, replicas) is not None]
    found.outbid += [(cell, replicas) for cell in lost]
    return [cell for cell in cells if cell not in lost]


def _waves(groups: list[tuple[int, Group]]) -> list[list[tuple[int, Group]]]:
    """``groups`` in waves, so that each learns from those before: engines that do both phases first, and splits with
    one kind of decode engine after each other, those with the most of them first."""
    waves: dict[int, list[tuple[int, Group]]] = defaultdict(list)
    numbers: dict[Any, int] = defaultdict(int)

    def engines(group: tuple[int, Group]) -> int:
        split = group[1][0].split
        return 0 if split is None else split.decode * group[0]

    for replicas, group in sorted(groups, key=lambda one: (-engines(one), one[1][0].key)):
        cell = group[0]
        kind = None if cell.split is None else (cell.hardware, cell.quantization, cell.kv_cache_dtype, cell.layout)
        waves[0 if kind is None else numbers[repr(kind)]].append((replicas, group))
        numbers[repr(kind)] += 1
    return [wave for _, wave in sorted(waves.items())]


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


def fewest(case: Case, cells: Group, ground: Ground, found: Found) -> Task[Outcome | None]:
    """The fewest replicas of a group that keep the promise at a few of its knobs; None within the budgets.

    Fewer than those that cost as much as the best of ``found`` do not. Takes for granted that more replicas serve no
    worse: where all that the budgets allow break the promise, so do fewer.
    """
    assert found.best is not None
    group, level = cells[0].group, ground.cost(found.best.trial.cell, found.best.trial.replicas)
    seen = [outcome for outcome in found.level if outcome.trial.cell.group == group]
    kept = [outcome for outcome in seen if outcome.verdict.kept]
    if kept:
        return min(kept, key=lambda outcome: rank(ground, outcome))
    broken = max((outcome.trial.replicas for outcome in seen if outcome.verdict.broken), default=0)
    knobs, most = _few_knobs(cells, found.best.trial.cell), ground.most_replicas(cells[0])
    left = [number for number in range(1, most + 1) if ground.cost(cells[0], number) >= level - 1e-9]
    left = [number for number in left if number > broken or any(not outcome.verdict.broken for outcome in seen)]
    if len(left) > _SEVERAL and (yield from _at_some_knob(case, knobs, most, ground)) is None:
        return None
    for number in left:
        outcome = yield from _at_some_knob(case, knobs, number, ground)
        if outcome is not None:
            return outcome
    return None


def _few_knobs(cells: Group, winner: Cell) -> list[Cell]:
    """The widest knobs, the winner's, and the smallest steps."""
    widest = max(cells, key=lambda cell: (cell.max_num_seqs, cell.max_num_batched_tokens))
    like = [cell for cell in cells if (cell.max_num_seqs, cell.max_num_batched_tokens) == (
        winner.max_num_seqs, winner.max_num_batched_tokens)]  # fmt: skip
    small = min(cells, key=lambda cell: (cell.max_num_batched_tokens, -cell.max_num_seqs))
    return list(dict.fromkeys([*like, widest, small]))


def _at_some_knob(case: Case, cells: Group, replicas: int, ground: Ground) -> Task[Outcome | None]:
    """The first of ``cells`` that keeps the promise."""
    for cell in cells:
        if ground.refuted(case, cell, replicas) is None:
            (outcome,) = yield [Trial(case, cell, replicas)]
            if outcome.verdict.kept:
                return outcome
    return None


def at_every_knob(case: Case, cells: Group, replicas: int, ground: Ground, hunt: Hunt) -> Task[list[Outcome]]:
    """Outcomes of ``cells`` (which differ in knobs alone), in their order; none of those that ``hunt`` spares.

    The widest knobs run first. Where a run never came near a limit, the runs under other limits that it would not have
    come near either are the same, step by step, and are not simulated.
    """
    outcomes: dict[Cell, Outcome] = {}
    left = sorted(cells, key=lambda cell: (-cell.max_num_seqs, -cell.max_num_batched_tokens))
    while left := [cell for cell in left if not hunt.too_few(cell, replicas)]:
        (ran,) = yield [Trial(case, left[0], replicas, ceiling=hunt.ceiling(left[0]))]
        outcomes[left[0]] = ran
        hunt.saw(ran)
        rest = []
        for cell in left[1:]:
            if same_run(case.base, ran.record, left[0], cell, ground):
                outcomes[cell] = Outcome(ran.trial._replace(cell=cell), ran.record, ran.verdict, inferred=True)
            else:
                rest.append(cell)
        left = rest
    return [outcomes[cell] for cell in cells if cell in outcomes]


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
