"""The picture of a plan: both fronts, and what each kind of deployment costs and has to spare."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plan_terminal import brief, format_tag, name_of, short
from reports.plots import (
    BLUE,
    GREEN,
    GREY,
    INK,
    MARKS,
    PICTURES,
    VERMILLION,
    headline,
    house_style,
    new_figure,
    save_pictures,
)
from reports.text import percent
from sim.planner.outcome import DayPlan, FrontPoint, Plan, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_KINDS: Final = 8


def write_plan_plots(plan: Plan, folder: Path) -> None:
    """Write ``plan``, and ``day`` where the plan has a day; none where nothing keeps the promise."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, suffix in itertools.product(("plan", "day"), PICTURES):
        (folder / name).with_suffix(suffix).unlink(missing_ok=True)
    if plan.winner is None:
        return
    with house_style():
        save_pictures(_figure(plan, plan.winner), folder / "plan")
        if plan.day is not None and plan.day.static_replicas is not None:
            save_pictures(_day(plan, plan.day), folder / "day")


def _figure(plan: Plan, winner: Row) -> Figure:
    kept = [row for row in plan.rows if row.keeps][:_MOST_KINDS]
    figure = new_figure(12.5, 7.4)
    grid = figure.add_gridspec(2, 2, height_ratios=[1.0, 0.16 + 0.1 * len(kept)])
    looks = _looks(plan)
    speed, cost = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    _speed_front(speed, plan, looks)
    _cost_front(cost, plan, looks)
    _bars(figure.add_subplot(grid[1, 0]), plan, kept, looks)
    _loads(figure.add_subplot(grid[1, 1]), plan, kept, looks)
    q, d = plan.question, winner.deployment
    headline(figure, f"{plan.name}: {name_of(d)}{format_tag(d)} on {short(d.hardware)} for {q.load:.3g} {q.unit}")
    return figure


def _kind_of(label: str, hardware: str, quantization: str | None, several: bool) -> str:
    return " ".join(filter(None, (label, short(hardware) if several else "", quantization or "")))


def _looks(plan: Plan) -> dict[str, dict[str, Any]]:
    """{kind: colour and mark}, the winner's first; the same in every panel."""
    several = len(plan.question.hardware) > 1
    kinds = [
        _kind_of(row.deployment.label, row.deployment.hardware, row.deployment.quantization, several)
        for row in plan.rows
        if row.keeps
    ]
    return {
        kind: {"color": f"C{number % 6}", "marker": MARKS[number % len(MARKS)]}
        for number, kind in enumerate(dict.fromkeys(kinds))
    }


def _scatter(
    axis: Axes, plan: Plan, looks: dict[str, dict[str, Any]], points: Sequence[FrontPoint], x: str, y: str
) -> None:
    several = len(plan.question.hardware) > 1
    for kind, look in looks.items():
        mine = [p for p in points if _kind_of(p.label, p.hardware, p.quantization, several) == kind]
        for keeps in (True, False):
            shown = [p for p in mine if p.keeps == keeps]
            face = look["color"] if keeps else "none"
            axis.plot(
                [getattr(p, x) for p in shown], [getattr(p, y) for p in shown], linestyle="", markersize=5.5,
                markerfacecolor=face, label=kind if keeps else None, **look,
            )  # fmt: skip
    best = sorted((p for p in points if p.on_front), key=lambda p: float(getattr(p, x)))
    axis.plot([getattr(p, x) for p in best], [getattr(p, y) for p in best], color=GREY, linewidth=1.2, zorder=1)


def _speed_front(axis: Axes, plan: Plan, looks: dict[str, dict[str, Any]]) -> None:
    points = plan.throughput_front
    _scatter(axis, plan, looks, points, "output_tokens_per_s_per_user", "output_tokens_per_s_per_gpu")
    bounds = [bound for key, bound in plan.question.promise.items() if key.startswith(("tpot", "goodput_tpot"))]
    for bound_s in bounds[:1]:
        axis.axvline(1 / bound_s, color=INK, linestyle="--", linewidth=1.1)
        axis.annotate("promised", (1 / bound_s, 0), xycoords=("data", "axes fraction"), xytext=(4, 4),
                      textcoords="offset points", va="bottom", fontsize=8, color=INK)  # fmt: skip
    axis.set_title("Throughput against speed")
    axis.set(xlabel="tokens/s that a user sees", ylabel="output tokens/s a GPU")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    hollow = "hollow: breaks the promise" if any(not point.keeps for point in points) else None
    axis.legend(loc="upper right", title=hollow, title_fontsize=8)


