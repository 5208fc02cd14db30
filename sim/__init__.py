"""servecast's public import: ``from sim import Scenario, simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["InputError", "Result", "Scenario", "__version__", "simulate"]

if TYPE_CHECKING:
    from sim.errors import InputError
    from sim.result import Result
    from sim.run import simulate
    from sim.scenario import Scenario

_HOME = {"InputError": "sim.errors", "Result": "sim.result", "Scenario": "sim.scenario", "simulate": "sim.run"}


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that importing the package (and `servecast --help`) stays light. No name here may also be
    # a module of the package: importing that would shadow it.
    if name not in _HOME:
        raise AttributeError(f"module 'sim' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
