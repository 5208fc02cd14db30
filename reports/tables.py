"""The records as Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sim.metrics import request_latencies
from sim.records import STATUS
from sim.result import Result, arrays_of


def write_tables(result: Result, folder: Path) -> None:
    """Write ``requests.parquet`` and ``steps.parquet``; what never happened is null."""
    requests = arrays_of(result.request_columns)
    words = {"status": STATUS, "reason": result.context.reject_reasons}
    columns = {
        name: _words(values, words[name]) if name in words else _plain(name, values)
        for name, values in requests.items()
    }
    columns |= {name: pa.array(values, mask=np.isnan(values)) for name, values in request_latencies(requests).items()}
    _write(columns, folder / "requests.parquet")
    _write(
        {name: pa.array(values) for name, values in arrays_of(result.step_columns).items()}, folder / "steps.parquet"
    )


def _plain(name: str, values: Any) -> pa.Array:
    return pa.array(values, mask=values < 0) if name.endswith("_s") or name == "session_id" else pa.array(values)


def _words(codes: Any, words: tuple[str, ...]) -> pa.Array:
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words, pa.string()))


def _write(columns: dict[str, pa.Array], path: Path) -> None:
    pq.write_table(pa.table(columns), path, compression="zstd", write_statistics=True)
