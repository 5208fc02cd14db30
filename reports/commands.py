"""The commands that read and write documents: compare; mounted by the command line."""

from __future__ import annotations

import typer

from reports.compare.command import compare


def mount(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command()(compare)
