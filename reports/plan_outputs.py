"""The folder of a plan, and the plan as one document."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from reports.plan_bench import bench_commands
from reports.plan_serve import ENGINES, serve_commands
from reports.plan_terminal import name_of
from reports.text import count
from sim.planner.planning import PlanResult
from sim.planner.store import write_whole
from sim.scenario import Scenario


def write_plan(result: PlanResult, out: Path) -> None:
    """Write ``plan.json``, the tables, the plots, and, where there is a winner, its scenario and commands."""
    from reports.plan_plots import write_plan_plots

    write_whole(out / "plan.json", json.dumps(as_document(result), indent=2) + "\n")
    write_whole(out / "plan.parquet", _parquet(_plain(result.table)))
    write_whole(out / "runs.parquet", _parquet(result.runs))
    write_plan_plots(result.plan, out / "plots")
    for name in ("winner.yaml", "serve.md"):
        (out / name).unlink(missing_ok=True)
    if result.winner is not None:
        write_whole(out / "winner.yaml", result.winner.to_yaml())
        write_whole(out / "serve.md", commands_page(result.winner, _title(result)))


def as_document(result: PlanResult) -> dict[str, Any]:
    """The plan with its commands, in plain data."""
    document = result.plan.model_dump(mode="json")
    winner = result.winner
    document["serve"] = {} if winner is None else {
        command.engine: {"commands": list(command.lines), "files": command.files, "notes": list(command.notes)}
        for command in serve_commands(winner)
    }  # fmt: skip
    document["benchmark"] = {} if winner is None else {
        command.client: {"command": command.line, "files": command.files, "notes": list(command.notes)}
        for command in bench_commands(winner)
    }  # fmt: skip
    return document


def commands_page(winner: Scenario, title: str) -> str:
    """Serve and benchmark commands as a page to hand on."""
    parts = [f"# {title}", ""]
    for serve in serve_commands(winner):
        parts += [f"## {ENGINES[serve.engine]}", "", *_block(serve.lines, serve.files, serve.notes)]
    parts += ["## Verify", ""]
    for bench in bench_commands(winner):
        parts += [f"### {bench.client}", "", *_block((bench.line,), bench.files, bench.notes)]
    return "\n".join(parts)


def _block(lines: tuple[str, ...], files: dict[str, str], notes: tuple[str, ...]) -> list[str]:
    parts = ["```sh", *lines, "```", ""]
    for name, content in files.items():
        parts += [f"`{name}`:", "", "```yaml", content.rstrip("\n"), "```", ""]
    return parts + [f"- {note}" for note in notes] + ([""] if notes else [])


def _title(result: PlanResult) -> str:
    assert result.plan.winner is not None
    d = result.plan.winner.deployment
    return f"{result.plan.name}: {name_of(d)} on {count(d.gpus, 'GPU')} ({d.hardware})"


def _plain(table: Any) -> Any:
    """Columns that hold documents as JSON text, so that every column has one type."""
    for name in table.columns:
        if any(isinstance(value, dict | list) for value in table[name]):
            table[name] = [value if value is None else json.dumps(value) for value in table[name]]
    return table


def _parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()
