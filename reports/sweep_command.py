"""The ``servecast sweep`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reports.options import AsJson, Overrides, ScenarioFile, Seed, edits

ExecutorName = Annotated[
    str, typer.Option(metavar="local|dask|ray", help="Where points run: processes of this machine, or a cluster.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of a running Dask scheduler or Ray head; none: a cluster of this machine."),
]
Workers = Annotated[int | None, typer.Option(metavar="N", help="Points at once; all processors where not given.")]


EXIT_NOTHING = 1


def sweep(
    scenario: ScenarioFile,
    vary: Annotated[
        list[str],
        typer.Option("--vary", metavar="KEY=A,B,...", help="A key of the scenario and its values; repeatable."),
    ],
    overrides: Overrides = [],  # noqa: B006 (Typer copies it)
    seed: Seed = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write table and plots there; points kept there are not run again."),
    ] = None,
    executor: ExecutorName = "local",
    address: Address = None,
    workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a grid of what-ifs: every combination of the values given with --vary.

    Exits with 1 if no point could be simulated.

    servecast sweep chat.yaml --vary workload.arrivals.rate_per_s=1,2,4,8 --out sweeps/rate

    servecast sweep chat.yaml --vary layout.tensor_parallel_size=1,2,4 --vary engine.kv_cache_dtype=auto,fp8
    """
    from reports.sweep_run import run_sweep

    some = run_sweep(
        scenario,
        vary,
        overrides=edits(overrides, seed),
        out=out,
        executor=executor,
        address=address,
        workers=workers,
        as_json=as_json,
    )
    if not some:
        raise typer.Exit(EXIT_NOTHING)
