"""Replicas by the hour for traffic that rises and falls over a day."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sim.errors import InputError
from sim.planner.bench import Task
from sim.planner.capacity import near
from sim.planner.case import Case
from sim.planner.ground import Ground
from sim.planner.space import Cell

HOURS = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """One stretch of the day: its load in the plan's unit, and the replicas that keep the promise (None: too few)."""

    start_h: float
    length_h: float
    load: float
    replicas: int | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A day. Dollars and GPU hours are of the whole day; None without a price, or where an hour cannot be served.

    Attributes:
        static_replicas: as many as the busiest hour needs.
    """

    hours: tuple[Hour, ...]
    static_replicas: int | None
    gpu_hours: float | None
    static_gpu_hours: float | None
    usd: float | None
    static_usd: float | None

    @property
    def saved(self) -> float | None:
        """Share of the static GPU hours that the schedule saves."""
        if self.gpu_hours is None or not self.static_gpu_hours:
            return None
        return 1 - self.gpu_hours / self.static_gpu_hours


def read_curve(text: str) -> list[tuple[float, float]]:
    """(hour, load) of a day: ``1.5,2,4,...`` (equal stretches of a day) or a CSV file with ``hour`` and ``rate_per_s``.

    Raises `InputError` for anything else, with the line.
    """
    path = Path(text).expanduser()
    if not any(character.isalpha() for character in text.replace("e", "")) and not path.exists():
        loads = [_number(word, f"--rate-curve {text}") for word in text.split(",")]
        return [(HOURS * i / len(loads), load) for i, load in enumerate(loads)]
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is not UTF-8 text"
        raise InputError(str(path), f"cannot be read: {reason}", "name a CSV file, or give rates: 1,2,4,8") from None
    curve = []
    for line, row in enumerate(rows, 2):
        hour, load = (row.get(key) for key in ("hour", "rate_per_s"))
        if hour is None or load is None:
            raise InputError(f"{path}:{line}", "lacks hour or rate_per_s", "head the columns hour,rate_per_s")
        curve.append((_number(hour, f"{path}:{line}"), _number(load, f"{path}:{line}")))
    _check(curve, str(path))
    return curve


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(where, f"'{text.strip()}' is not a number") from None
    if not math.isfinite(value) or value < 0:
        raise InputError(where, f"{text.strip()} is not a rate or an hour", "give numbers of at least 0")
    return value


def _check(curve: list[tuple[float, float]], where: str) -> None:
    hours = [hour for hour, _ in curve]
    if not curve or hours != sorted(set(hours)) or hours[0] != 0 or hours[-1] >= HOURS:
        raise InputError(
            where, "hours must rise from 0 to less than 24", "a row for each hour at which the rate changes"
        )


def schedule(
    case: Case, cell: Cell, ground: Ground, curve: Sequence[tuple[float, float]], per_replica: float
) -> Task[Schedule]:
    """The fewest replicas for each stretch of ``curve``, each verified by a simulation at its load.

    Args:
        curve: (hour, load) in the unit of the case's load.
        per_replica: load that one replica sustains, as a guess to start from.
    """
    needed: dict[float, int | None] = {}
    for load in sorted({load for _, load in curve}):
        if load == 0:
            needed[load] = 0
            continue
        at = Case(case.base, case.load.scaled(load / case.load.given))
        outcome = yield from near(at, cell, ground, max(1, math.ceil(load / per_replica)))
        needed[load] = outcome.trial.replicas if outcome else None
    ends = [hour for hour, _ in curve[1:]] + [float(HOURS)]
    hours = tuple(Hour(h, end - h, load, needed[load]) for (h, load), end in zip(curve, ends, strict=True))
    return _totals(hours, cell, ground)


def _totals(hours: tuple[Hour, ...], cell: Cell, ground: Ground) -> Schedule:
    numbers = [hour.replicas for hour in hours]
    if any(number is None for number in numbers):
        return Schedule(hours, None, None, None, None, None)
    most = max(number for number in numbers if number is not None)
    gpu_hours = cell.gpus * sum(hour.length_h * (hour.replicas or 0) for hour in hours)
    static = float(cell.gpus * most * HOURS)
    price = ground.usd_per_gpu_hour(cell)
    usd = None if price is None else price * gpu_hours
    return Schedule(hours, most, gpu_hours, static, usd, None if price is None else price * static)
