"""A grid of what-ifs: every combination of the values given for some keys of a scenario."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sim.errors import InputError
from sim.planner.record import Refusal
from sim.scenario import Scenario
from sim.scenario.document import parse_yaml

MOST_POINTS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class GridPoint:
    """One combination: its values in the order of the keys, and the scenario with its hash, or why there is none."""

    values: tuple[Any, ...]
    scenario: Scenario | None = None
    key: str = ""
    refusal: Refusal | None = None


def parse_vary(texts: Iterable[str]) -> dict[str, list[Any]]:
    """{key: values} of ``key=a,b,c`` texts; the values are YAML, so ``slo={ttft_p99_s: 1},{ttft_p99_s: 2}`` is two.

    Raises `InputError` for a text of another form, a key given twice, or a value given twice.
    """
    vary: dict[str, list[Any]] = {}
    for text in texts:
        key, separator, values = text.partition("=")
        key = key.strip()
        if not separator or not all(key.split(".")) or not values.strip():
            example = "for example engine.max_num_seqs=64,128,256"
            raise InputError(f"--vary {text}", "is not of the form key.path=a,b,c", example)
        if key in vary:
            raise InputError(f"--vary {key}", "is given twice", f"write {key}=a,b,c once")
        vary[key] = parse_yaml(f"[{values}]", f"--vary {key}")
    return vary


def check_vary(vary: Mapping[str, Sequence[Any]]) -> None:
    """Raise `InputError` where ``vary`` is no grid: nothing to vary, a key without values, a value twice, too many."""
    if not vary:
        raise InputError("--vary", "nothing to vary", "for example --vary engine.max_num_seqs=64,128,256")
    points = 1
    for key, values in vary.items():
        if not values:
            raise InputError(f"--vary {key}", "has no values", f"write {key}=a,b,c")
        spelled = [json.dumps(value, sort_keys=True) for value in values]
        for value in spelled:
            if spelled.count(value) > 1:
                raise InputError(f"--vary {key}", f"holds {value} twice", "give each value once")
        points *= len(values)
    if points > MOST_POINTS:
        raise InputError("--vary", f"asks for {points:,} points", f"stay below {MOST_POINTS:,}")


def grid_of(base: Scenario, vary: Mapping[str, Sequence[Any]]) -> list[GridPoint]:
    """Every combination, the last key fastest. A combination that the schema refuses is a point with its reason.

    Raises `InputError` where ``vary`` is no grid, or where no combination is a scenario: then the key is at fault.
    """
    check_vary(vary)
    points = [_point(base, list(vary), values) for values in itertools.product(*vary.values())]
    refused = [point.refusal for point in points if point.refusal]
    if len(refused) == len(points):
        raise refused[0].error()
    return points


def _point(base: Scenario, keys: list[str], values: tuple[Any, ...]) -> GridPoint:
    edits = [f"{key}={json.dumps(value)}" for key, value in zip(keys, values, strict=True)]
    try:
        scenario = base.with_overrides(edits)
        return GridPoint(values, scenario, scenario.scenario_hash)
    except InputError as error:
        return GridPoint(values, refusal=Refusal.of(error))
