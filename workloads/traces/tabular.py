"""Reading tabular traces (CSV, JSONL, Parquet) through their `Layout`."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sim.errors import InputError, nearest
from workloads.spec import TraceSpec
from workloads.traces.hash_chains import HashChains
from workloads.traces.layouts import Clock, Layout
from workloads.traces.source import MAX_RECORD_CHARS, TraceFile
from workloads.traces.table import TraceTable, number, positive, whole

#: A row: fields by position (CSV) or by name (JSON, Parquet).
Record = Any
#: Role of a column to the key that finds it in a record.
Keys = dict[str, Any]

_ROLES: Final = ("priority", "session_id", "after", "think_s", "hash_ids", "hash_block_size")


def read_csv(file: TraceFile, layout: Layout, table: TraceTable) -> Iterator[tuple[int, Record, Keys]]:
    """Rows of a CSV file with a header; raises `InputError` for missing columns and rows of another length."""
    csv.field_size_limit(MAX_RECORD_CHARS)  # hash ids of a long prompt pass the default of 128 KiB
    lines = file.lines()
    line, header = next(lines, (1, ""))
    names = [name.strip() for name in _fields(header, file.at(line))]
    keys = keys_of(layout, names, file.at(line), table)
    positions = {role: names.index(name) for role, name in keys.items() if name in names}
    for line, text in lines:
        fields = _fields(text, file.at(line))
        if len(fields) != len(names):
            problem = f"has {len(fields)} fields where the header has {len(names)}"
            raise InputError(file.at(line), problem, "mend or drop the row; the last one may be cut off")
        yield line, fields, positions


def read_json(file: TraceFile, layout: Layout, table: TraceTable) -> Iterator[tuple[int, Record, Keys]]:
    """Objects of a JSONL file or of one JSON array; the first one says which columns of lengths there are."""
    keys: Keys | None = None
    for line, record in file.json_objects():
        if keys is None:
            keys = keys_of(layout, list(record), file.at(line), table)
        yield line, record, keys


def read_parquet(file: TraceFile, layout: Layout, table: TraceTable) -> Iterator[tuple[int, Record, Keys]]:
    """Rows of a Parquet file, batch by batch (numbered from 1)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file.path)
        table.expect(parquet.metadata.num_rows)
        keys = keys_of(layout, parquet.schema_arrow.names, str(file.path), table)
        wanted = [name for name in keys.values() if name in parquet.schema_arrow.names]
        row = 0
        for batch in parquet.iter_batches(batch_size=65536, columns=wanted):
            for record in batch.to_pylist():
                row += 1
                yield row, record, keys
    except (pa.ArrowException, OSError) as error:
        raise InputError(str(file.path), f"not a readable Parquet file: {str(error)[:120]}") from None


def keys_of(layout: Layout, names: Sequence[str], where: str, table: TraceTable) -> Keys:
    """Role to column name; columns without a role are noted. Raises `InputError` when there is no column of lengths."""
    keys: Keys = {}
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(where, f"column '{twice}' is given twice", "rename one of them")
    for role, wanted in (("prompt", layout.prompt), ("output", layout.output)):
        found = next((name for name in wanted if name in names), None)
        if found is None:
            problem = f"column {wanted[0]} is missing (there are: {', '.join(names)[:120]})"
            raise InputError(where, problem, f"{nearest(wanted[0], names)}; {layout.format} has {layout.wanted}")
        keys[role] = found
    keys |= {"arrival": layout.arrival, **layout.optional}
    unused = [name for name in names if name not in keys.values()]
    if unused:
        table.notes.append(f"Columns not used: {', '.join(unused)[:200]}.")
    return keys


def read_rows(rows: Iterator[tuple[int, Record, Keys]], layout: Layout, table: TraceTable, spec: TraceSpec) -> None:
    """Fill ``table`` from ``rows``, up to its limit."""
    clock = layout.clock()
    table.from_first = layout.from_first
    left_out = 0
    for line, record, keys in rows:
        where = f"{table.where}:{line}"
        prompt_tokens = whole(_get(record, keys["prompt"], where), layout.prompt[0], where)
        output_tokens = whole(_get(record, keys["output"], where), layout.output[0], where)
        if (output_tokens == 0 and layout.drops_unanswered) or (
            spec.skip_empty and 0 in (prompt_tokens, output_tokens)
        ):
            left_out += 1
            continue
        extras: dict[str, Any] = {role: _unless_nan(_optional(record, keys[role])) for role in _ROLES if role in keys}
        _add_arrival(table, _optional(record, keys["arrival"]) if "arrival" in keys else None, extras, clock, where)
        table.add(line, prompt_tokens, output_tokens)
        if extras:
            _add_extras(table, extras, layout, spec, where)
        if table.full:
            break
    if left_out:
        table.notes.append(f"{left_out} requests without tokens (failed, or miscounted by the client) were left out.")


