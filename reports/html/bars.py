"""Horizontal bars cut into parts: memory, and the time of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reports.html.markup import Markup, tag

WIDTH: Final = 1100
LABEL: Final = 150
_ROW, _BAR = 34, 24


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar; ``colour`` is 1 to 6, 0 for grey."""

    name: str
    value: float
    colour: int


@dataclass(frozen=True, slots=True)
class Bar:
    """A labelled bar."""

    label: str
    parts: tuple[Part, ...]


def stacked(title: str, bars: Sequence[Bar], shown: Callable[[float], str], *, shares: bool = False) -> Markup:
    """The bars under one key; ``shown`` words a value, ``shares`` draws each bar at full width."""
    widest = max((sum(part.value for part in bar.parts) for bar in bars), default=0.0)
    rows, spoken = [], []
    for index, bar in enumerate(bars):
        total = sum(part.value for part in bar.parts)
        scale = (WIDTH - LABEL) / ((total if shares else widest) or 1.0)
        rows.append(tag("text", bar.label, x=0, y=index * _ROW + 17))
        rows += _pieces(bar, scale, total, index * _ROW, shown)
        spoken.append(f"{bar.label}: " + ", ".join(f"{part.name} {shown(part.value)}" for part in bar.parts))
    names = dict.fromkeys((part.name, part.colour) for bar in bars for part in bar.parts)
    keys = [tag("span", tag("i", class_=f"swatch block c{colour}"), name, class_="key") for name, colour in names]
    drawing = tag(
        "svg", *rows, class_="stack", viewBox=f"0 0 {WIDTH} {len(bars) * _ROW}", role="img",
        aria_label=f"{title}. {'; '.join(spoken)}",
    )  # fmt: skip
    return tag("figure", tag("figcaption", tag("b", title), *keys), drawing)


def _pieces(bar: Bar, scale: float, total: float, top: int, shown: Callable[[float], str]) -> list[Markup]:
    pieces, at = [], float(LABEL)
    for part in bar.parts:
        width = part.value * scale
        if width >= 0.05:
            words = shown(part.value)
            tip = f"{part.name}: {words}, {100 * part.value / total:.1f} %"
            pieces.append(
                tag(
                    "rect", x=f"{at:.1f}", y=top, width=f"{width:.1f}", height=_BAR, class_=f"c{part.colour}",
                    data_tip=tip,
                )
            )  # fmt: skip
            if width > 7.2 * len(words) + 8 and part.colour:
                pieces.append(tag("text", words, x=f"{at + 7:.1f}", y=top + 16.5, class_="on", pointer_events="none"))
        at += width
    return pieces
