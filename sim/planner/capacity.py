"""The highest load that a deployment sustains, and the fewest replicas near a guess."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from sim.planner.bench import Outcome, Task, Trial
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.space import Cell

TOLERANCE: Final = 1.04
_MOST: Final = 64.0
_LEAST: Final = 1 / 64


@dataclass(frozen=True, slots=True)
class Capacity:
    """The loads between which a deployment breaks its promise, in multiples of the case's load.

    Attributes:
        holds: outcome at the highest load tried that keeps the promise; None where none does.
        breaks: outcome at the lowest load above that does not; None where bounds alone say so, or nothing breaks it.
    """

    holds: Outcome | None
    breaks: Outcome | None

    @property
    def factor(self) -> float:
        """Of the load that holds; 0 where none does."""
        return self.holds.trial.factor if self.holds else 0.0


def capacity(
    case: Case,
    cell: Cell,
    replicas: int,
    ground: Ground,
    known: Outcome | None = None,
    tolerance: float = TOLERANCE,
) -> Task[Capacity]:
    """Bisect (on a logarithmic scale) between a load that holds and one that bounds or a simulation refute.

    Args:
        known: an outcome that keeps the promise at the case's own load, where there is one.
        tolerance: between the load that holds and the one that does not.
    """
    low, high, holds, breaks = 1.0, 1.0, known, None
    if known is None:
        while low > _LEAST and (holds is None or not holds.verdict.kept):
            low, high = low / 2, low
            (holds,) = yield [Trial(case, cell, replicas, _rounded(low))]
            breaks = breaks if holds.verdict.kept else holds
        if holds is None or not holds.verdict.kept:
            return Capacity(None, breaks)
    else:
        high = _first_refuted(case, cell, replicas, ground)
    while high / low > tolerance:
        factor = _rounded(math.sqrt(low * high))
        if not low < factor < high:
            break
        (outcome,) = yield [Trial(case, cell, replicas, factor)]
        if outcome.verdict.kept:
            low, holds = factor, outcome
        else:
            high, breaks = factor, outcome
    return Capacity(holds, breaks)


def _first_refuted(case: Case, cell: Cell, replicas: int, ground: Ground) -> float:
    """A load that bounds refute, found in cheap steps."""
    factor = 1.25
    while factor < _MOST and ground.refuted(case, cell, replicas, _rounded(factor)) is None:
        factor *= 1.25
    return factor


def near(case: Case, cell: Cell, ground: Ground, guess: int, most: int | None = None) -> Task[Outcome | None]:
    """The fewest replicas that keep the promise, from a guess up or down; None within ``most`` or the budgets.

    Takes for granted that more replicas serve no worse.
    """
    most = ground.most_replicas(cell) if most is None else most
    replicas = max(1, min(guess, most))
    kept = (yield from kept_by(case, cell, ground, replicas)) if most else None
    if kept is None:
        while kept is None and replicas < most:
            replicas += 1
            kept = yield from kept_by(case, cell, ground, replicas)
        return kept
    while replicas > 1:
        replicas -= 1
        fewer = yield from kept_by(case, cell, ground, replicas)
        if fewer is None:
            break
        kept = fewer
    return kept


def kept_by(case: Case, cell: Cell, ground: Ground, replicas: int) -> Task[Outcome | None]:
    """The outcome of ``replicas`` if they keep the promise."""
    if ground.refuted(case, cell, replicas) is not None:
        return None
    (outcome,) = yield [Trial(case, cell, replicas)]
    return outcome if outcome.verdict.kept else None


def _rounded(factor: float) -> float:
    """Three digits: loads that are easy to read, and the same ones from run to run."""
    return float(f"{factor:.3g}")
