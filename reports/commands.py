"""The commands that read and write documents: compare and convert; mounted by the command line."""

from __future__ import annotations

import typer

from reports.compare.command import compare
from reports.convert.command import convert


def mount(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(compare)
    app.command()(convert)
