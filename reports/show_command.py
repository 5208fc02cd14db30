"""The ``servecast show`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.options import AsJson

Kind = Annotated[str, typer.Argument(metavar="KIND", help="models, hardware, workloads, presets or layouts.")]
Name = Annotated[
    str | None,
    typer.Argument(metavar="[NAME]", help="One of them, in full; of workloads a trace or scenario too; of layouts "
                   "the model.", show_default=False),
]  # fmt: skip
Gpu = Annotated[str | None, typer.Argument(metavar="[HARDWARE]", help="Of layouts: the GPU.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Of layouts: changes a key of the scenario.",
                 show_default=False),
]  # fmt: skip
MostGpus = Annotated[
    int | None,
    typer.Option("--max-gpus", metavar="N", help="Of layouts: GPUs of the largest, 16 where not given.",
                 show_default=False),
]  # fmt: skip
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw the workload (.png, .svg, .pdf).", show_default=False)
]


def show(
    kind: Kind,
    name: Name = None,
    hardware: Gpu = None,
    plot: Plot = None,
    overrides: Overrides = None,
    max_gpus: MostGpus = None,
    as_json: AsJson = False,
) -> None:
    """List what ships with servecast, show one entry with the provenance of its numbers, or the layouts of a model.

    servecast show hardware

    servecast show hardware h100-sxm

    servecast show workloads requests.csv.gz --plot requests.png

    servecast show layouts llama-3.1-70b h100-sxm
    """
    if kind == "layouts" and plot is None:
        from reports.layouts_view import MOST_GPUS, show_layouts

        most = MOST_GPUS if max_gpus is None else max_gpus
        show_layouts(name, hardware, overrides or (), most, as_json=as_json)
        return
    _refuse_what_only_layouts_have(kind, hardware, overrides, max_gpus)
    from reports.workload_view import is_workload_file, show_workload

    if kind == "workloads" and name is not None and (plot is not None or is_workload_file(name)):
        show_workload(name, plot, as_json)
        return
    from reports.show import print_catalogue

    if plot is not None:
        from sim.errors import InputError

        raise InputError("--plot", f"there is nothing to draw of {kind}", "name a workload")
    print_catalogue(kind, name, as_json)


def _refuse_what_only_layouts_have(
    kind: str, hardware: str | None, overrides: list[str] | None, max_gpus: int | None
) -> None:
    for field, value in (("HARDWARE", hardware), ("--set", overrides), ("--max-gpus", max_gpus)):
        if value is not None:
            from sim.errors import InputError

            raise InputError(field, f"means nothing to show {kind}", "leave it out, or show layouts")
