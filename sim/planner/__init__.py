"""What-ifs by the grid (`sweep`), and the cheapest deployment that keeps a promise (`plan`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Options", "Plan", "PlanResult", "SweepResult", "plan", "sweep"]

if TYPE_CHECKING:
    from sim.planner.outcome import Plan
    from sim.planner.planning import PlanResult, plan
    from sim.planner.space import Options
    from sim.planner.sweeping import SweepResult, sweep

_HOME = {
    "Options": "sim.planner.space",
    "Plan": "sim.planner.outcome",
    "PlanResult": "sim.planner.planning",
    "SweepResult": "sim.planner.sweeping",
    "plan": "sim.planner.planning",
    "sweep": "sim.planner.sweeping",
}


def __getattr__(name: str) -> Any:
    """Load a part on first use. No name here may also be a module of the package."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