def _cost_front(axis: Axes, plan: Plan, looks: dict[str, dict[str, Any]]) -> None:
    _scatter(axis, plan, looks, plan.cost_front, "cost", "e2e_mean_s")
    for point in plan.cost_front:
        if point.on_front:
            axis.annotate(f"{point.replicas} x {point.label}", (point.cost, point.e2e_mean_s or 0.0), xytext=(0, -6),
                          textcoords="offset points", ha="center", va="top", fontsize=8, color=INK)  # fmt: skip
    axis.set_title(f"Cost against latency at {plan.question.load:.3g} {plan.question.unit}")
    axis.set(xlabel=_cost_label(plan), ylabel="mean end-to-end latency, s")
    axis.margins(y=0.12)
    axis.set_xlim(0, 1.15 * max((point.cost for point in plan.cost_front), default=1.0))
    axis.set_ylim(bottom=0)


def _cost_label(plan: Plan) -> str:
    return "$ an hour" if plan.question.ranked_by == "usd_per_hour" else "GPUs"


def _bars(axis: Axes, plan: Plan, rows: Sequence[Row], looks: dict[str, dict[str, Any]]) -> None:
    """Cost of each kind, and how it moves within the error band."""
    places = range(len(rows))
    axis.barh(list(places), [row.cost for row in rows], height=0.6,
              color=[_look(row, plan, looks)["color"] for row in rows], alpha=0.8)  # fmt: skip
    for place, row in enumerate(rows):
        low = row.band.cost_if_faster if row.band.cost_if_faster is not None else row.cost
        high = row.band.cost_if_slower
        axis.plot([low, row.cost if high is None else high], [place, place], color=INK, marker="|", linewidth=1.2)
    axis.set_yticks(list(places), [_tick(row, plan) for row in rows])
    axis.get_yticklabels()[0].set_fontweight("bold")
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set_title(f"Cost (line: steps up to {percent(plan.question.error_band)} faster or slower)")
    axis.set_xlabel(_cost_label(plan))
    axis.set_xlim(left=0)


def _loads(axis: Axes, plan: Plan, rows: Sequence[Row], looks: dict[str, dict[str, Any]]) -> None:
    """The highest load of each kind against the load asked for."""
    places = range(len(rows))
    axis.barh(list(places), [row.most_load or 0.0 for row in rows], height=0.6,
              color=[_look(row, plan, looks)["color"] for row in rows], alpha=0.8)  # fmt: skip
    axis.axvline(plan.question.load, color=INK, linestyle="--", linewidth=1.1)
    axis.set_yticks(list(places), [""] * len(rows))
    most = max((row.most_load or 0.0 for row in rows), default=1.0)
    for place, row in enumerate(rows):
        text = brief(row.limit)
        axis.text((row.most_load or 0.0) + 0.01 * most, place, text, va="center", fontsize=7.5, color=INK, clip_on=True)
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)
    axis.set_title("Highest load, and what limits it (dashed: asked for)")
    axis.set_xlabel(plan.question.unit)
    axis.set_xlim(0, 1.6 * most)


def _look(row: Row, plan: Plan, looks: dict[str, dict[str, Any]]) -> dict[str, Any]:
    d = row.deployment
    return looks[_kind_of(d.label, d.hardware, d.quantization, len(plan.question.hardware) > 1)]


def _tick(row: Row, plan: Plan) -> str:
    d = row.deployment
    several = len(plan.question.hardware) > 1
    return _kind_of(name_of(d), d.hardware, d.quantization, several)


def _day(plan: Plan, day: DayPlan) -> Figure:
    figure = new_figure(9, 4.2)
    load, replicas = figure.subplots(2, 1, sharex=True)
    edges = [hour.start_h for hour in day.hours] + [24.0]
    load.stairs([hour.load for hour in day.hours], edges, color=BLUE, linewidth=1.6)
    load.set_title(f"{plan.name}: load over the day")
    load.set_ylabel(plan.question.unit)
    replicas.stairs([hour.replicas or 0 for hour in day.hours], edges, color=GREEN, fill=True, alpha=0.5)
    replicas.axhline(day.static_replicas or 0, color=VERMILLION, linestyle="--", linewidth=1.1)
    saved = "" if day.saved is None else f"; {percent(day.saved)} fewer GPU hours than the same all day (dashed)"
    replicas.set_title(f"Replicas by the hour{saved}")
    replicas.set(xlabel="hour of the day", ylabel="replicas", xlim=(0, 24), xticks=range(0, 25, 3))
    replicas.yaxis.get_major_locator().set_params(integer=True)
    for axis in (load, replicas):
        axis.set_ylim(bottom=0, top=math.ceil(axis.get_ylim()[1] * 1.05) if axis is replicas else None)
    return figure
