"""The folder of a run: everything, or nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

from sim.errors import InputError
from sim.result import Result

#: A folder that holds these files was written by servecast and may be replaced.
_MARKS: Final = {"scenario.yaml", "summary.json"}
_OURS: Final = {*_MARKS, "requests.parquet", "steps.parquet", "report.html", "plots", "timeline.json"}
_PICTURES: Final = {".png", ".svg"}


def check_target(out: Path) -> None:
    """Raise `InputError` where ``out`` cannot become the folder of a run; called before a run that may take long."""
    try:
        if out.is_symlink() or (out.exists() and not out.is_dir()):
            raise InputError("--out", f"{out} exists and is not a folder", "name another")
        if out.is_dir() and (strange := _not_of_a_run(out)):
            raise InputError("--out", f"{out} holds other files ({strange})", "name a new or empty folder")
        if Path.cwd().is_relative_to(
            os.path.realpath(out)
        ):  # a folder is replaced as a whole, and this one is stood in
            raise InputError("--out", f"{out} is the folder you are in, or holds it", "name another folder")
        parent = _existing_parent(out)
    except OSError as error:
        raise InputError("--out", f"cannot write {out}: {error.strerror or error}", "name another folder") from None
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError("--out", f"cannot write to {parent}", "name a folder that you may write to")


def _not_of_a_run(folder: Path) -> str:
    """A name in ``folder`` that no former run has left there; empty if there is none."""
    present = {entry.name for entry in folder.iterdir()}
    strange = present - _OURS or (present if not present >= _MARKS else set())
    if not strange and (folder / "plots").is_dir():
        strange = {f"plots/{entry.name}" for entry in (folder / "plots").iterdir() if entry.suffix not in _PICTURES}
    return min(strange, default="")


def write_outputs(result: Result, out: Path) -> None:
    """Write every output of ``result`` to ``out``: first to a folder beside it, then renamed in one go.

    A former output of servecast is replaced. Raises `InputError` where ``out`` cannot be written.
    """
    check_target(out)
    target = out.absolute()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as scratch:
            whole = Path(scratch) / "run"
            whole.mkdir()
            _write_all(result, whole)
            _swap_in(whole, target, Path(scratch) / "former")
    except OSError as error:
        raise InputError("--out", f"cannot write {out}: {error.strerror or error}") from None


def _swap_in(whole: Path, target: Path, former: Path) -> None:
    """Put ``whole`` in the place of ``target``; whatever stops it, one of the two is there afterwards."""
    try:
        if target.exists():
            target.rename(former)
        whole.rename(target)
    except BaseException:
        if former.exists() and not target.exists():
            former.rename(target)
        raise


def _write_all(result: Result, folder: Path) -> None:
    from reports.html.page import write_report
    from reports.plots import write_plots
    from reports.tables import write_tables
    from reports.timeline import write_timeline

    (folder / "scenario.yaml").write_text(result.context.scenario.resolved().to_yaml(), encoding="utf-8")
    (folder / "summary.json").write_text(result.summary.to_json(), encoding="utf-8")
    write_tables(result, folder)
    write_timeline(result, folder / "timeline.json")
    write_plots(result, folder / "plots")
    write_report(result, folder / "report.html")


def _existing_parent(path: Path) -> Path:
    parent = path.absolute().parent
    while not parent.exists() and parent != parent.parent:
        parent = parent.parent
    return parent
