"""Writes the page and its plots."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reports.plots import house_style, new_figure, save_figure
from reports.textbook.claim import Claim, Measured, claims

HEAD: Final = """# Textbook claims

What papers and blogs say that batching, memory and caching policies do, and what comes out here when the same is
simulated. This page is written by `python -m reports.textbook`; each number in a table is measured by the runs
described above it, and `tests/reports/test_textbook.py` holds the claims against them. Step times are this
simulator's own on the GPU that is named, so ratios are what to compare.
"""


def write_page(page: Path, traces: Path | None = None, only: str | None = None) -> list[str]:
    """Measure all claims and write ``page`` with its plots beside it, in a folder of the page's name.

    Args:
        page: the Markdown file.
        traces: folder of published traces; claims that need one are left as they stand on the page without it.
        only: measure this claim alone; the others stay as they are.

    Returns:
        Sentences about numbers outside their bounds.
    """
    before = _sections(page.read_text("utf-8")) if page.exists() else {}
    plots = page.with_suffix("")
    plots.mkdir(parents=True, exist_ok=True)
    broken: list[str] = []
    parts = [HEAD]
    for claim in claims():
        skipped = (only is not None and claim.name != only) or (claim.needs_traces and traces is None)
        if skipped:
            if claim.title in before:
                parts.append(before[claim.title])
            continue
        measured = claim.measure(traces)
        broken += claim.broken(measured)
        parts.append(_section(claim, measured, plots.name))
        _plot(claim, measured, plots / f"{claim.name}.png")
    page.write_text("\n".join(parts), "utf-8")
    return broken


def _section(claim: Claim, measured: Measured, folder: str) -> str:
    return f"""## {claim.title}

*Claimed:* {claim.says}

{claim.setting}

{claim.table(measured)}

![{claim.title}]({folder}/{claim.name}.png)
"""


def _sections(text: str) -> dict[str, str]:
    """The sections of a page that was written before, by title."""
    return {part.split("\n", 1)[0]: f"## {part}".rstrip() + "\n" for part in text.split("\n## ")[1:]}


def _plot(claim: Claim, measured: Measured, path: Path) -> None:
    with house_style():
        figure = new_figure(9, 3.6)
        claim.draw(figure, measured)
        save_figure(figure, path)
