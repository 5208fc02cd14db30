"""The commands that read and write documents: show, compare, convert, doctor; mounted by the command line."""

from __future__ import annotations

import typer

from reports.compare.command import compare
from reports.convert.command import convert
from reports.options import AsJson
from reports.show_command import show


def doctor(as_json: AsJson = False) -> None:
    """Look at this installation: versions, extras, writable folders. Exits with 1 if something needed is missing.

    servecast doctor
    """
    from reports.doctor import examine, print_findings

    findings = examine()
    print_findings(findings, as_json)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def mount(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    for command in (show, compare, convert, doctor):
        app.command()(command)
