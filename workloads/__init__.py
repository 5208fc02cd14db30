"""What is sent to the servers: arrival processes, length distributions, shared prefixes, sessions, traces, presets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workloads.presets import Preset, load_preset, preset_names
from workloads.spec import TRACE_FORMATS, WorkloadSpec

if TYPE_CHECKING:
    from workloads.build import build_workload
    from workloads.describe import describe_workload
    from workloads.traces.writer import write_trace

__all__ = [
    "TRACE_FORMATS",
    "Preset",
    "WorkloadSpec",
    "build_workload",
    "describe_workload",
    "load_preset",
    "preset_names",
    "write_trace",
]

_LAZY = {
    "build_workload": "workloads.build",
    "describe_workload": "workloads.describe",
    "write_trace": "workloads.traces.writer",
}


def __getattr__(name: str) -> Any:
    """Load the parts that need numpy when they are asked for, so that reading a scenario stays light."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
