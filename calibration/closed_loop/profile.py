"""From microbenchmark rows to a hardware profile of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hardware_profiles.profile import HardwareProfile
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MARGIN: Final = 1.02  # above the best that was seen: a bound is not itself a measurement of one row
_COLD_BYTES: Final = 1e6


def machine_profile(rows: pd.DataFrame, metadata: dict[str, Any]) -> HardwareProfile:
    """A profile without kernels whose bounds are the best that the microbenchmarks saw on this machine.

    Args:
        rows: a table of ``calibrate run``.
        metadata: stored beside it.

    Raises:
        InputError: no matrix products to take the bounds from.
    """
    gemm = rows[rows.family == "gemm"]
    if gemm.empty:
        raise InputError("points", "hold no gemm rows", "measure the gemm family too")
    seconds = gemm.fastest_s.to_numpy()
    weight_bytes = 2.0 * gemm.n.to_numpy() * gemm.k.to_numpy()
    cold = weight_bytes >= min(_COLD_BYTES, weight_bytes.max())
    peak = float((2.0 * gemm.m * gemm.n * gemm.k / seconds).max()) * _MARGIN
    bandwidth = float((weight_bytes / seconds)[cold].max()) * _MARGIN
    seen = f"best of calibrate run on {metadata['name']}, {metadata['measured']}"
    return HardwareProfile.parse(_document(metadata, peak, bandwidth, seen), "this machine")


def _document(metadata: dict[str, Any], peak: float, bandwidth: float, seen: str) -> dict[str, Any]:
    def measured(value: float) -> dict[str, Any]:
        return {"value": float(f"{value:.5g}"), "provenance": "measured", "source": seen}

    def assumed(value: float) -> dict[str, Any]:
        return {"value": value, "provenance": "assumed", "source": "not needed on a single machine"}

    memory = float(metadata["facts"].get("memory_bytes", 0)) or 16 * 2.0**30
    return {
        "name": "this-machine",
        "device": metadata["name"],
        "vendor": "unknown",
        "generation": metadata["device"],
        "memory": {
            "capacity_bytes": assumed(memory),
            "visible_bytes": assumed(memory),
            "bandwidth_bytes_per_s": measured(bandwidth),
        },
        "compute": {"peak_flops": {"bf16": measured(peak)}},
        "links": {
            "kind": "none",
            "gpu_bytes_per_s": assumed(1e9),
            "host_bytes_per_s": assumed(1e9),
            "inter_node_bytes_per_s": assumed(1e9),
            "gpus_per_node": 1,
        },
        "power": {"tdp_w": assumed(0), "idle_w": assumed(0)},
        "notes": [f"made by calibrate run: {sentence}" for sentence in metadata["warnings"]],
    }
