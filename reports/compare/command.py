"""The ``servecast compare`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.options import AsJson

_WHAT = "A summary.json, the folder of a run or of a sweep, a sweep.parquet, or a folder of several summaries."
Base = Annotated[Path, typer.Argument(metavar="BASE", help=_WHAT, show_default=False)]
New = Annotated[Path, typer.Argument(metavar="NEW", help="The same, to be held against it.", show_default=False)]
ToleranceFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Figure to per cent by which it may get worse, YAML.", show_default=False),
]
OneTolerance = Annotated[
    list[str], typer.Option("--tolerance", metavar="METRIC=PCT", help="The same for one figure; repeatable.")
]
AnyChange = Annotated[bool, typer.Option("--any-change", help="A change for the better beyond it fails as well.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the differences (.png, .svg, .pdf).")]
History = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Draw figures over the commits recorded there, to history.png.")
]
Commit = Annotated[str | None, typer.Option(metavar="NAME", help="Record NEW in the history under this name first.")]


def compare(
    base: Base,
    new: New,
    tolerances: ToleranceFile = None,
    tolerance: OneTolerance = [],  # noqa: B006 (Typer copies it)
    any_change: AnyChange = False,
    plot: Plot = None,
    history: History = None,
    commit: Commit = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
    as_json: AsJson = False,
) -> None:
    """Hold two runs or sweeps against each other; exit with 1 if a figure got worse by more than its tolerance.

    servecast compare runs/main runs/branch --tolerance ttft_s.p99=5

    servecast compare baseline.json summary.json --tolerances tolerances.yaml --markdown
    """
    from reports.compare.run import run_compare

    comparison = run_compare(
        base,
        new,
        tolerance_file=tolerances,
        tolerances=tolerance,
        any_change=any_change,
        plot=plot,
        history=history,
        commit=commit,
        json_asked=as_json,
        markdown_asked=markdown,
    )
    if comparison.failed:
        if as_json:
            from reports.compare.view import verdict_line

            typer.echo(f"servecast: {verdict_line(comparison)}", err=True)
        raise typer.Exit(1)
