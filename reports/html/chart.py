"""One chart as SVG: readable without the script, which adds tooltips and zoom."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from reports.html.markup import Markup, join, tag
from reports.html.scale import Axis, Floats, short

WIDTH: Final = 560
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 38


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind: a line, the area under it, bars from 0, or dots. ``colour`` is 1 to 6."""

    name: str
    x: NDArray[Any]
    y: NDArray[Any]
    colour: int = 1
    kind: Literal["line", "area", "bars", "dots"] = "line"
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at ``x`` with a word beside it."""

    x: float
    text: str
    kind: Literal["note", "good", "bad"] = "note"


@dataclass(frozen=True, slots=True)
class Chart:
    """What to draw. Charts of one ``group`` zoom together."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    group: str | None = None
    width: int = WIDTH
    height: int = 220
    note: str | None = None

    @property
    def plot_width(self) -> int:
        """Pixels between the axes' ends."""
        return self.width - LEFT - RIGHT


def figure(chart: Chart) -> Markup:
    """The chart with its title, key and, where there is one, a note."""
    keys = [
        tag(
            "span", tag("i", class_=f"swatch c{one.colour}" + (" dashed" if one.dashed else "")), one.name, class_="key"
        )
        for one in chart.series
    ]
    caption = tag("figcaption", tag("b", chart.title), *(keys if len(keys) > 1 else []))
    note = tag("p", chart.note, class_="note") if chart.note else None
    return tag("figure", caption, _svg(chart), note)


def _svg(chart: Chart) -> Markup:
    height = chart.height - TOP - BOTTOM
    inside = [_drawn(one, chart, height) for one in chart.series]
    inside += [
        tag("path", d=f"M{_at(chart.x, mark.x, chart.plot_width)} 0V{height}", class_=f"mark {mark.kind}")
        for mark in chart.marks
    ]
    plot = tag(
        "svg", *inside, class_="plot", x=LEFT, y=TOP, width=chart.plot_width, height=height,
        viewBox=f"0 0 {chart.plot_width} {height}", preserveAspectRatio="none",
    )  # fmt: skip
    return tag(
        "svg", _y_ticks(chart, height), _x_ticks(chart, height), plot, _mark_words(chart, height), class_="chart",
        viewBox=f"0 0 {chart.width} {chart.height}", role="img", tabindex="0", aria_label=_spoken(chart),
        data_chart=_data(chart), data_group=chart.group,
    )  # fmt: skip


def _drawn(one: Series, chart: Chart, height: int) -> Markup:
    if one.kind == "bars":
        kept = one.y > 0
        one = Series(one.name, one.x[kept], one.y[kept], one.colour, "bars")
    x, y = chart.x.place(one.x, chart.plot_width), height - chart.y.place(one.y, height)
    points = [f"{_n(a)} {_n(b)}" for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    shade = f"c{one.colour}" + (" dashed" if one.dashed else "")
    if not points:
        return Markup("")
    if one.kind == "dots":
        return tag("path", d="".join(f"M{point}h0" for point in points), class_=f"dots {shade}")
    if one.kind == "bars":
        return tag("path", d="".join(f"M{point}V{height}" for point in points), class_=f"bars {shade}")
    line = tag("path", d="M" + "L".join(points), class_=f"line {shade}")
    if one.kind == "line":
        return line
    outline = f"M{_n(float(x[0]))} {height}L" + "L".join(points) + f"L{_n(float(x[-1]))} {height}Z"
    return join([tag("path", d=outline, class_=f"area {shade}"), line])


def _y_ticks(chart: Chart, height: int) -> Markup:
    parts = []
    for value in chart.y.ticks(4):
        at = TOP + height - float(chart.y.place(value, height))
        parts.append(tag("path", d=f"M{LEFT} {_n(at)}h{chart.plot_width}", class_="grid"))
        parts.append(tag("text", short(value), x=LEFT - 6, y=_n(at + 3.5), class_="tick end"))
    middle = TOP + height / 2
    turned = f"rotate(-90 11 {_n(middle)})"
    parts.append(tag("text", chart.y.label, x=11, y=_n(middle), class_="tick middle", transform=turned))
    return tag("g", *parts)


def _x_ticks(chart: Chart, height: int) -> Markup:
    base = TOP + height
    parts = []
    for value in chart.x.ticks(6):
        at = LEFT + float(chart.x.place(value, chart.plot_width))
        parts.append(tag("path", d=f"M{_n(at)} {base}v4", class_="axis"))
        parts.append(tag("text", short(value), x=_n(at), y=base + 15, class_="tick middle"))
    label = tag("text", chart.x.label, x=LEFT + chart.plot_width / 2, y=base + 31, class_="tick middle")
    line = tag("path", d=f"M{LEFT} {base}h{chart.plot_width}", class_="axis")
    return join([line, tag("g", *parts, class_="xticks"), label])


def _mark_words(chart: Chart, height: int) -> Markup:
    """The words of the marks, outside the plot that the zoom stretches; the script hides them while it does.

    Shares reach the bottom last and time lines the top, so that is where the words stand.
    """
    places = [float(chart.x.place(mark.x, chart.plot_width)) for mark in chart.marks]
    parts = []
    for row, (mark, at) in enumerate(zip(chart.marks, places, strict=True)):
        left = _to_the_left(at, 6.2 * len(mark.text) + 5, places, chart.plot_width)
        y = TOP + 9 + 13 * row if chart.group else TOP + height - 8 - 13 * row
        parts.append(
            tag(
                "text", mark.text, x=_n(LEFT + at + (-5 if left else 5)), y=y,
                class_=f"word {mark.kind} {'end' if left else 'start'}",
            )
        )  # fmt: skip
    return tag("g", *parts, class_="words")


def _to_the_left(at: float, length: float, marks: Sequence[float], width: float) -> bool:
    """Whether a word stands left of its mark: where it would leave the plot, or cross a mark that it can avoid."""
    crossed_right = any(at < other < at + length for other in marks)
    crossed_left = at < length or any(at - length < other < at for other in marks)
    return at + length > width or (crossed_right and not crossed_left)


def _data(chart: Chart) -> str:
    """What the script needs for tooltips and zoom."""
    axes = {name: [one.low, one.high, int(one.log), one.unit] for name, one in (("x", chart.x), ("y", chart.y))}
    series = [
        {"n": one.name, "c": one.colour, "k": one.kind, "x": _rounded(one.x), "y": _rounded(one.y)}
        for one in chart.series
    ]
    return json.dumps({**axes, "series": series}, separators=(",", ":"))


def _spoken(chart: Chart) -> str:
    """What a screen reader says: the title, and the range of every series."""
    parts = []
    for one in chart.series:
        if len(one.y):
            low, high = float(np.min(one.y)), float(np.max(one.y))
            parts.append(f"{one.name} from {short(low)} to {short(high)}")
    return f"{chart.title}, {chart.y.label} against {chart.x.label}: {'; '.join(parts) or 'nothing'}"


def _rounded(values: Sequence[float] | Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in np.asarray(values, np.float64).tolist()]


def _at(scale: Axis, value: float, length: float) -> str:
    return _n(float(scale.place(value, length)))


def _n(value: float) -> str:
    """A coordinate: a tenth of a pixel is enough."""
    return f"{value:.1f}".removesuffix(".0")
