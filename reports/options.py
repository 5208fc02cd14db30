"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ScenarioFile = Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario, YAML or JSON.", show_default=False)]
Overrides = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a key of the scenario, e.g. engine.max_num_seqs=64; repeatable."
    ),
]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of the workload; the scenario's where not given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]


def edits(overrides: list[str], seed: int | None) -> list[str]:
    """Changes to a scenario, the seed's last."""
    return overrides if seed is None else [*overrides, f"seed={seed}"]
