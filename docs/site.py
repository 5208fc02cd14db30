"""Pages of the site that are made from the code: read by mkdocs (``hooks`` in mkdocs.yml)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def generated() -> dict[str, str]:
    """Name of each page and its Markdown."""
    import typer

    import cli
    from reports.reference import commands_page, schema_page
    from sim import Scenario

    return {
        "reference-commands.md": commands_page(typer.main.get_command(cli.app), "servecast"),
        "reference-scenario.md": schema_page(Scenario.model_json_schema()),
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for name, text in generated().items():
        files.append(File.generated(config, name, content=text))
    return files
