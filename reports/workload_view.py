"""A workload in figures and pictures: a trace, the one of a scenario, or a preset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reports.plots import BLUE, GREEN, GREY, VERMILLION, headline, house_style, new_figure, save_figure
from reports.text import number, percent, seconds
from sim.files import check_picture
from sim.scenario import Scenario
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload, describe_workload, preset_names
from workloads.describe import shareable_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PRESET_REQUESTS: Final = 20_000
_BINS: Final = 120


def is_workload_file(name: str) -> bool:
    """Whether a name is meant as a file: it is one, or looks like one and is no preset."""
    return name not in preset_names() and (Path(name).exists() or "/" in name or "." in Path(name).name)


def show_workload(name: str, plot: Path | None, as_json: bool) -> None:
    """Print what a workload asks of the servers, and draw it to ``plot``. Raises `InputError`."""
    if plot is not None:
        check_picture(plot)
    workload = load_workload(name)
    figures = describe_workload(workload)
    if plot is not None:
        draw_workload(workload, Path(name).name, plot)
    print(json.dumps(figures, indent=2)) if as_json else _print(name, figures)


def load_workload(name: str) -> Workload:
    """The requests of a preset, of a scenario (YAML, or JSON with a model) or of a trace. Raises `InputError`."""
    if name in preset_names():
        return build_workload(WorkloadSpec.parse({"preset": name, "num_requests": _PRESET_REQUESTS}), 0)
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml"):
        scenario = Scenario.from_file(path)
        return build_workload(scenario.workload, scenario.seed)
    return build_workload(WorkloadSpec.parse({"trace": {"path": str(path.absolute())}}), 0)


def _print(name: str, figures: dict[str, Any]) -> None:
    rows = [("requests", f"{figures['requests']:,}")]
    if figures["sessions"] is not None:
        rows.append(("sessions", f"{figures['sessions']:,}"))
    if figures["rate_per_s"] is not None:
        rows.append(("arrivals", f"{number(figures['rate_per_s'])} a second over {seconds(figures['span_s'])}"))
        rows.append(("burstiness", f"variation of the gaps {figures['gap_cv']:.2f} (1: Poisson)"))
    rows.append(("prefix share", f"{percent(figures['prefix_share'])} of prompt tokens were sent before"))
    print(name)
    for label, value in rows:
        print(f"  {label:<13} {value}")
    columns = ("mean", "cv", "min", "p10", "p50", "p90", "p99", "max")
    print("\n  tokens        " + "".join(column.rjust(9) for column in columns))
    for what in ("prompt", "output"):
        found = figures[f"{what}_tokens"]
        cells = [f"{found[column]:.2f}" if column == "cv" else number(found[column]) for column in columns]
        print(f"  {what:<13} " + "".join(cell.rjust(9) for cell in cells))
    for note in figures["notes"]:
        print(f"\n! {note}")


def draw_workload(workload: Workload, name: str, path: Path) -> None:
    """Draw lengths, arrivals over time, gaps between them and what prompts share. Raises `InputError`."""
    with house_style():
        figure = new_figure(10, 7)
        headline(figure, f"{name}: {len(workload):,} requests")
        lengths, arrivals, gaps, shared = figure.subplots(2, 2).flat
        _lengths(lengths, workload)
        timed = workload.arrival_s[~np.isnan(workload.arrival_s)]
        _arrivals(arrivals, timed)
        _gaps(gaps, np.diff(timed))
        _shared(shared, workload)
        save_figure(figure, path)


def _lengths(axes: Axes, workload: Workload) -> None:
    axes.set_title("Lengths: share of requests up to")
    for what, values, colour, style in (
        ("prompt", workload.prompt_tokens, BLUE, "-"),
        ("output", workload.output_tokens, VERMILLION, "--"),
    ):
        ordered = np.sort(values)
        axes.plot(
            ordered, (np.arange(len(ordered)) + 1) / len(ordered) * 100, color=colour, linestyle=style, label=what
        )
    axes.set(xlabel="tokens", ylabel="%", xscale="log", ylim=(0, 102))
    axes.legend(loc="lower right")


def _arrivals(axes: Axes, timed: Any) -> None:
    axes.set_title("Arrivals")
    if len(timed) < 2 or timed[-1] <= timed[0]:
        _nothing(axes)
        return
    counts, edges = np.histogram(timed - timed[0], bins=min(_BINS, max(8, len(timed) // 20)))
    axes.stairs(counts / np.diff(edges), edges, color=BLUE, fill=True, alpha=0.25)
    axes.stairs(counts / np.diff(edges), edges, color=BLUE)
    axes.axhline(len(timed) / (timed[-1] - timed[0]), color=GREY, linestyle=":")
    axes.set(xlabel="seconds since the first arrival", ylabel="arrivals/s", ylim=(0, None))


def _gaps(axes: Axes, gaps: Any) -> None:
    axes.set_title("Gaps between arrivals: share longer than")
    if not len(gaps) or gaps.max() <= 0:
        _nothing(axes)
        return
    ordered = np.sort(gaps)
    left = 100 * (1 - np.arange(len(ordered)) / len(ordered))
    axes.plot(ordered, left, color=BLUE, label="these")
    axes.plot(ordered, 100 * np.exp(-ordered / gaps.mean()), color=GREY, linestyle=":", label="Poisson")
    axes.set(xlabel="seconds", ylabel="%", yscale="log", ylim=(max(left[-1], 0.01), 110))
    axes.legend(loc="upper right")


def _shared(axes: Axes, workload: Workload) -> None:
    axes.set_title("Prompt tokens sent before: share of requests up to")
    if workload.prefixes is None:
        _nothing(axes)
        return
    share = np.sort(shareable_tokens(workload) / workload.prompt_tokens) * 100
    axes.plot(share, (np.arange(len(share)) + 1) / len(share) * 100, color=GREEN)
    axes.set(xlabel="% of the prompt", ylabel="%", xlim=(0, 101), ylim=(0, 102))


def _nothing(axes: Axes) -> None:
    axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color=GREY)
    axes.set(xticks=[], yticks=[])
