"""Per-request replays: recorded arrivals and lengths as a trace, recorded latencies as what was measured.

A case that names a record (tag ``replay``) is replayed where the folder of records is at hand; the trace goes to a
temporary folder, since the records are not part of the project. Latencies are those of the record itself: TPOT is
(E2E - TTFT) / (requested tokens - 1), and both count from the arrival.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from calibration.cases import Case, Window
from sim.errors import InputError
from sim.workload import PrefixSpans, Workload
from workloads.arrival_spec import StagesArrivals
from workloads.length_spec import ConstantLength
from workloads.shared_text import opening_rows, spans_from_rows
from workloads.traces.writer import write_trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LEVELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SHAREGPT: Final = Path("traces", "sharegpt300_llama31_tok.csv.gz")


@dataclass(frozen=True, slots=True)
class Record:
    """One row a request, by arrival: seconds and tokens. Failed requests are left out."""

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    ttft_s: Floats
    e2e_s: Floats


def replays(cases: Sequence[Case], shared: Path, folder: Path) -> list[Case]:
    """A replay of each case whose record lies in ``shared/measured/per_request``; traces are written to ``folder``."""
    return [_replay(case, file, shared, folder) for case, file in _recorded(cases, shared)]


def _recorded(cases: Sequence[Case], shared: Path) -> Iterator[tuple[Case, Path]]:
    for case in cases:
        stem = case.tags.get("replay")
        found = sorted((shared / "measured" / "per_request").glob(f"{stem}*.csv.gz")) if stem else []
        if found:
            yield case, found[0]


def _replay(case: Case, file: Path, shared: Path, folder: Path) -> Case:
    pinned = case.scenario.workload.output_tokens
    record = read_record(file, pinned.value if isinstance(pinned, ConstantLength) else None)
    trace = folder / f"{case.name}.parquet"
    prefixes = _cycled(case, record) if case.scenario.workload.prefixes else _sharegpt(case, record, shared)
    write_trace(Workload(record.arrival_s, record.prompt_tokens, record.output_tokens, prefixes=prefixes), trace)
    document = {**case.scenario.given, "workload": {"trace": {"path": str(trace), "format": "servecast"}}}
    return replace(
        case,
        name=f"replay/{case.name}",
        scenario=type(case.scenario).from_dict(document),
        windows=tuple(_window(window, record, start, end) for window, start, end in _bounds(case, record)),
    )


def read_record(file: Path, requested: int | None = None) -> Record:
    """The record in ``file`` (CSV; arrivals in s, latencies in ms), outputs as ``requested`` where they were pinned.

    Where a record counts latencies from the engine's queue (``queued_s``), the time before it is added.

    Raises:
        InputError: the file cannot be read or lacks a column.
    """
    import pandas as pd

    try:
        frame = pd.read_csv(file)
        if "error" in frame:
            frame = frame[frame["error"] == 0]
        frame = frame.sort_values("arrival_s", kind="stable")
        before_s = frame["queued_s"] - frame["arrival_s"] if "queued_s" in frame else 0.0
        outputs = frame["output_tokens"] if requested is None else np.full(len(frame), requested)
        return Record(
            arrival_s=(frame["arrival_s"] - frame["arrival_s"].iloc[0]).to_numpy(float),
            prompt_tokens=frame["input_tokens"].to_numpy(np.int64),
            output_tokens=np.asarray(outputs, dtype=np.int64),
            ttft_s=(frame["ttft_ms"] / 1e3 + before_s).to_numpy(float),
            e2e_s=(frame["e2e_ms"] / 1e3 + before_s).to_numpy(float),
        )
    except (OSError, EOFError, KeyError, ValueError, IndexError) as error:
        raise InputError(
            str(file), f"is not a record of requests: {error}", "give arrival_s, input_tokens, ..."
        ) from None


def _cycled(case: Case, record: Record) -> PrefixSpans:
    """The fixed prompts of the case's prefixes, sent in order over and over."""
    spec = case.scenario.workload.prefixes
    assert spec is not None
    per_group = spec.prompts_per_group or 1
    prompt = np.arange(len(record.arrival_s)) % (spec.groups * per_group)
    group = prompt // per_group
    return spans_from_rows(*opening_rows(record.prompt_tokens, group, spec.groups, spec.prefix_tokens, prompt))


def _sharegpt(case: Case, record: Record, shared: Path) -> PrefixSpans | None:
    """Shared blocks of the ShareGPT conversations, where the published trace lies beside the record."""
    file = shared / _SHAREGPT
    if not case.name.startswith("lss-") or not file.exists():
        return None
    import pandas as pd

    blocks = [[int(block) for block in str(ids).split()] for ids in pd.read_csv(file)["block16_ids"]]
    if len(blocks) != len(record.arrival_s):
        return None
    rows = np.array([len(ids) for ids in blocks], dtype=np.int64)
    end = np.concatenate([16 * np.arange(1, len(ids) + 1) for ids in blocks]).astype(np.int64)
    return spans_from_rows(rows, np.array([block for ids in blocks for block in ids], dtype=np.int64), end)


def _bounds(case: Case, record: Record) -> Iterator[tuple[Window, float, float]]:
    """Each window with the arrivals of its stage: the sender sent rate x duration requests, then began the next."""
    arrivals = case.scenario.workload.arrivals
    if not isinstance(arrivals, StagesArrivals) or len(case.windows) != len(arrivals.stages):
        yield case.windows[0], 0.0, float("inf")
        return
    counts = np.cumsum([round(stage.rate_per_s * stage.duration_s) for stage in arrivals.stages])
    starts = [0.0, *record.arrival_s[np.minimum(counts[:-1], len(record.arrival_s) - 1)].tolist(), float("inf")]
    yield from zip(case.windows, starts[:-1], starts[1:], strict=True)


def _window(window: Window, record: Record, start_s: float, end_s: float) -> Window:
    chosen = (record.arrival_s >= start_s) & (record.arrival_s < end_s)
    decode_s = (record.e2e_s - record.ttft_s)[chosen] / (record.output_tokens[chosen] - 1)
    columns = {"ttft_s": record.ttft_s[chosen], "tpot_s": decode_s, "e2e_s": record.e2e_s[chosen]}
    measured = tuple((metric, name, value) for metric, column in columns.items() for name, value in _statistics(column))
    return replace(window, measured=measured, start_s=start_s, end_s=end_s)


def _statistics(values: Floats) -> Iterator[tuple[str, float]]:
    yield "mean", float(values.mean())
    quantiles: Any = np.quantile(values, list(_LEVELS.values()))
    yield from zip(_LEVELS, quantiles.tolist(), strict=True)
