"""Writes the measured cases of ``tests/accuracy/cases`` from a table of published runs.

    python -m calibration.cases_build ../shared/measured/runs.csv.gz tests/accuracy/cases

Figures (means, quantiles, setups) are carried over with their source; the table itself is not part of the project. What
each source really measured, and what had to be assumed, is said in the builders and in every case's notes.
"""

from __future__ import annotations

import csv
import gzip
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from calibration.cases_closed import documents as closed_loops
from calibration.cases_ladder import documents as ladders
from calibration.cases_open import documents as open_loops
from sim.errors import InputError
from sim.scenario.document import dump_yaml

Row = dict[str, str]
Document = dict[str, Any]


def read_runs(path: Path) -> list[Row]:
    """Rows of a (gzipped) CSV as text; empty fields are left out. Raises `InputError` where it cannot be read."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", newline="") as file:
            return [{key: value for key, value in row.items() if value} for row in csv.DictReader(file)]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"cannot be read: {error}", "give the table of measured runs") from None


def documents(rows: list[Row]) -> Iterator[tuple[str, Document]]:
    """(file name without suffix, document) of every case file."""
    yield from open_loops(rows)
    yield from ladders(rows)
    yield from closed_loops(rows)


def main(arguments: list[str]) -> int:
    """Write one YAML file a run, or a ladder of runs; other files in the folder are left alone."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, folder = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for name, document in documents(read_runs(source)):
        (folder / f"{name}.yaml").write_text(dump_yaml(document), encoding="utf-8")
        written += 1
    print(f"{written} files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
