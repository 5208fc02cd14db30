"""Figures over commits: a file a commit, and small multiples of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reports.compare.cases import Figures, flat
from sim.errors import InputError
from sim.scenario.document import load_document

#: The figures that are drawn, the title of each, and the factor to the unit in it.
DRAWN: Final = (
    ("ttft_s.p50", "TTFT p50, ms", 1e3),
    ("ttft_s.p99", "TTFT p99, ms", 1e3),
    ("tpot_s.p50", "TPOT p50, ms", 1e3),
    ("tpot_s.p99", "TPOT p99, ms", 1e3),
    ("e2e_s.p50", "End to end p50, s", 1.0),
    ("throughput.output_tokens_per_s", "Output tokens/s", 1.0),
)
_MOST: Final = 2000
_NAME: Final = re.compile(r"(\d{1,9})-([\w.+-]{1,80})\.json")


@dataclass(frozen=True, slots=True)
class Entry:
    """The figures of one commit, by case."""

    commit: str
    cases: Mapping[str, Figures]


def record(folder: Path, commit: str, cases: Mapping[str, Figures]) -> None:
    """Add a commit to the history; the same commit again replaces its figures.

    Raises `InputError` for a name that cannot be part of a file's, or a folder that cannot be written.
    """
    if not re.fullmatch(r"[\w.+-]{1,80}", commit):
        raise InputError("--commit", f"'{commit}' has other signs than letters, digits and . + - _", "give the hash")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        known = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
        same = next((match for match in known if match[2] == commit), None)
        number = int(same[1]) if same else max((int(match[1]) for match in known), default=0) + 1
        text = json.dumps({"commit": commit, "cases": cases}, indent=1, sort_keys=True) + "\n"
        target = folder / f"{number:05d}-{commit}.json"
        partial = target.with_name(f".{target.name}")
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise InputError("--history", f"cannot write {folder}: {error.strerror or error}") from None


def read_history(folder: Path) -> list[Entry]:
    """The commits in order of their numbers. Raises `InputError` where there is none."""
    found = [match for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))] if folder.is_dir() else []
    if not found:
        raise InputError("--history", f"{folder} holds no commit", "record one with --commit NAME")
    entries = []
    for match in sorted(found, key=lambda match: int(match[1]))[-_MOST:]:
        document = load_document(folder / match[0])
        cases = document.get("cases")
        if not isinstance(cases, dict) or not all(isinstance(figures, dict) for figures in cases.values()):
            raise InputError(str(folder / match[0]), "has no cases", "remove it, or record the commit again")
        entries.append(Entry(match[2], {str(label): dict(flat(figures)) for label, figures in cases.items()}))
    return entries
