"""What-ifs by the grid (`sweep`), and the cheapest deployment that keeps a promise (`plan`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["SweepResult", "sweep"]

if TYPE_CHECKING:
    from sim.planner.sweeping import SweepResult, sweep

_HOME = {"SweepResult": "sim.planner.sweeping", "sweep": "sim.planner.sweeping"}


def __getattr__(name: str) -> Any:
    """Load a part on first use. No name here may also be a module of the package."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
