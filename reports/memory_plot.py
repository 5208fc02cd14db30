"""The picture of a memory comparison: where each GPU's bytes go, and users against context length."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.memory_cases import Asked, Case
from reports.memory_report import concurrency_row
from reports.memory_terminal import parts_of
from reports.plots import headline, house_style, new_figure, save_figure
from sim.errors import InputError
from sim.files import check_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe-Ito, and a line style each: told apart in grey as well.
_LINES: Final[tuple[tuple[str, Any], ...]] = (
    ("#0072B2", "-"),
    ("#D55E00", "--"),
    ("#00785A", "-."),
    ("#AA3F83", ":"),
    ("#A06C00", (0, (5, 1, 1, 1, 1, 1))),
    ("#333333", (0, (1, 1))),
)
_PARTS: Final = {
    "weights": "#0072B2",
    "activations": "#E69F00",
    "overhead": "#CC79A7",
    "KV cache": "#009E73",
    "left free": "#E6E6E6",
}
_SHORTEST: Final = 512
_QUOTED: Final = 8192  # context whose users each line is labelled with
_GIB: Final = 1 << 30


def plot_memory(asked: Asked, target: Path) -> None:
    """Draw to ``target``; the suffix says the format (.png, .svg, .pdf).

    Raises:
        InputError: nothing that fits, or a file that cannot be written.
    """
    check_picture(target, "plot")
    fitting = [case for case in asked.cases if case.budget is not None]
    if not fitting:
        raise InputError("plot", "nothing to draw: none of the variants fits", "see the remedies of each")
    with house_style():
        figure = _draw(asked, fitting)
        save_figure(figure, target)


def _draw(asked: Asked, cases: list[Case]) -> Figure:
    figure = new_figure(12.5, max(4.6, 1.9 + 0.62 * len(cases)))
    headline(figure, asked.name)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    _draw_parts(left, cases)
    _draw_users(right, cases)
    return figure


def _draw_parts(axis: Axes, cases: list[Case]) -> None:
    """A stacked bar a case, in GiB of one GPU."""
    widest = max(case.budget.total_bytes for case in cases if case.budget)
    for row, case in enumerate(cases):
        assert case.budget is not None
        start = 0.0
        for name, size in parts_of(case.budget):
            width = size / _GIB
            edge = 0.8 if size > 0.01 * widest else 0.0  # a thin part would be all edge
            axis.barh(row, width, left=start, height=0.62, color=_PARTS[name], edgecolor="white", linewidth=edge)
            if size > 0.09 * widest and name != "left free":
                axis.text(start + width / 2, row, f"{width:.0f}", ha="center", va="center", fontsize=8.5, color="white")
            start += width
    axis.set_yticks(range(len(cases)), [_named(case) for case in cases])
    spare = 0.5 if len(cases) == 1 else 0.0
    axis.set_ylim(len(cases) - 0.5 + spare, -0.5 - spare)
    axis.grid(axis="y", visible=False)
    axis.set(xlabel="GiB of one GPU", xlim=(0, widest / _GIB))
    axis.set_title("Where each GPU's memory goes")
    used = [name for name in _PARTS if any(name == part for case in cases for part, _ in _parts(case))]
    from matplotlib.patches import Patch

    handles = [Patch(color=_PARTS[name], label=name) for name in used]
    axis.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.4, -0.11), ncols=len(handles), columnspacing=1.2)


def _parts(case: Case) -> list[tuple[str, int]]:
    return parts_of(case.budget) if case.budget else []


def _draw_users(axis: Axes, cases: list[Case]) -> None:
    """Requests that memory holds at once, against their length, both axes in powers."""
    longest = max(case.budget.max_model_len for case in cases if case.budget)
    for index, case in enumerate(cases):
        assert case.budget is not None
        lengths = _lengths(min(longest, case.budget.max_model_len))
        users = [case.budget.concurrency(length) for length in lengths]
        colour, style = _LINES[index % len(_LINES)]
        axis.plot(lengths, users, color=colour, linestyle=style, linewidth=2)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = [2**power for power in range(9, 21) if _SHORTEST <= 2**power <= longest]
    axis.set_xticks(ticks, [_tick(tick) for tick in ticks])
    axis.set_xlim(min(_SHORTEST, longest), longest)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axis.minorticks_off()
    axis.set(xlabel="tokens of context, prompt and output together", ylabel="requests that fit at once")
    axis.set_title("Concurrent users against context length")
    _label_ends(axis, cases)


def _label_ends(axis: Axes, cases: list[Case]) -> None:
    """Each line's name where it ends, with the users at 8K, pushed apart where lines end close together."""
    ends = []
    for index, case in enumerate(cases):
        assert case.budget is not None
        at = min(_QUOTED, case.budget.max_model_len)
        text = f"{case.label}\n{concurrency_row(case.budget, at)['in_memory']:,} at {_tick(at)}"
        length = case.budget.max_model_len
        point = axis.transLimits.transform(axis.transScale.transform((length, case.budget.concurrency(length))))
        ends.append((float(point[1]), float(point[0]), text, _LINES[index % len(_LINES)][0]))
    ends.sort()
    heights = _apart([end[0] for end in ends], min(0.105, 1 / len(ends)))
    for height, (y, x, text, colour) in zip(heights, ends, strict=True):
        axis.annotate(
            text,
            xy=(x, y),
            xytext=(1.05, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize=8.5,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0, 0.5),
                "color": colour,
                "linewidth": 0.7,
                "shrinkA": 1,
                "shrinkB": 1,
            },
        )


def _apart(heights: list[float], gap: float) -> list[float]:
    """Ascending heights moved as little as needed to be ``gap`` apart, kept within the axes where they can be."""
    moved = list(heights)
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + gap)
    if moved and moved[-1] > 1:
        moved[-1] = 1.0
        for index in range(len(moved) - 2, -1, -1):
            moved[index] = min(moved[index], moved[index + 1] - gap)
    return moved


def _lengths(longest: int) -> list[int]:
    """Eight lengths a doubling, up to ``longest``."""
    shortest = min(_SHORTEST, longest)
    lengths = []
    step = 0
    while shortest * 2 ** (step / 8) < longest:
        lengths.append(round(shortest * 2 ** (step / 8)))
        step += 1
    return [*lengths, longest]


def _tick(tokens: int) -> str:
    if tokens >= 1 << 20:
        return f"{tokens / (1 << 20):g}M"
    return f"{tokens // 1024}K" if tokens >= 1024 else f"{tokens}"


def _named(case: Case) -> str:
    """The label, and what a token takes."""
    import textwrap

    assert case.budget is not None
    per_token = f"{case.budget.kv_bytes_per_token_per_rank:,} B a token"
    return "\n".join([*textwrap.wrap(case.label, 28)[:2], per_token])
