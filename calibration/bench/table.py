"""The table that a run writes: one row a timing, the machine and the circumstances in its metadata.

Columns: family, dtype, seconds, source, those of the families (m, n, k, batch, context, new, heads, kv_heads,
head_dim, bytes, ranks, ...), and how well the row was measured (fastest_s, repeats, spread, stable).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError

METADATA_KEY: Final = b"servecast"
HEAD: Final = ("family", "dtype", "seconds", "source")
TAIL: Final = ("fastest_s", "repeats", "spread", "stable")

Row = dict[str, Any]


def check_target(path: Path) -> None:
    """Refuse a place that cannot be written before hours of measuring."""
    if path.suffix != ".parquet":
        raise InputError("--out", f"{str(path)!r} does not end in .parquet", "name a Parquet file")
    if not path.parent.is_dir():
        raise InputError("--out", f"no folder {str(path.parent)!r}", "make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError("--out", f"folder {str(path.parent)!r} cannot be written", "choose another place")


def write_table(path: Path, rows: Sequence[Row], metadata: dict[str, Any]) -> None:
    """Write under a temporary name, then rename: a reader never sees half a table."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    frame = pd.DataFrame(list(rows))
    middle = sorted(set(frame.columns) - {*HEAD, *TAIL})
    table = pa.Table.from_pandas(frame[[*HEAD, *middle, *TAIL]], preserve_index=False)
    text = json.dumps(metadata, sort_keys=True).encode()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA_KEY: text})
    partial = path.with_name(f".{path.name}.partial")
    try:
        pq.write_table(table, partial)
        os.replace(partial, path)
    except OSError as error:
        raise InputError("--out", f"cannot write {str(path)!r} ({error.strerror or error})", "free space") from None
    finally:
        partial.unlink(missing_ok=True)


def read_metadata(path: Path) -> dict[str, Any]:
    """What `write_table` stored beside the rows. Raises `InputError` for a file that is no such table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = (pq.read_schema(path).metadata or {}).get(METADATA_KEY)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(str(path), f"cannot be read as Parquet ({error})", "name a table of calibrate run") from None
    if stored is None:
        raise InputError(str(path), "holds no measuring conditions", "name a table of calibrate run")
    found: dict[str, Any] = json.loads(stored)
    return found
