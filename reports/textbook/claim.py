"""What a claim is: what the literature says, what the simulator measures, and within which bounds both agree."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class Measured:
    """What a claim's runs gave.

    Attributes:
        numbers: the figures that the claim is about, by name.
        series: whatever the plot and the table are made of.
    """

    numbers: Mapping[str, float]
    series: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One section of the page.

    Attributes:
        name: stem of the plot's file.
        order: place on the page.
        title: heading.
        says: what the literature claims, and where.
        setting: what is run here, and what to make of the answer; Markdown.
        measure: runs it; called with the folder of traces, or None where there is none.
        bounds: for each of the numbers the range in which the claim holds.
        table: the answer as a Markdown table.
        draw: the answer as a plot.
        needs_traces: cannot be measured without the folder of traces.
    """

    name: str
    order: int
    title: str
    says: str
    setting: str
    measure: Callable[[Path | None], Measured]
    bounds: Mapping[str, tuple[float, float]]
    table: Callable[[Measured], str]
    draw: Callable[[Figure, Measured], None]
    needs_traces: bool = field(default=False)

    def broken(self, measured: Measured) -> list[str]:
        """Each number that lies outside its bounds, as a sentence."""
        return [
            f"{self.name}: {key} is {measured.numbers[key]:.4g}, not within {low:g} to {high:g}"
            for key, (low, high) in self.bounds.items()
            if not low <= measured.numbers[key] <= high
        ]


def claims() -> list[Claim]:
    """Every claim of this package, in the order of the page."""
    package = importlib.import_module("reports.textbook")
    modules = [
        importlib.import_module(f"{package.__name__}.{info.name}") for info in pkgutil.iter_modules(package.__path__)
    ]
    return sorted((module.CLAIM for module in modules if hasattr(module, "CLAIM")), key=lambda claim: claim.order)


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    """A table, numbers to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
