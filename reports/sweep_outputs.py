"""The folder of a sweep: its points as they come, then the table, the plots and what was asked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

from sim.errors import InputError
from sim.planner.store import write_whole
from sim.planner.sweeping import POINTS, SweepResult
from sim.scenario import Scenario

TABLE: Final = "sweep.parquet"
ASKED: Final = "sweep.json"
#: What sweeps and plans write; both may share a folder, since both keep their points alike.
OURS: Final = {POINTS, TABLE, ASKED, "plots", "plan.json", "plan.parquet", "runs.parquet", "winner.yaml", "serve.md"}


def check_folder(out: Path) -> None:
    """Raise `InputError` where ``out`` cannot hold a sweep or plan; one that is there is gone on with."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError("--out", f"{out} exists and is not a folder", "name another")
    strange = sorted(entry.name for entry in out.iterdir() if entry.name not in OURS) if out.is_dir() else []
    strange = [name for name in strange if not name.startswith(".")]
    if strange:
        raise InputError("--out", f"{out} holds other files ({strange[0]})", "name a new folder, or one of a sweep")
    parent = out.absolute()
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("--out", f"cannot write to {parent}", "name a folder that you may write to")


def write_sweep(result: SweepResult, scenario: Scenario, out: Path) -> None:
    """Write table, plots and what was asked to ``out``, each whole or not at all."""
    from reports.sweep_plots import write_sweep_plots

    write_whole(out / TABLE, parquet_of(result))
    asked = {
        "scenario": scenario.resolved().model_dump(mode="json"),
        "vary": dict(result.vary),
        "points": result.counts,
    }
    write_whole(out / ASKED, json.dumps(asked, indent=2) + "\n")
    write_sweep_plots(result, scenario.slo, out / "plots")


def parquet_of(result: SweepResult) -> bytes:
    """The table as Parquet; the same sweep gives the same bytes."""
    import io

    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    pq.write_table(result.arrow(), buffer, compression="zstd")
    return buffer.getvalue()
