"""`servecast memory`: where each GPU's bytes go and how many users that leaves room for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from reports.memory_cases import read_asked
from sim.errors import InputError


def show_memory(
    paths: Sequence[Path],
    *,
    overrides: Sequence[str] = (),
    compare: Sequence[str] = (),
    lengths: Sequence[int] = (),
    engine: str | None = None,
    plot: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print the budget of one scenario, or of several side by side; draw the picture where asked.

    Args:
        paths: scenarios, or one comparison document (see `reports.memory_cases.Comparison`).
        overrides: ``key.path=value`` for all of them.
        compare: ``key.path=a,b,c``: a variant for each value.
        lengths: context lengths in tokens to tabulate.
        engine: whose memory rules count, e.g. ``vllm==0.23.0``.
        plot: file to draw to (.png, .svg, .pdf).
        as_json: print the document instead of the tables.

    Raises:
        InputError: bad input, or a single model that does not fit.
    """
    asked = read_asked(paths, overrides, compare, lengths, engine)
    if len(asked.cases) == 1 and asked.cases[0].refusal is not None:
        raise asked.cases[0].refusal
    target = plot or asked.plot
    if target is not None:
        from reports.memory_plot import plot_memory

        plot_memory(asked, target)
    if as_json:
        from reports.memory_report import asked_document

        print(json.dumps(asked_document(asked), indent=2))
        return
    from reports.memory_terminal import print_memory

    print_memory(asked, target)


def parse_lengths(text: str) -> tuple[int, ...]:
    """``8192,32768`` or ``8k,32k`` (k = 1,024 tokens) as numbers.

    Raises:
        InputError: something that is not a positive whole number of tokens.
    """
    lengths = []
    for part in filter(None, (piece.strip().lower() for piece in text.split(","))):
        digits, factor = (part[:-1], 1024) if part.endswith("k") else (part, 1)
        if not digits.isdecimal() or int(digits) == 0:
            raise InputError("--lengths", f"{part!r} is not a number of tokens", "e.g. 1024,8192 or 1k,8k")
        lengths.append(int(digits) * factor)
    return tuple(lengths)
