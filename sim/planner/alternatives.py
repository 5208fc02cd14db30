"""What stands beside the winner: the other kinds of deployment, their limits, ties, fronts and what-ifs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sim.planner.bench import Bench, Outcome, Task, Trial
from sim.planner.capacity import TOLERANCE, Capacity, capacity, kept_by, near
from sim.planner.case import Case
from sim.planner.fronts import front
from sim.planner.ground import Ground
from sim.planner.hunt import rank
from sim.planner.outcome import FrontPoint, Range, Row, WhatIf
from sim.planner.rows import budget_words, deployment_of, in_words, kept_row, point_of, promise_words, refused_row
from sim.planner.search import Found, fewest, groups_of
from sim.planner.space import Cell, Options
from sim.planner.whatifs import Variation, variations

MOST_KINDS: Final = 6  # kinds of deployment beside which a row is shown
ASKED_KINDS: Final = 3  # of which what-ifs are asked
_LADDER: Final = (0.3, 0.6)  # parts of the highest load, for the fronts
_COARSE: Final = 1.08  # tolerance of the highest load of all but the winner


@dataclass
class Kind:
    """Hardware, layout and formats: its best deployment and what was learned around it."""

    cells: list[Cell]
    best: Outcome | None = None
    limits: Capacity = field(default_factory=lambda: Capacity(None, None))
    faster: Outcome | None = None
    slower: Outcome | None = None
    around: list[Outcome] = field(default_factory=list)


class Alternatives:
    """Looks around a winner.

    Args:
        band: relative error of the step times of a cell.
    """

    def __init__(
        self, bench: Bench, ground: Ground, case: Case, options: Options, band: Callable[[Cell], float]
    ) -> None:
        self._bench = bench
        self._ground = ground
        self._case = case
        self._options = options
        self._band = band
        self._tokens = case.mean_tokens

    # -- kinds --------------------------------------------------------------------------------------------------------

    def kinds(self, fitting: Sequence[Cell], found: Found) -> list[Kind]:
        """The winner's kind first, then others that keep the promise by cost, then those that do not; each with its
        limits, and with what it would need if steps took more or less time."""
        assert found.best is not None
        chosen = self._chosen(fitting, found.best.trial.cell.group)
        kinds = [Kind(cells) for cells in chosen]
        bests = self._bench.together([fewest(self._case, kind.cells, self._ground, found) for kind in kinds[1:]])
        for kind, best in zip(kinds, [found.best, *bests], strict=True):
            kind.best = best
        kinds.sort(key=lambda kind: (kind.best is None, self._order(kind)))
        kept = [kind for kind in kinds if kind.best is not None]
        self._bench.together([self._look_around(kind, place) for place, kind in enumerate(kept)])
        worst = math.inf if kinds[0].slower is None else self._cost(kinds[0].slower)
        self._bench.together([self._may_tie(kind, worst) for kind in kept[1:]])
        return kinds

    def _cost(self, outcome: Outcome) -> float:
        return self._ground.cost(outcome.trial.cell, outcome.trial.replicas)

    def _order(self, kind: Kind) -> tuple[Any, ...]:
        return rank(self._ground, kind.best) if kind.best else (self._ground.cost(kind.cells[0], 1), kind.cells[0].key)

    def _chosen(self, fitting: Sequence[Cell], winner: Cell) -> list[list[Cell]]:
        """The winner's kind and those that bounds let hope for the least cost."""
        groups = groups_of(fitting)
        hopes = {group: self._hope(cells) for group, cells in groups.items()}
        order = sorted(groups, key=lambda group: (group != winner, hopes[group], group.key))
        return [groups[group] for group in order[:MOST_KINDS]]

    def _hope(self, cells: Sequence[Cell]) -> float:
        """The least cost that bounds allow under the widest knobs."""
        widest = cells[-1]
        for replicas in range(1, self._ground.most_replicas(widest) + 1):
            if self._ground.refuted(self._case, widest, replicas) is None:
                return self._ground.cost(widest, replicas)
        return math.inf

    def _look_around(self, kind: Kind, place: int) -> Task[None]:
        """Limits, the band, and points for the fronts, of a kind that keeps the promise."""
        assert kind.best is not None
        cell, replicas = kind.best.trial.cell, kind.best.trial.replicas
        tolerance = TOLERANCE if place == 0 else _COARSE
        kind.limits = yield from capacity(self._case, cell, replicas, self._ground, kind.best, tolerance)
        if place >= ASKED_KINDS:
            return
        if place == 0:
            kind.faster = yield from self._in_band(kind, 1 / (1 + self._band(cell)))
            kind.slower = yield from self._in_band(kind, 1 + self._band(cell))
        loads = [Trial(self._case, cell, replicas, float(f"{kind.limits.factor * part:.3g}")) for part in _LADDER]
        most = self._ground.most_replicas(cell)
        numbers = (replicas + 1, 2 * replicas) if place == 0 and most > replicas else ()
        more = dict.fromkeys(min(most, number) for number in numbers)
        kind.around = yield [*loads, *(Trial(self._case, cell, number) for number in more)]

    def _in_band(self, kind: Kind, times: float) -> Task[Outcome | None]:
        """The fewest replicas if every step took ``times`` as long."""
        assert kind.best is not None
        if times == 1:
            return kind.best
        trial = kind.best.trial
        guess = math.ceil(trial.replicas * times / max(kind.limits.factor, 1.0) - 1e-9)
        return (yield from near(self._case.slower(times), trial.cell, self._ground, guess))

    def _may_tie(self, kind: Kind, worst: float) -> Task[None]:
        """Whether faster steps would make the kind cost no more than ``worst``."""
        assert kind.best is not None
        cell = kind.best.trial.cell
        affordable = [n for n in range(1, kind.best.trial.replicas) if self._ground.cost(cell, n) <= worst + 1e-9]
        if self._cost(kind.best) <= worst + 1e-9:
            kind.faster = kind.best
        elif affordable and (band := self._band(cell)) > 0:
            faster = self._case.slower(1 / (1 + band))
            kind.faster = yield from kept_by(faster, cell, self._ground, affordable[-1])

    # -- rows ---------------------------------------------------------------------------------------------------------

    def rows(self, kinds: Sequence[Kind]) -> list[Row]:
        """A row a kind, in order; ties with the first are marked."""
        rows = [self._row(kind) for kind in kinds]
        worst = rows[0].band.cost_if_slower
        worst = math.inf if worst is None else worst
        return [rows[0], *(row.model_copy(update={"tie": self._ties(row, worst)}) for row in rows[1:])]

    def _ties(self, row: Row, winner_if_slower: float) -> bool:
        best = row.band.cost_if_faster
        return row.keeps and best is not None and best <= winner_if_slower

    def _row(self, kind: Kind) -> Row:
        if kind.best is None:
            return self.refused(kind.cells[-1])
        row = kept_row(kind.best, self._ground, kind.limits, self._tokens)

        def replicas(outcome: Outcome | None) -> int | None:
            return None if outcome is None else outcome.trial.replicas

        def cost(outcome: Outcome | None) -> float | None:
            return None if outcome is None else self._ground.cost(outcome.trial.cell, outcome.trial.replicas)

        band = Range(
            replicas_if_faster=replicas(kind.faster),
            replicas_if_slower=replicas(kind.slower),
            cost_if_faster=cost(kind.faster),
            cost_if_slower=cost(kind.slower),
        )
        return row.model_copy(update={"band": band})

    def largest(self, fitting: Sequence[Cell]) -> list[Cell]:
        """One cell a kind, those with hope first."""
        return [cells[-1] for cells in self._chosen(fitting, fitting[0].group)] if fitting else []

    def refused(self, cell: Cell) -> Row:
        """The row of a kind that does not keep the promise, even with all that the budgets allow."""
        most = self._ground.most_replicas(cell)
        if most < 1:
            return refused_row(cell, 1, self._ground, budget_words(self._case, cell, self._ground))
        why = self._ground.refuted(self._case, cell, most)
        if why is not None and why.key in self._case.slo.statistics():
            metric, statistic, bound_s = self._case.slo.statistics()[why.key]
            floor = in_words(why.floor_s or 0.0)
            text = f"{metric.upper()} {statistic} is at least {floor}, {in_words(bound_s)} is promised"
        elif why is not None and why.replicas is not None:
            text = f"the work alone needs {why.replicas} x {cell.label}"
        elif why is not None:
            text = "too few requests can meet their bounds, even alone on an engine"
        else:
            (outcome,) = self._bench.run([Trial(self._case, cell, most)])
            text = f"breaks {', '.join(map(promise_words, outcome.verdict.broken))}"
        return refused_row(cell, most, self._ground, text)

    # -- fronts -------------------------------------------------------------------------------------------------------

    def fronts(self, kinds: Sequence[Kind]) -> tuple[tuple[FrontPoint, ...], tuple[FrontPoint, ...]]:
        """Output a GPU against speed a user over all loads, and cost against end-to-end latency at the load asked."""
        cells = {kind.best.trial.cell for kind in kinds if kind.best}
        mine = [one for one in self._bench.outcomes if one.trial.case is self._case and one.trial.cell in cells]
        seen = {one.record.key: one for one in mine}
        points = [(one, point) for one in seen.values() if (point := point_of(one, self._ground)) is not None]
        speed = [point for _, point in points if point.output_tokens_per_s_per_user]
        best_speed = front(
            speed, lambda p: p.output_tokens_per_s_per_gpu, lambda p: -(p.output_tokens_per_s_per_user or 0)
        )
        here = [point for one, point in points if one.trial.factor == 1.0 and point.keeps and point.e2e_mean_s]
        best_cost = front(here, lambda p: -p.cost, lambda p: p.e2e_mean_s or 0.0)
        return _marked(speed, best_speed), _marked(here, best_cost)

    # -- what would change the answer -----------------------------------------------------------------------------

    def what_ifs(self, kinds: Sequence[Kind]) -> tuple[WhatIf, ...]:
        """The answer to other questions among the best few kinds."""
        asked = [kind for kind in kinds if kind.best is not None][:ASKED_KINDS]
        cells = [kind.best.trial.cell for kind in asked if kind.best]
        questions = list(variations(self._case, self._options, cells))
        answers = self._bench.together([self._asked(question, asked) for question in questions])
        return tuple(
            self._answer(question.name, kinds[0], answer) for question, answer in zip(questions, answers, strict=True)
        )

    def _asked(self, question: Variation, asked: Sequence[Kind]) -> Task[list[Outcome]]:
        """The winner's kind in the fewest replicas, then each other in numbers that cost less than the best so far."""
        found: list[Outcome] = []
        for kind in asked:
            assert kind.best is not None
            cell = question.cell(kind.best.trial.cell)
            guess = math.ceil(kind.best.trial.replicas / max(kind.limits.factor, 1.0) * question.times - 1e-9)
            cheapest = min((self._cost(outcome) for outcome in found), default=math.inf)
            most = self._ground.most_replicas(cell)
            while most and self._ground.cost(cell, most) > cheapest - 1e-9:
                most -= 1
            outcome = yield from near(question.case, cell, self._ground, guess, most)
            found += [outcome] if outcome is not None else []
        return found

    def _answer(self, name: str, winner: Kind, kept: list[Outcome]) -> WhatIf:
        if not kept:
            return WhatIf(question=name, same=False)
        best = min(kept, key=lambda outcome: rank(self._ground, outcome))
        assert winner.best is not None
        mine, theirs = winner.best.trial, best.trial
        return WhatIf(
            question=name,
            same=_shape(mine) == _shape(theirs),
            answer=deployment_of(theirs.cell, theirs.replicas),
            cost=self._ground.cost(theirs.cell, theirs.replicas),
        )

    def holds_between(self, kinds: Sequence[Kind]) -> tuple[float, float] | None:
        """Loads between which the winner stays the cheapest: below, something cheaper begins to hold."""
        best = kinds[0].best
        if best is None:
            return None
        cost = self._ground.cost(best.trial.cell, best.trial.replicas)
        lower = 0.0
        for kind in kinds:
            if kind.best is None or not kind.limits.factor:
                continue
            cell = kind.best.trial.cell
            fewer = max(
                (n for n in range(1, kind.best.trial.replicas + 1) if self._ground.cost(cell, n) < cost), default=0
            )
            lower = max(lower, kind.limits.factor * fewer / kind.best.trial.replicas)
        given = self._case.load.given
        return min(lower, 1.0) * given, kinds[0].limits.factor * given

    def prices(self, rows: Sequence[Row]) -> dict[str, float]:
        """{hardware: price of a GPU hour at which its best row would cost what the winner does}, for other hardware."""
        winner = rows[0]
        found: dict[str, float] = {}
        for row in rows[1:]:
            name = row.deployment.hardware
            if row.keeps and name != winner.deployment.hardware and name not in found and winner.usd_per_hour:
                found[name] = winner.usd_per_hour / row.deployment.gpus
        return found


def _shape(trial: Trial) -> tuple[Any, ...]:
    """What is bought: formats and knobs aside."""
    return trial.cell.hardware, trial.cell.layout, trial.cell.split, trial.replicas


def _marked(points: list[FrontPoint], best: list[FrontPoint]) -> tuple[FrontPoint, ...]:
    chosen = {id(point) for point in best}
    return tuple(point.model_copy(update={"on_front": id(point) in chosen}) for point in points)
