"""The ``servecast show`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Kind = Annotated[str, typer.Argument(metavar="KIND", help="models, hardware, workloads or presets.")]
Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="One of them, in full; of workloads a trace or scenario too.",
                   show_default=False),
]  # fmt: skip
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the workload (.png, .svg, .pdf).", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]


def show(kind: Kind, name: Name = None, plot: Plot = None, as_json: AsJson = False) -> None:
    """List what ships with servecast, or show one entry with the provenance of its numbers.

    servecast show hardware

    servecast show hardware h100-sxm

    servecast show workloads requests.csv.gz --plot requests.png
    """
    from reports.workload_view import is_workload_file, show_workload

    if kind == "workloads" and name is not None and (plot is not None or is_workload_file(name)):
        show_workload(name, plot, as_json)
        return
    from reports.show import print_catalogue

    if plot is not None:
        from sim.errors import InputError

        raise InputError("--plot", f"there is nothing to draw of {kind}", "name a workload")
    print_catalogue(kind, name, as_json)
