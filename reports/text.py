"""Numbers as people read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

NONE = "-"
METRICS: Final = {
    "ttft": "Time to first token",
    "tpot": "Time per output token",
    "itl": "Gap between tokens",
    "e2e": "End-to-end latency",
    "queue": "Time until first scheduled",
}


def seconds(value: float | None) -> str:
    """A duration with three significant digits and a fitting unit.

    >>> seconds(0.0123), seconds(1.5), seconds(754.0), seconds(None)
    ('12.3 ms', '1.5 s', '12 min 34 s', '-')
    """
    if value is None:
        return NONE
    if value < 0.9995e-3:
        return f"{_digits(value * 1e6)} us"
    if value < 0.9995:
        return f"{_digits(value * 1e3)} ms"
    if value < 120:
        return f"{_digits(value)} s"
    whole = round(value)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def time_unit(typical_s: float) -> tuple[str, float]:
    """The unit that suits an axis of such times, and how many of it a second is.

    >>> time_unit(0.2), time_unit(3.0)
    (('ms', 1000.0), ('s', 1.0))
    """
    return ("ms", 1e3) if typical_s < 1 else ("s", 1.0)


def span(low: float | None, high: float | None, shown: Callable[[float | None], str] = seconds) -> str:
    """A range of values; its unit once where both ends share it.

    >>> span(0.0123, 0.0131), span(0.9, 1.2), span(2.0, 2.0), span(3.0, 4.5, number), span(None, None)
    ('12.3-13.1 ms', '900 ms - 1.2 s', '2 s', '3-4.5', '-')
    """
    begin, end = shown(low), shown(high)
    if begin == end:
        return begin
    (first, *unit), (_, *other) = begin.split(" "), end.split(" ")
    if unit == other and len(unit) < 2:
        return f"{first}-{end}"
    return f"{begin} - {end}"


def number(value: float | None) -> str:
    """A count or rate: three significant digits below 1000, whole with separators above.

    >>> number(3.14159), number(1234567), number(0.0), number(None)
    ('3.14', '1,234,567', '0', '-')
    """
    if value is None:
        return NONE
    return f"{round(value):,}" if abs(value) >= 999.5 else _digits(value)


def percent(value: float | None) -> str:
    """A share of one.

    >>> percent(0.12345), percent(0.0004), percent(1.0), percent(0.9996), percent(0.00001), percent(None)
    ('12.3 %', '0.04 %', '100 %', '99.96 %', '<0.01 %', '-')
    """
    if value is None:
        return NONE
    if 0 < value < 1e-4:
        return "<0.01 %"
    if 0.9995 <= value < 1:
        return f"{int(value * 1e4) / 100:g} %"  # never round up to all
    return f"{_digits(value * 100)} %"


def gib(value: float | None) -> str:
    """Bytes as GiB.

    >>> gib(85899345920)
    '80 GiB'
    """
    return NONE if value is None else f"{_digits(value / 2**30)} GiB"


def usd(value: float | None) -> str:
    """Money.

    >>> usd(12.0), usd(0.4), usd(0.0421), usd(1234.5)
    ('$12.00', '$0.40', '$0.0421', '$1,234.50')
    """
    if value is None:
        return NONE
    return f"${value:,.2f}" if value >= 0.0995 else f"${_digits(value)}"


def count(value: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "request"), count(2000, "request")
    ('1 request', '2,000 requests')
    """
    return f"{value:,} {noun}" + ("" if value == 1 else "s")


def _digits(value: float) -> str:
    text = f"{value:.3g}"
    return f"{round(value):,}" if "e" in text and abs(value) >= 1 else text


# How a value of a key is called in a label.
_LABELS: Final = {
    "tensor_parallel_size": "TP{}",
    "pipeline_parallel_size": "PP{}",
    "data_parallel_size": "DP{}",
    "kv_cache_dtype": "{} cache",
    "quantization": "{} weights",
    "model": "{}",
    "hardware": "{}",
}


def called(key: str, value: Any) -> str:
    """A value of a scenario's key in a label; a section by what is in it.

    >>> called("layout", {"data_parallel_size": 8, "enable_expert_parallel": True}), called("engine.block_size", 32)
    ('DP8 EP', 'block_size=32')
    """
    if isinstance(value, dict):
        return " ".join(called(inner, item) for inner, item in value.items())
    last = key.split(".")[-1]
    if last == "enable_expert_parallel" and isinstance(value, bool):
        return "EP" if value else "no EP"
    shown = value.split("/")[-1] if isinstance(value, str) else json.dumps(value)
    return _LABELS.get(last, f"{last}={{}}").format(shown)
