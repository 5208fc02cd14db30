"""Reading oracle files and comparing two runs line by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_lines(path: Path) -> list[Line]:
    """The objects of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def load(directory: Path, name: str) -> tuple[Line, list[Line], list[Line]]:
    """Input document, step lines and request lines of scenario ``name``."""
    document = json.loads((directory / f"{name}.input.json").read_text())
    return document, read_lines(directory / f"{name}.steps.jsonl"), read_lines(directory / f"{name}.requests.jsonl")


def names(directory: Path) -> list[str]:
    """The scenarios of a directory."""
    return sorted(path.name.removesuffix(".input.json") for path in directory.glob("*.input.json"))


def first_difference(what: str, got: list[Line], expected: list[Line]) -> str:
    """A message about the first line that differs, with the lines before it; empty when all are equal."""
    for index, (mine, theirs) in enumerate(zip(got, expected, strict=False)):
        if mine != theirs:
            fields = [key for key in {**theirs, **mine} if mine.get(key) != theirs.get(key)]
            rows = [f"{what} line {index} differs in {', '.join(fields)}"]
            rows += [f"  {key}: got {mine.get(key, 'absent')}, expected {theirs.get(key, 'absent')}" for key in fields]
            rows += [f"  before:   {json.dumps(line)}" for line in expected[max(0, index - 2) : index]]
            rows += [f"  got:      {json.dumps(mine)}", f"  expected: {json.dumps(theirs)}"]
            return "\n".join(rows)
    if len(got) != len(expected):
        longer, side = (got, "got") if len(got) > len(expected) else (expected, "expected")
        extra = longer[min(len(got), len(expected))]
        return f"{what}: got {len(got)} lines, expected {len(expected)}; first extra ({side}): {json.dumps(extra)}"
    return ""
