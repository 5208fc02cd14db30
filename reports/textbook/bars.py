"""Bars as the textbook's figures show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def value_bars(
    axis: Axes, names: Sequence[str], values: Sequence[float], color: str | Sequence[str], unit: str = ""
) -> None:
    """A bar from 0 for each name, the first on top, with its value and unit behind it."""
    bars = axis.barh(names, values, color=color, height=0.65)
    axis.bar_label(bars, fmt="{:,.0f}" + unit, padding=4, fontsize="small")
    axis.set_xlim(0, 1.2 * max(values))
    axis.locator_params(axis="x", nbins=5)
    from_the_top(axis)


def from_the_top(axis: Axes) -> None:
    """Turn the names of horizontal bars so that the first is on top; no lines between them."""
    if not axis.yaxis_inverted():
        axis.invert_yaxis()
    axis.grid(axis="y", visible=False)


def grouped_bars(
    axis: Axes, names: Sequence[str], groups: Mapping[str, tuple[str, Sequence[float]]], shown: str | None = None
) -> None:
    """Upright bars side by side.

    Args:
        axis: where to.
        names: what stands below each group.
        groups: {label: (colour, a height for each name)}.
        shown: format of the value over each bar; None shows none.
    """
    places, width = np.arange(len(names)), 0.76 / len(groups)
    for number, (label, (color, heights)) in enumerate(groups.items()):
        aside = (number - (len(groups) - 1) / 2) * width
        bars = axis.bar(places + aside, heights, width, color=color, label=label)
        if shown:
            axis.bar_label(bars, fmt=shown, padding=2, fontsize="small")
    axis.set_xticks(places, names, fontsize="small")
    axis.grid(axis="x", visible=False)
