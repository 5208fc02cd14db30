"""Writes docs/accuracy.md: how far predictions are from measurements, and what is not modelled.

    python -m calibration.accuracy_report [--shared ../shared] [--jobs 2]

Run it at the root of the project. Replays are part of it where per-request records lie in SHARED/measured/per_request.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from calibration.accuracy_chain import (
    LOOP_SOURCE,
    engine_runs,
    engine_table,
    kernel_table,
    loop_table,
    untargeted_table,
)
from calibration.accuracy_tables import MAIN, case_table, group_table, metric_table, table
from calibration.accuracy_targets import (
    CLOSED_TARGETS,
    PAST_TARGETS,
    TARGETS,
    reasons,
    standings,
    targets_table,
)
from calibration.accuracy_text import (
    CLOSED_LOOP,
    CPU_LOOP,
    ENGINE_RUNS,
    FITTED,
    HEAD,
    KERNELS,
    LEAGUE,
    LEFT_OUT,
    NOT_MODELLED,
    SCORING,
    UNTARGETED_KERNELS,
)
from calibration.cases import Case, load_cases
from calibration.cases_replay import replays
from calibration.engine_runs.calibrate import EngineCalibration
from calibration.validate import Report, validate_cases
from calibration.validate_plot import plot_report
from sim.errors import InputError

CASES: Final = Path("tests", "accuracy", "cases")
PAGE: Final = Path("docs", "accuracy.md")
PLOT: Final = Path("docs", "accuracy.png")
QUANTILES: Final = ("ttft_s.p50", "ttft_s.p90", "tpot_s.p50", "tpot_s.p90", "tpot_s.p99", "e2e_s.p50", "e2e_s.p90")


def page(cases: Report, replayed: Report, engine: EngineCalibration) -> str:
    """The page.

    Args:
        cases: scores of the shipped cases.
        replayed: of the replays; empty where no records were at hand.
        engine: the logs of a real engine, fitted and predicted.
    """
    below, standing = cases.where(knee="below", group="report"), standings(cases, engine)
    parts = [HEAD, SCORING, "## Targets", targets_table(standing), "### Missed, and why", *reasons(standing)]
    parts += ["## Below the knee, not fitted on", metric_table(below, MAIN, TARGETS)]
    parts += ["![Predicted against measured, a panel a metric](accuracy.png)"]
    parts += [LEAGUE, _league(below, replayed)]
    parts += [
        "## By GPU, family, load and precision",
        "Median size of the error and, in brackets, its signed mean, in %.",
    ]
    parts += [group_table(below, tag) for tag in ("gpu", "family", "load", "kind", "precision")]
    parts += ["## Fitted on", FITTED, metric_table(cases.where(knee="below", group="fit"), MAIN)]
    parts += list(_replay_part(replayed))
    past = cases.where(knee="past")
    parts += ["## At and past the knee: throughput", metric_table(past, PAST_TARGETS, PAST_TARGETS)]
    parts += [case_table(past, tuple(PAST_TARGETS), ("gpu", "family"))]
    closed = cases.where(knee="closed loop")
    parts += [
        "## Closed loop at a fixed concurrency",
        CLOSED_LOOP,
        metric_table(closed, CLOSED_TARGETS, CLOSED_TARGETS),
    ]
    parts += [group_table(closed, "engine", tuple(CLOSED_TARGETS))]
    parts += ["## Kernels, on shapes not fitted on", KERNELS, kernel_table(), UNTARGETED_KERNELS, untargeted_table()]
    parts += ["## A real engine, step by step", ENGINE_RUNS, engine_table(engine)]
    parts += ["## The closed loop on a CPU", CPU_LOOP.format(source=LOOP_SOURCE), loop_table()]
    pools = cases.where(knee="none")
    parts += ["## KV blocks, predicted from scratch", metric_table(pools, ("kv.num_gpu_blocks",))]
    parts += [LEFT_OUT, NOT_MODELLED, "## Every case", "Signed error in %, windows of a run one by one."]
    parts += [case_table(Report(tuple(s for s in cases.scores if s.tags.get("knee") in ("below", "at"))))]
    return "\n\n".join(parts) + "\n"


def _league(below: Report, replayed: Report) -> str:
    """The league table, servecast's rows first."""
    heads = ("simulator", "TTFT mean", "TPOT mean", "E2E mean", "TTFT p99", "E2E p99")
    keys = ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean", "ttft_s.p99", "e2e_s.p99")
    rows = []
    for name, report in (
        ("servecast, not fitted on", below),
        ("servecast, replays not fitted on", replayed.where(knee="below", group="report")),
    ):
        summary = report.summary()
        if keys[0] in summary:
            label = f"{name} ({summary[keys[0]].n} runs or stages)"
            rows.append([f"**{label}**", *(f"**{summary[key].mdape:.1f}**" for key in keys)])
    rows += [
        ["BLIS, best of its models for each metric (38 runs, tuned on these)", "12.6", "6.5", "6.8", "20.5", "6.6"],
        ["BLIS, held out by model, workload or TP", "11-22", "12-24", "12-24", "8-38", "10-24"],
        ["LLMServingSim, GPU and model profiled first (its own 4 runs)", "2.6", "1.1", "1.4", "1.0", "1.4"],
        ["LLMServingSim elsewhere (32 runs)", "72", "22", "19", "87", "23"],
        ["AIConfigurator (18 runs)", "662", "13", "22", "-", "-"],
        ["BLIS roofline (38 runs)", "650", "44", "33", "1019", "32"],
    ]
    return table(heads, rows)


def _replay_part(replayed: Report) -> Iterator[str]:
    below = replayed.where(knee="below", group="report")
    if not below.scores:
        return
    yield "## Replays"
    yield (
        "The same runs request by request: recorded arrivals and lengths in, recorded latencies to compare with. The "
        "records are not part of the project; where they are not at hand, this part is left out."
    )
    yield metric_table(below, (*MAIN, *QUANTILES), TARGETS)
    past = replayed.where(knee="past")
    if past.scores:
        yield "ShareGPT conversations offered faster than a consumer GPU serves them (300 requests in 29 s):"
        yield case_table(past, (*MAIN, "tpot_s.p50", "tpot_s.p99"), ("gpu",))


def scores(shared: Path, jobs: int, progress: Callable[[float], None] | None = None) -> tuple[Report, Report]:
    """Scores of the shipped cases, and of the replays of those whose record lies below ``shared``."""
    cases = load_cases([CASES])
    with tempfile.TemporaryDirectory() as folder:
        every: list[Case] = [*cases, *replays(cases, shared, Path(folder))]
        report = validate_cases(every, jobs=jobs, progress=progress)
    again = tuple(score for score in report.scores if score.name.startswith("replay/"))
    return Report(tuple(score for score in report.scores if not score.name.startswith("replay/"))), Report(again)


def main(arguments: list[str]) -> int:
    """Simulate everything and write the page and its plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("..", "shared"), help="folder with measured/per_request")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(arguments)
    try:
        cases, replayed = scores(given.shared, given.jobs)
        PAGE.write_text(page(cases, replayed, engine_runs()), encoding="utf-8")
        shown = cases.where(knee="below", group="report")
        plot_report(Report(tuple(score for score in shown.scores if score.key in MAIN)), PLOT)
    except InputError as error:
        print(f"accuracy report: {error}", file=sys.stderr)
        return 2
    print(f"{len(cases.scores)} numbers of cases and {len(replayed.scores)} of replays: {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