def _add_arrival(table: TraceTable, value: Any, extras: dict[str, Any], clock: Clock, where: str) -> None:
    """Append an arrival: all requests have one (or follow another), or none has."""
    follows = extras.get("after") is not None
    if value is None and not follows and not table.arrival_s:
        return
    if (value is None and not follows) or len(table.arrival_s) != len(table.line):
        raise InputError(where, "some requests have an arrival time and some have none", "give all of them one")
    table.arrival_s.append(math.nan if follows and _unless_nan(value) is None else clock(value, where))


def _add_extras(table: TraceTable, extras: dict[str, Any], layout: Layout, spec: TraceSpec, where: str) -> None:
    """Append the optional columns of the newest row."""
    for role, value in extras.items():
        if role == "priority":
            table.column(role, "q").append(0 if value is None else whole(value, role, where))
        elif role == "after":
            table.column(role, "q").append(-1 if value is None else whole(value, role, where))
        elif role == "think_s":
            table.column(role, "d").append(0.0 if value is None else number(value, role, where))
        elif role == "session_id":
            known = table.sessions
            table.column(role, "q").append(-1 if value is None else known.setdefault(str(value), len(known)))
    ids = extras.get("hash_ids")
    if ids is None and table.hashes is None:
        return
    size = _hash_tokens(extras.get("hash_block_size"), layout, spec, where)
    if table.hashes is None:
        table.hashes = HashChains(size or 0, layout.hash_outputs)
        table.hashes.offsets.extend([0] * (len(table.line) - 1))
    if size != table.hashes.block_tokens and (ids is not None or size is not None):
        problem = "has hash_ids but no hash_block_size" if size is None else f"hash_block_size changes to {size}"
        raise InputError(where, problem, "give every row the same hash_block_size, or set trace.hash_block_size")
    table.hashes.add(_id_list(ids, where), where)


def _hash_tokens(value: Any, layout: Layout, spec: TraceSpec, where: str) -> int | None:
    """Tokens of a hash block: as the scenario says, as the format fixes, or as the row says."""
    size = spec.hash_block_size or layout.hash_tokens
    if size is None and value is not None:
        size = positive(value, "hash_block_size", where)
    return size


def _id_list(value: Any, where: str) -> list[Any]:
    """Hash ids of a row: a list, or text with ids separated by blanks or written as a JSON list."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise InputError(where, f"hash_ids is not a list: {str(value)[:60]}")
    text = value.strip()
    if text.startswith("["):
        try:
            ids = json.loads(text)
        except ValueError:
            ids = None
        if isinstance(ids, list):
            return ids
        raise InputError(where, f"hash_ids is not a list: {text[:60]!r}", "separate ids by blanks")
    parts = text.split()
    try:
        return [int(part) for part in parts]
    except ValueError:
        return parts


def _fields(text: str, where: str) -> list[str]:
    """The fields of one CSV line."""
    if '"' not in text:
        return text.split(",")
    try:
        return next(csv.reader([text], strict=True, skipinitialspace=True))
    except csv.Error as error:
        raise InputError(where, f"malformed CSV: {error}", "check the quotes") from None


def _get(record: Record, key: Any, where: str) -> Any:
    try:
        return record[key]
    except KeyError:
        raise InputError(where, f"{key} is missing", "mend or drop the row") from None


def _optional(record: Record, key: Any) -> Any:
    """The value there, None where it is empty or missing."""
    value = record.get(key) if isinstance(record, dict) else record[key]
    return None if isinstance(value, str) and not value.strip() else value


def _unless_nan(value: Any) -> Any:
    """NaN is how tables of numbers write that there is none."""
    return None if value != value else value
