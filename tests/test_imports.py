"""Who may import whom, and how light an import is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sim

ROOT = Path(__file__).resolve().parent.parent
GROUND = {"sim.errors", "sim.schema", "sim.files", "sim.workload", "sim.records", "sim.layout"}
LEAVES = {"workloads", "hardware_profiles"}
FORBIDDEN_IN_SIM = {"torch", "typer", "rich", "matplotlib", "click"}

# Each room and the rooms it may import, itself and the ground floor aside. Each set holds the one before it.
DESCRIPTION = {"sim", "sim.models", "sim.scenario", *LEAVES}
PHYSICS = DESCRIPTION | {"sim.cost"}
ENGINE = PHYSICS | {"sim.engine"}
CLUSTER = ENGINE | {"sim.cluster"}
RESULT = {"sim.summary", "sim.result", "sim.metrics"}
RUN = CLUSTER | RESULT | {"sim.assemble", "sim.release", "sim.deploy", "sim.band", "sim.run"}
ALLOWED: dict[str, set[str]] = {
    "workloads": set(),
    "hardware_profiles": set(),
    "sim.models": set(),
    "sim.scenario": {"sim.models", *LEAVES},
    "sim.cost": {"sim.models", "hardware_profiles"},
    "sim.summary": set(),
    "sim.result": {"sim", "sim.scenario", "sim.summary", "sim.metrics"},
    "sim.metrics": {"sim", "sim.scenario", "sim.summary", "sim.result"},
    "sim.engine": PHYSICS,
    "sim.cluster": ENGINE,
    "sim.compiled": {"sim.engine"},
    "sim.conformance": CLUSTER,
    "sim.drafting": ENGINE,
    "sim.release": PHYSICS,
    "sim.memory_tiers": ENGINE,
    "sim.retention": DESCRIPTION,
    "sim.tier_use": CLUSTER | {"sim.assemble", "sim.summary"},
    "sim.assemble": CLUSTER | {"sim.drafting", "sim.memory_tiers", "sim.release", "sim.retention"},
    "sim.deploy": CLUSTER | {"sim.assemble"},
    "sim.band": {"sim.assemble", "sim.summary"},
    "sim.run": CLUSTER | RESULT | {"sim.assemble", "sim.deploy", "sim.band", "sim.tier_use"},
    "sim.planner": RUN,
    "calibration": RUN,
    "reports": DESCRIPTION | RESULT | {"sim.planner", "sim.compiled", "sim.tier_use"},
    "reports.textbook": RUN | {"reports"},
    "cli": RUN | {"sim.planner", "reports", "calibration"},
}


def sources() -> Iterator[tuple[str, Path]]:
    for top in ("sim", "workloads", "hardware_profiles", "calibration", "reports"):
        for path in sorted((ROOT / top).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path
    yield "cli", ROOT / "cli.py"


def imports_of(path: Path) -> set[str]:
    """Every module that a file imports anywhere, functions included; ``from sim import X`` is X's own module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [alias.name for alias in node.names]
            found |= {sim._HOME.get(name, "sim") for name in names} if node.module == "sim" else {node.module or ""}
    return found


def room_of(module: str) -> str:
    """The room a module belongs to: the longest name of `ALLOWED` that it starts with, or its top-level package."""
    parts = module.split(".")
    if parts[0] == "sim" and len(parts) > 1:
        shared = next((room for room in ("metrics", "summary") if parts[1].startswith(room)), parts[1])
        return f"sim.{shared}"
    return "reports.textbook" if parts[:2] == ["reports", "textbook"] else parts[0]


@pytest.mark.parametrize(("module", "path"), list(sources()), ids=lambda value: value if isinstance(value, str) else "")
def test_a_room_imports_only_what_lies_below_it(module: str, path: Path) -> None:
    room = room_of(module)
    if room == "sim":
        return
    ours = {
        name for name in imports_of(path) if name.split(".")[0] in {"sim", "reports", "calibration", "cli", *LEAVES}
    }
    if module in GROUND:
        assert {name for name in ours if name not in GROUND} == set()
        return
    assert room in ALLOWED, f"room {room} is not in the plan"
    wrong = {name for name in ours if name not in GROUND and room_of(name) not in ALLOWED[room] | {room}}
    assert wrong == set(), f"{module} may not import {wrong}"


@pytest.mark.parametrize(("module", "path"), list(sources()), ids=lambda value: value if isinstance(value, str) else "")
def test_nothing_imports_the_command_line(module: str, path: Path) -> None:
    assert "cli" not in imports_of(path)
    if module.startswith("sim"):
        assert not {name.split(".")[0] for name in imports_of(path)} & FORBIDDEN_IN_SIM


def loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_the_command_line_loads_nothing_heavy() -> None:
    heavy = {"numpy", "pandas", "pyarrow", "matplotlib", "simpy", "yaml", "pydantic", "torch"}
    assert loaded_after("import cli") & heavy == set()


def test_reading_a_scenario_loads_no_table_library() -> None:
    assert (
        loaded_after("from sim import Scenario") & {"pandas", "pyarrow", "matplotlib", "typer", "rich", "torch"}
        == set()
    )
