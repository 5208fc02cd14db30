"""The columns a reader fills, row by row, and the checks that every trace must pass."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sim.errors import InputError
from sim.workload import Floats, Ints, Workload
from workloads.length_spec import MAX_TOKENS
from workloads.spec import MAX_REQUESTS
from workloads.traces.hash_chains import HashChains

_TOO_LARGE: Final = 2**62


@dataclass(slots=True)
class TraceTable:
    """Requests read so far. ``arrival_s`` stays empty when the trace has lengths only.

    Attributes:
        where: the file, for errors.
        limit: how many requests are wanted.
        line: line (or element) number of each request, for errors.
        hashes: block ids of each request, where the trace has them.
        from_first: whether time counts from the first arrival.
        sessions: the number given to each session name.
    """

    where: str
    limit: int
    arrival_s: array[float] = field(default_factory=lambda: array("d"))
    prompt_tokens: array[int] = field(default_factory=lambda: array("q"))
    output_tokens: array[int] = field(default_factory=lambda: array("q"))
    line: array[int] = field(default_factory=lambda: array("q"))
    optional: dict[str, array[Any]] = field(default_factory=dict)
    hashes: HashChains | None = None
    from_first: bool = False
    sessions: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether as many requests are read as are wanted."""
        return len(self.line) >= self.limit

    def expect(self, rows: int) -> None:
        """Raise `InputError` where ``rows`` requests would be too many, and all of them are wanted."""
        if rows > MAX_REQUESTS < self.limit:
            raise InputError(self.where, f"more than {MAX_REQUESTS:,} requests", "set trace.max_requests")

    def add(self, line: int, prompt_tokens: int, output_tokens: int) -> None:
        """Append a request's lengths; raises `InputError` beyond `MAX_REQUESTS`."""
        if len(self.line) >= MAX_REQUESTS:
            raise InputError(self.where, f"more than {MAX_REQUESTS:,} requests", "set trace.max_requests")
        self.line.append(line)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)

    def workload(self, rate_scale: float) -> Workload:
        """The checked requests, gaps between arrivals divided by ``rate_scale``."""
        if not self.line:
            raise InputError(self.where, "the trace holds no request", "give a file with at least one request")
        prompt_tokens = self._tokens("prompt tokens", self.prompt_tokens)
        output_tokens = self._tokens("output tokens", self.output_tokens)
        after = self._column("after", -1)
        if after is not None:
            late = (after >= np.arange(len(after))) | (after < -1)
            self._refuse(late, "after", after, "a request may only follow an earlier one (counted from 0)")
        think_s = self._column("think_s", 0)
        if think_s is not None:
            self._refuse(~(think_s >= 0), "think_s", think_s, "give seconds, at least 0")
        return Workload(
            arrival_s=(self._arrivals(after) - self._start()) / rate_scale,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            priority=self._column("priority", 0),
            after=after,
            think_s=think_s,
            session_id=self._column("session_id", -1),
            prefixes=None if self.hashes is None else self.hashes.spans(prompt_tokens, output_tokens, self.at),
            notes=tuple(self.notes),
        )

    def at(self, row: int) -> str:
        """How an error names request ``row``."""
        return f"{self.where}:{self.line[row]}"

    def column(self, name: str, code: str) -> array[Any]:
        """The optional column ``name`` (array type ``code``), made when first asked for."""
        return self.optional.setdefault(name, array(code))

    def _column(self, name: str, default: int) -> NDArray[Any] | None:
        """The optional column ``name``, None where it is absent or says nothing but ``default``."""
        if name not in self.optional:
            return None
        values = np.asarray(self.optional[name])
        return values if (values != default).any() else None

    def _tokens(self, name: str, column: array[int]) -> Ints:
        tokens: Ints = np.asarray(column)
        remedy = "drop such requests, or set trace.skip_empty: true where they are 0"
        self._refuse((tokens < 1) | (tokens > MAX_TOKENS), name, tokens, remedy, f"must lie in [1, {MAX_TOKENS}]")
        return tokens

    def _arrivals(self, after: Ints | None) -> Floats:
        """Arrival times, checked; all NaN where the trace has none."""
        if not self.arrival_s:
            return np.full(len(self.line), np.nan)
        arrival_s: Floats = np.asarray(self.arrival_s)
        waits = np.zeros(len(arrival_s), dtype=bool) if after is None else after >= 0
        self._refuse(~waits & ~np.isfinite(arrival_s), "arrival", arrival_s, "give a time, or the request it follows")
        if not self.from_first:
            self._refuse(~waits & (arrival_s < 0), "arrival", arrival_s, "count time from 0")
        timed = np.flatnonzero(~waits)
        falls = np.flatnonzero(np.diff(arrival_s[timed]) < 0)
        if len(falls):
            row, before = int(timed[falls[0] + 1]), float(arrival_s[timed[falls[0]]])
            problem = f"arrives at {arrival_s[row]:.9g} s, earlier than the request before it ({before:.9g} s)"
            raise InputError(self.at(row), problem, "sort the file by arrival time")
        return np.where(waits, np.nan, arrival_s)

    def _start(self) -> float:
        return self.arrival_s[0] if self.from_first and self.arrival_s else 0.0

    def _refuse(
        self, bad: NDArray[np.bool_], name: str, column: NDArray[Any], remedy: str, rule: str = "is not allowed"
    ) -> None:
        rows = np.flatnonzero(bad)
        if len(rows):
            row = int(rows[0])
            raise InputError(self.at(row), f"{name} {column[row]} {rule}", remedy)


def whole(value: Any, name: str, where: str) -> int:
    """``value`` (text or number) as a 64-bit whole number."""
    try:
        result = value if type(value) is int else int(value) if isinstance(value, str) else _integral(value)
    except (ValueError, TypeError, OverflowError):
        try:
            result = _integral(float(value) if isinstance(value, str) else math.nan)
        except (ValueError, OverflowError):
            result = _TOO_LARGE
    if not -_TOO_LARGE < result < _TOO_LARGE:
        raise InputError(where, f"{name} is not a whole number: {_shown(value)}", "mend or drop the row")
    return result


def positive(value: Any, name: str, where: str) -> int:
    """``value`` (text or number) as a whole number of at least 1."""
    result = whole(value, name, where)
    if result < 1:
        raise InputError(where, f"{name} must be at least 1, got {result}")
    return result


def number(value: Any, name: str, where: str) -> float:
    """``value`` (text or number) as a finite number."""
    try:
        result = float("nan") if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        result = float("nan")
    if not math.isfinite(result):
        raise InputError(where, f"{name} is not a number: {_shown(value)}", "mend or drop the row")
    return result


def _integral(value: Any) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or int(value) != value:
        raise ValueError
    return int(value)


def _shown(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
