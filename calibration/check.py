"""How well a profile meets measured kernels: residuals by family, and the roofline with the points on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.fit_families import LAWS
from calibration.fit_points import checked, held_out
from calibration.fit_predict import predicted_s
from calibration.fit_solver import Floats
from calibration.picture import picture
from hardware_profiles import HardwareProfile
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


_HELD_OUT = {family for family, law in LAWS.items() if law.anchors is None}


@dataclass(frozen=True, slots=True)
class FamilyCheck:
    """Relative errors of one family and dtype, as fractions.

    Attributes:
        family, dtype: what.
        rows: how many points were judged.
        median, p90, worst: of ``|predicted / measured - 1|``.
        bias: mean of ``predicted / measured - 1``.
        unseen: judged on shapes that a fit to this very table does not see. Anchored shapes and collectives are
            fitted to all they have; their sections carry the residual of a trial fit to a part.
    """

    family: str
    dtype: str
    rows: int
    median: float
    p90: float
    worst: float
    bias: float
    unseen: bool


def check_profile(points: pd.DataFrame, hardware: HardwareProfile, *, unseen: bool = True) -> list[FamilyCheck]:
    """Residuals of ``hardware`` on ``points``, a line for each family and dtype that both have.

    Args:
        points: in the schema of `calibration.fit_points`.
        hardware: the profile.
        unseen: judge by the shapes that the fit holds out; for a table that the profile was not fitted to, say False.

    Rows faster than the datasheet's memory (served from a cache) and shapes outside of what serving runs are left out.

    Raises:
        InputError: a table that breaks the schema, or that shares no family with the profile.
    """
    checked(points, "points")
    found = []
    for (family, dtype), rows in points.groupby(["family", "dtype"]):
        judged = _judged(rows, str(family), str(dtype), hardware, unseen)
        predicted = predicted_s(judged, hardware.kernels) if len(judged) else None
        if predicted is not None:
            error = predicted / judged.seconds.to_numpy() - 1.0
            found.append(_summary(str(family), str(dtype), error, unseen and str(family) in _HELD_OUT))
    if not found:
        raise InputError("points", f"hold no family that {hardware.name} has a section for", "fit a profile first")
    return found


def _summary(family: str, dtype: str, error: Floats, unseen: bool) -> FamilyCheck:
    size = np.abs(error)
    median, p90 = (float(value) for value in np.quantile(size, (0.5, 0.9)))
    return FamilyCheck(family, dtype, len(error), median, p90, float(size.max()), float(error.mean()), unseen)


def _judged(rows: pd.DataFrame, family: str, dtype: str, hardware: HardwareProfile, unseen: bool) -> pd.DataFrame:
    law = LAWS.get(family)
    if law is None:
        return rows
    _, moved = law.work(rows, dtype)
    rows = rows[moved / rows.seconds <= hardware.memory_bandwidth_bytes_per_s]
    if unseen and len(rows):
        rows = rows[held_out(rows, family)]
    served = law.judged(rows) if law.judged is not None and len(rows) else None
    return rows[served] if served is not None and served.any() else rows


def draw_roofline(points: pd.DataFrame, hardware: HardwareProfile, path: Path, dtype: str = "bf16") -> None:
    """GEMM points of ``dtype`` as reached FLOP/s against FLOPs per byte, under the datasheet's roofline.

    Raises:
        InputError: no GEMM points of that dtype, or a picture that cannot be written.
    """
    from matplotlib.ticker import StrMethodFormatter

    rows = points[(points.family == "gemm") & (points["dtype"] == dtype)]
    if rows.empty:
        raise InputError("points", f"hold no {dtype} products", "measure the gemm family")
    flops, moved = LAWS["gemm"].work(rows, dtype)
    intensity, reached = flops / moved, flops / rows.seconds
    peak, bandwidth = hardware.peak_flops(dtype), hardware.memory_bandwidth_bytes_per_s
    line = np.logspace(np.log10(intensity.min()), np.log10(intensity.max()), 200)
    with picture(path, 7, 4.5) as figure:
        axes = figure.subplots()
        drawn = axes.scatter(intensity, reached / 1e12, c=rows.m, norm="log", s=6, alpha=0.6, linewidths=0)
        axes.plot(line, np.minimum(peak, line * bandwidth) / 1e12, color="#333333", label="datasheet")
        axes.set(xscale="log", yscale="log", xlabel="FLOP a byte", ylabel="TFLOP/s")
        axes.set_title(f"{hardware.device}, {dtype}: products as measured")
        bar = figure.colorbar(drawn, label="tokens (m)")
        for axis in (axes.xaxis, axes.yaxis, bar.ax.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.legend(loc="lower right")
