"""Reading what is compared: summaries, folders of runs, sweep tables, as flat figures by case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from sim.errors import InputError
from sim.scenario.document import load_document

#: Dotted name of a figure of ``summary.json`` and its value; None where nothing was measured.
Figures = dict[str, float | bool | None]

_MOST_CASES: Final = 20_000
_AFTER_VARIED: Final = ("scenario_hash", "status")  # a sweep's columns before these are the keys that it varied
_UNCOMPARED: Final = ("simulation.", "schema_version", "seed", "band")


def read_cases(path: Path) -> dict[str, Figures]:
    """The figures of every case at ``path``, by its label ('' where there is one only).

    ``path`` is a ``summary.json``, the folder of a run or a sweep, a ``sweep.parquet``, or a folder of several
    summaries or runs. Raises `InputError` where it is none of them.
    """
    if not path.exists():
        raise InputError(str(path), "no such file or folder", "name a summary.json, a run's folder or a sweep's")
    if path.is_file():
        return _table(path) if path.suffix == ".parquet" else {"": _summary(path)}
    for name, read in (("summary.json", lambda file: {"": _summary(file)}), ("sweep.parquet", _table)):
        if (path / name).is_file():
            return read(path / name)
    found = {label: _summary(file) for label, file in _several(path)}
    if not found:
        raise InputError(str(path), "holds neither summary.json nor sweep.parquet", "name the folder of --out")
    return found


def _several(folder: Path) -> Iterator[tuple[str, Path]]:
    for entry in sorted(folder.iterdir()):
        if entry.is_file() and entry.suffix == ".json":
            yield entry.stem, entry
        elif (entry / "summary.json").is_file():
            yield entry.name, entry / "summary.json"


def _summary(path: Path) -> Figures:
    document = load_document(path)
    if "schema_version" not in document or "ttft_s" not in document:
        raise InputError(str(path), "is not a summary of servecast", "give what simulate --json prints")
    return dict(flat(document))


def flat(document: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, float | bool | None]]:
    """Every figure of a summary with its dotted name; texts, and what a run may differ in, are left out.

    Raises `InputError` for a number that is not finite.
    """
    for key, value in document.items():
        name = f"{path}{key}"
        if name.startswith(_UNCOMPARED):
            continue
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif value is None or isinstance(value, bool):
            yield name, value
        elif isinstance(value, int | float):
            if not abs(value) < 1e300:
                raise InputError(name, f"{value} is no figure of a run", "give what simulate --json prints")
            yield name, value


def _table(path: Path) -> dict[str, Figures]:
    """A sweep's rows: the varied keys name a row, the other columns are its figures."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if pq.read_metadata(path).num_rows > _MOST_CASES:
            raise InputError(str(path), "has too many rows", f"compare at most {_MOST_CASES}")
        rows = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise InputError(str(path), f"is not a Parquet table: {str(error).splitlines()[0]}") from None
    found: dict[str, Figures] = {}
    for row in rows:
        varied = list(takewhile(lambda key: key not in _AFTER_VARIED, row))
        label = ", ".join(f"{key}={row[key]}" for key in varied)
        if label in found:
            raise InputError(str(path), f"two rows are called '{label}'", "compare the table of a sweep")
        found[label] = dict(flat({key: value for key, value in row.items() if key not in varied}))
    return found
