"""Whether this installation can do its work: versions, extras, writable folders."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Final, Literal

import sim

_NEEDED: Final = (
    "simpy",
    "mypy_extensions",
    "numpy",
    "pandas",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "typer",
    "rich",
    "matplotlib",
)
_EXTRAS: Final = {
    "calibrate": ("torch",),
    "cluster": ("joblib", "distributed", "ray"),
    "docs": ("mkdocs", "material"),
    "test": ("pytest", "hypothesis", "mypy", "selenium"),
}

State = Literal["ok", "missing", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; ``missing`` keeps servecast from working, ``note`` something optional."""

    what: str
    state: State
    detail: str


def examine() -> list[Finding]:
    """Everything, what is needed first."""
    return [*_versions(), *_data(), *_folders(), *_gpus(), *_extras()]


def _versions() -> Iterator[Finding]:
    yield Finding("servecast", "ok", f"{sim.__version__} in {Path(sim.__file__).resolve().parent.parent}")
    yield _event_loop()
    old = sys.version_info < (3, 11)
    yield Finding("python", "missing" if old else "ok", f"{platform.python_version()} on {platform.platform()}")
    for package in _NEEDED:
        try:
            yield Finding(package, "ok", metadata.version(package))
        except metadata.PackageNotFoundError:
            yield Finding(package, "missing", f"not installed: pip install {package}")


def _event_loop() -> Finding:
    """How the event loop runs; a compiled one that is older than its sources runs something else than they say."""
    from sim.compiled import HOW, compiled, outdated

    if old := outdated():
        detail = f"compiled, but {', '.join(source.name for source in old[:3])} changed since: install again"
        return Finding("event loop", "missing", detail)
    return (
        Finding("event loop", "ok", "compiled") if compiled() else Finding("event loop", "note", f"not compiled: {HOW}")
    )


def _data() -> Iterator[Finding]:
    """That what ships with servecast is there and can be read."""
    from hardware_profiles import hardware_names, load_hardware
    from sim.models.loader import catalog_names
    from workloads import preset_names

    for what, names in (("models", catalog_names()), ("hardware", hardware_names()), ("workloads", preset_names())):
        yield Finding(what, "ok" if names else "missing", f"{len(names)} ship")
    fitted = [name for name in hardware_names() if load_hardware(name).calibrated]
    yield Finding(
        "calibration", "note" if not fitted else "ok", f"fitted to measurements: {', '.join(fitted) or 'none'}"
    )


def _folders() -> Iterator[Finding]:
    for what, folder in (("working folder", Path.cwd()), ("temporary folder", Path(tempfile.gettempdir()))):
        writable = os.access(folder, os.W_OK | os.X_OK)
        yield Finding(what, "ok" if writable else "missing", f"{folder}" + ("" if writable else " is not writable"))
    free = os.statvfs(Path.cwd()) if hasattr(os, "statvfs") else None
    if free is not None:
        yield Finding("free space", "ok", f"{free.f_bavail * free.f_frsize / 2**30:.0f} GiB in the working folder")
    yield Finding("processors", "ok", str(os.cpu_count() or 1))


def _gpus() -> Iterator[Finding]:
    """Those that the driver names; only measuring a machine needs one."""
    program, found = shutil.which("nvidia-smi"), ""
    if program is not None:
        command = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            yield Finding("gpus", "note", f"{program} gives no answer; a forecast needs none")
            return
    names = "; ".join(line.strip() for line in found.splitlines() if line.strip())
    yield Finding("gpus", "ok" if names else "note", names or "none seen; a forecast needs none")


def _extras() -> Iterator[Finding]:
    for extra, modules in _EXTRAS.items():
        absent = [module for module in modules if util.find_spec(module) is None]
        detail = "installed" if not absent else f"without {', '.join(absent)}: pip install 'servecast[{extra}]'"
        yield Finding(f"extra {extra}", "note" if absent else "ok", detail)


def print_findings(findings: list[Finding], as_json: bool) -> None:
    """As a table, or as JSON."""
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
        return
    signs = {"ok": "ok     ", "missing": "MISSING", "note": "-      "}
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        print(f"{signs[finding.state]}  {finding.what:<{width}}  {finding.detail}")
