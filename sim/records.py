"""The one output schema: a row a request, a row a run of equal steps. Held in columns, never as objects."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

# (name, array type code). Times are seconds from the start of the run; -1.0 where it never happened.
REQUEST_COLUMNS: Final = (
    ("id", "q"),
    ("replica", "i"),
    ("arrival_s", "d"),  # at the client
    ("queued_s", "d"),  # in the engine's queue
    ("scheduled_s", "d"),  # first scheduled
    ("first_token_s", "d"),  # at the client
    ("finish_s", "d"),  # at the client
    ("prompt_tokens", "q"),
    ("output_tokens", "q"),
    ("cached_tokens", "q"),  # prefix-cache hit at first admission
    ("resume_cached_tokens", "q"),  # summed over resumptions
    ("preemptions", "i"),
    ("status", "b"),  # index into STATUS
    ("reason", "b"),  # index into the run's list of reject reasons, -1 for none
    ("priority", "q"),
    ("session_id", "q"),  # -1 for none
    ("prefill_replica", "i"),  # where the prompt was computed if elsewhere than on `replica`, -1 for none
    ("attempts", "i"),  # times it was sent to an engine: more than one where replicas fail
)
STATUS: Final = ("completed", "rejected", "unfinished", "lost")
BUFFERED_ROWS: Final = 4096

# A row stands for `steps` consecutive steps with the same members; step i of the row takes
# duration_s + i * increment_s and, where it decodes, has decode_context + i * decode_seqs. With drafts the steps
# of a row are unequal: duration_s is their mean, contexts grow by decode_seqs + accepted_tokens / steps on average, and
# the gaps between their tokens are kept one by one beside the rows.
STEP_COLUMNS: Final = (
    ("replica", "i"),
    ("step", "q"),  # number of the row's first step, counted per replica
    ("start_s", "d"),  # the first step begins to run
    ("steps", "q"),
    ("duration_s", "d"),
    ("increment_s", "d"),
    ("decode_seqs", "i"),
    ("decode_context", "q"),
    ("decode_context_windowed", "q"),
    ("prefill_seqs", "i"),
    ("prefill_tokens", "q"),
    ("prefill_pairs", "q"),
    ("prefill_pairs_windowed", "q"),
    ("prefill_context", "q"),
    ("prefill_context_windowed", "q"),
    ("sampled_seqs", "i"),
    ("gaps", "i"),  # tokens of a step whose gap to the token before is exactly the step's duration
    ("running", "i"),  # after scheduling, first step of the row
    ("waiting", "i"),  # after scheduling, first step of the row
    ("used_blocks", "q"),  # held by requests, after scheduling, first step
    ("used_blocks_end", "q"),  # the same, last step of the row
    ("held_tokens", "q"),  # tokens computed and held in those blocks, first step
    ("preempted", "i"),
    ("draft_tokens", "q"),  # drafts verified beside the decodes' own tokens
    ("accepted_tokens", "q"),  # output tokens beyond one for each sampled sequence, of all steps of the row
    ("reserved_tokens", "q"),  # slots held for tokens that will come, first step; falls by decode_seqs with each step
    ("stranded_tokens", "q"),  # free slots in gaps too small for the head of the queue, every step of the row
    ("shared_tokens", "q"),  # that requests would hold beyond held_tokens if nothing were shared, every step
)


class Columns:
    """Append-only typed columns; rows are packed as doubles and moved over in bulk, which is several times cheaper.

    Whole numbers are exact up to 2**53.

    >>> table = Columns((("id", "q"), ("time_s", "d")))
    >>> table.append((7, 0.5))
    >>> len(table), table.column("id")[0]
    (1, 7)
    """

    __slots__ = ("_buffer", "_data", "_full", "_row", "names")

    def __init__(self, columns: tuple[tuple[str, str], ...]) -> None:
        self.names = tuple(name for name, _ in columns)
        self._data: tuple[array[float], ...] = tuple(array(code) for _, code in columns)
        self._row = Struct(f"{len(columns)}d")
        self._buffer = bytearray()
        self._full = BUFFERED_ROWS * self._row.size

    def append(self, row: Sequence[float]) -> None:
        """Add a row, values in column order."""
        self._buffer += self._row.pack(*row)
        if len(self._buffer) >= self._full:
            self._flush()

    def _flush(self) -> None:
        rows = np.frombuffer(self._buffer).reshape(-1, len(self.names))
        for index, column in enumerate(self._data):
            column.frombytes(rows[:, index].astype(column.typecode).tobytes())
        self._buffer = bytearray()

    def __len__(self) -> int:
        return len(self._data[0]) + len(self._buffer) // self._row.size

    def column(self, name: str) -> array[float]:
        """The column called ``name`` (shared, not a copy); ``numpy.asarray`` of it copies nothing."""
        if self._buffer:
            self._flush()
        return self._data[self.names.index(name)]

    def sorted_by(self, name: str) -> Columns:
        """A copy with its rows in ascending order of a column, ties in order of appending."""
        order = np.argsort(np.asarray(self.column(name)), kind="stable")
        copy = Columns(tuple((name, data.typecode) for name, data in zip(self.names, self._data, strict=True)))
        for old, new in zip(self._data, copy._data, strict=True):
            new.frombytes(np.asarray(old)[order].tobytes())
        return copy

    def where(self, kept: NDArray[np.bool_]) -> Columns:
        """A copy of the rows that ``kept`` marks."""
        copy = Columns(tuple((name, data.typecode) for name, data in zip(self.names, self._data, strict=True)))
        for old, new in zip(self._data, copy._data, strict=True):
            new.frombytes(np.asarray(old)[kept].tobytes())
        return copy
