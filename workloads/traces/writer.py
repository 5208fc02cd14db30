"""Writing a workload as a servecast trace: CSV, JSONL or Parquet."""

from __future__ import annotations

import gzip
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np

from sim.errors import InputError, nearest
from sim.files import whole_file
from sim.workload import Workload
from workloads.traces.hash_chains import shared_block_ids

_SUFFIXES: Final = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".parquet")


def write_trace(workload: Workload, path: Path | str, hash_block_size: int = 16) -> None:
    """Write ``workload`` in the servecast format that the name asks for: .csv, .jsonl (each also .gz) or .parquet.

    Shared text becomes ``hash_ids`` of full blocks of ``hash_block_size`` tokens, so what is shared of a block in part
    only is lost; a request's unshared tail has no ids. The same workload gives the same bytes. The file appears under
    its name only when it is whole.

    Raises:
        InputError: another suffix, a folder that is missing or cannot be written to.
    """
    path = Path(path)
    kind = next((suffix for suffix in _SUFFIXES if path.name.endswith(suffix)), None)
    if kind is None:
        raise InputError(str(path), "unknown kind of trace file", nearest(path.suffix, _SUFFIXES))
    if hash_block_size < 1:
        raise InputError("hash_block_size", f"must be at least 1, got {hash_block_size}")
    columns = _columns(workload, hash_block_size)
    with whole_file(path) as partial:
        if kind == ".parquet":
            _write_parquet(columns, partial)
        else:
            _write_text(columns, partial, lines=kind.startswith(".jsonl"), compressed=kind.endswith(".gz"))


def _columns(workload: Workload, hash_block_size: int) -> dict[str, list[Any]]:
    """Column name to values; None where a request has none. Raises `InputError` for what no column can say."""
    if workload.in_turn is not None or workload.warmup:
        problem = "holds requests that are sent when any other ends, or that are not measured"
        raise InputError("workload", problem, "a trace says times and which request follows which: leave both out")
    arrivals = workload.arrival_s
    columns: dict[str, list[Any]] = {
        "arrival_s": [None if gap else time for time, gap in zip(arrivals.tolist(), np.isnan(arrivals), strict=True)],
        "prompt_tokens": workload.prompt_tokens.tolist(),
        "output_tokens": workload.output_tokens.tolist(),
    }
    if workload.priority is not None:
        columns["priority"] = workload.priority.tolist()
    if workload.session_id is not None:
        columns["session_id"] = [None if value < 0 else value for value in workload.session_id.tolist()]
    if workload.after is not None:
        columns["after"] = [None if value < 0 else value for value in workload.after.tolist()]
    if workload.think_s is not None:
        columns["think_s"] = workload.think_s.tolist()
    if workload.prefixes is not None:
        offsets, ids = shared_block_ids(workload, hash_block_size)
        bounds, flat = offsets.tolist(), ids.tolist()
        columns["hash_ids"] = [flat[low:high] for low, high in pairwise(bounds)]
        columns["hash_block_size"] = [hash_block_size] * len(workload)
    return columns


def _write_text(columns: dict[str, list[Any]], path: Path, *, lines: bool, compressed: bool) -> None:
    with path.open("wb") as file:
        if not compressed:
            _write_rows(columns, file, lines)
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, compresslevel=6, mtime=0) as packed:
            _write_rows(columns, cast(IO[bytes], packed), lines)


def _write_rows(columns: dict[str, list[Any]], file: IO[bytes], lines: bool) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
    names = list(columns)
    if not lines:
        text.write(",".join(names) + "\n")
    for row in zip(*columns.values(), strict=True):
        if lines:
            record = {name: value for name, value in zip(names, row, strict=True) if value is not None}
            text.write(json.dumps(record, separators=(",", ":")) + "\n")
        else:
            text.write(",".join(_cell(value) for value in row) + "\n")
    text.flush()
    text.detach()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list) else repr(value)


def _write_parquet(columns: dict[str, list[Any]], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"arrival_s": pa.float64(), "think_s": pa.float64(), "hash_ids": pa.list_(pa.int64())}
    arrays = {name: pa.array(values, type=types.get(name, pa.int64())) for name, values in columns.items()}
    pq.write_table(pa.table(arrays), path)
