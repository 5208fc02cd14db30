"""Where each tabular format keeps what: the same table serves CSV, JSONL and Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from sim.errors import InputError
from workloads.traces.table import number

#: Reads an arrival into seconds: (value, where) -> seconds.
Clock = Callable[[Any, str], float]


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of a tabular trace format.

    Attributes:
        format: name of the format.
        prompt, output: names of the length columns, any one of each.
        arrival: name of the arrival column; a file without it has lengths only.
        clock: makes the reader of arrivals (a new one for each file).
        from_first: whether time counts from the first arrival.
        optional: role (priority, session_id, after, think_s, hash_ids, hash_block_size) to column name.
        hash_tokens: tokens of a hash block where the format fixes it.
        hash_outputs: whether hash ids go on into the output.
        drops_unanswered: whether rows without output tokens are failed requests, to be left out and counted.
    """

    format: str
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    arrival: str
    clock: Callable[[], Clock]
    from_first: bool = True
    optional: dict[str, str] = field(default_factory=dict)
    hash_tokens: int | None = None
    hash_outputs: bool = False
    drops_unanswered: bool = False

    def fits(self, names: Iterable[str]) -> bool:
        """Whether ``names`` hold the lengths, and something that no other format has."""
        known = set(names)
        return any(name in known for name in self.prompt) and any(name in known for name in self.output)

    @property
    def wanted(self) -> str:
        """The columns of the format, for errors."""
        return ", ".join((self.arrival, "|".join(self.prompt), "|".join(self.output)))


def _unit(seconds: float) -> Callable[[], Clock]:
    def clock() -> Clock:
        return lambda value, where: number(value, "arrival", where) * seconds

    return clock


def _wall_clock() -> Clock:
    """Reads ``2023-11-16 18:17:03.9799600`` (any number of decimals, an offset allowed) as seconds from the first one.

    Whole seconds and decimals are kept apart, since a time of day since 1970 has no room for 100 ns.
    """
    epoch: dict[str, int] = {}
    start: list[int] = []

    def clock(value: Any, where: str) -> float:
        text = str(value).strip()
        second, rest = text[:19], text[19:]
        digits = len(rest) - len(rest[1:].lstrip("0123456789")) if rest.startswith(".") else 0
        fraction, offset = rest[:digits], rest[digits:]
        if second + offset not in epoch:
            epoch.clear()
            try:
                moment = datetime.fromisoformat(second + offset)
            except ValueError:
                remedy = "write it as 2023-11-16 18:17:03.979"
                raise InputError(where, f"arrival is not a time: {text[:40]!r}", remedy) from None
            aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            epoch[second + offset] = int(aware.timestamp())
        if not start:
            start.append(epoch[second + offset])
        return epoch[second + offset] - start[0] + float(f"0{fraction}" if digits > 1 else 0)

    return clock


LAYOUTS: Final = (
    Layout(
        "servecast",
        prompt=("prompt_tokens", "input_tokens"),
        output=("output_tokens",),
        arrival="arrival_s",
        clock=_unit(1.0),
        from_first=False,
        optional={name: name for name in ("priority", "session_id", "after", "think_s", "hash_ids", "hash_block_size")},
        hash_outputs=True,
    ),
    Layout("azure", ("ContextTokens",), ("GeneratedTokens",), "TIMESTAMP", _wall_clock),
    Layout(
        "mooncake",
        ("input_length",),
        ("output_length",),
        "timestamp",
        _unit(1e-3),
        optional={"hash_ids": "hash_ids"},
        hash_tokens=512,
    ),
    Layout(
        "burstgpt",
        ("Request tokens",),
        ("Response tokens",),
        "Timestamp",
        _unit(1.0),
        optional={"session_id": "Session ID"},
        drops_unanswered=True,
    ),
    Layout(
        "sharegpt",
        ("input_toks",),
        ("output_toks",),
        "arrival_time_ns",
        _unit(1e-9),
        optional={"hash_ids": "block16_ids"},
        hash_tokens=16,
    ),
    Layout("vidur", ("num_prefill_tokens",), ("num_decode_tokens",), "arrived_at", _unit(1.0)),
)


def layout_of(names: Iterable[str]) -> Layout | None:
    """The layout whose columns are among ``names``."""
    known = tuple(names)
    return next((layout for layout in LAYOUTS if layout.fits(known)), None)
