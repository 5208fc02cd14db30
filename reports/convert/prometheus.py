"""Samples of Prometheus: the text of ``/metrics``, or the answer of a (range) query as JSON."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sim.errors import InputError

MAX_SAMPLES: Final = 2_000_000
_LINE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Increase:
    """By how much one series grew.

    Attributes:
        amount: from the first sample to the last; from 0 for a single dump.
        points: (time_s, value) of a range query, empty for a dump.
    """

    name: str
    labels: Mapping[str, str]
    amount: float
    points: tuple[tuple[float, float], ...] = ()


def read_text(text: str) -> Iterator[Increase]:
    """The series of an exposition; each has grown from 0 since the server began. Raises `InputError`."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise InputError(f"metrics:{number}", f"'{line[:60]}' is no sample", "give the text of /metrics")
        yield Increase(match[1], dict(_LABEL.findall(match[2] or "")), _number(match[3]))


def read_query(data: Mapping[str, Any]) -> Iterator[Increase]:
    """The series of an answer of Prometheus' HTTP API; counters that restart are added up. Raises `InputError`."""
    result = data.get("data", data)
    series = result.get("result") if isinstance(result, Mapping) else None
    if not isinstance(series, list):
        raise InputError("data.result", "is missing", "give the answer of /api/v1/query_range")
    seen = 0
    for number, one in enumerate(series):
        metric, values = (one.get("metric"), one.get("values")) if isinstance(one, Mapping) else (None, None)
        if not isinstance(metric, Mapping) or not isinstance(values, list) or len(values) < 2:
            raise InputError(f"data.result.{number}", "has no range of values", "ask /api/v1/query_range, not /query")
        seen += len(values)
        if seen > MAX_SAMPLES:
            raise InputError("data.result", f"has more than {MAX_SAMPLES} samples", "ask for a longer step")
        points = tuple(_point(pair, number) for pair in values)
        amount = sum(
            max(after - before, 0.0) if after >= before else after
            for (_, before), (_, after) in itertools.pairwise(points)
        )
        labels = {str(key): str(value) for key, value in metric.items()}
        yield Increase(labels.pop("__name__", ""), labels, amount, points)


def _point(pair: Any, number: int) -> tuple[float, float]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise InputError(f"data.result.{number}", "has a value that is no pair of time and number")
    return _number(str(pair[0])), _number(str(pair[1]))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError("metrics", f"'{text[:40]}' is no number") from None
    return 0.0 if math.isnan(value) else value
