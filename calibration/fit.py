"""Fit the kernels section of a profile to measured points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.fit_anchors import fit_anchors
from calibration.fit_collectives import fit_collective
from calibration.fit_families import LAWS, Law, trimmed
from calibration.fit_points import COLLECTIVES, checked, held_out
from calibration.fit_predict import law_s
from calibration.fit_solver import Floats, fit_grid, grid_values, simplex
from hardware_profiles import HardwareProfile
from hardware_profiles.figures import Residual
from hardware_profiles.grid import Grid
from hardware_profiles.kernels import Kernels, MemoryBoundFit, RooflineFit
from sim.cost.laws import GEMM_FAMILIES
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MIN_ROWS = 12
_ROWS_A_NODE = 3.0
_SAMPLE = 4000
_START = {"peak": 0.7, "bandwidth": 0.7, "fixed_s": 6e-6, "sharpness": 2.0}
_LEAST = float(np.log(0.1))  # no family reaches less than a tenth of the datasheet; less is a sign of another bound


def fit_kernels(points: pd.DataFrame, hardware: HardwareProfile) -> Kernels:
    """Every section that ``points`` cover; the others stay as ``hardware`` has them.

    Each section is fitted to three quarters of its shapes; its residual is that of the other quarter.

    Raises:
        InputError: points that break the schema, or too few of them for a family.
    """
    checked(points, "points")
    update: dict[str, Any] = {}
    for family, law in LAWS.items():
        rows = points[points.family == family]
        if len(rows):
            sections = {str(dtype): fit_section(group, family, law, hardware) for dtype, group in rows.groupby("dtype")}
            old = getattr(hardware.kernels, family)
            update[family] = next(iter(sections.values())) if family == "elementwise" else {**old, **sections}
    collectives = dict(hardware.kernels.collectives)
    for kind in COLLECTIVES:
        rows = points[points.family == kind]
        if len(rows):
            collectives[kind] = tuple(fit_collective(group) for _, group in rows.groupby("ranks"))
    return hardware.kernels.model_copy(update={**update, "collectives": collectives})


def fit_section(rows: pd.DataFrame, family: str, law: Law, hardware: HardwareProfile) -> RooflineFit | MemoryBoundFit:
    """One section from the rows of one family and dtype.

    Rows faster than the datasheet's memory allows came out of a cache that serving does not have; they are left out.

    Raises:
        InputError: fewer rows than a fit needs.
    """
    dtype = str(rows["dtype"].iloc[0])
    flops, moved = law.work(rows, dtype)
    cold = (moved / rows.seconds <= hardware.memory_bandwidth_bytes_per_s).to_numpy()
    if cold.sum() < _MIN_ROWS:
        raise InputError(
            f"{family} {dtype}", f"{int(cold.sum())} usable rows, a fit needs {_MIN_ROWS}", "measure more shapes"
        )
    rows = rows[cold]
    flops, moved = (None if flops is None else flops[cold].to_numpy()), moved[cold].to_numpy()
    seconds = rows.seconds.to_numpy()
    held = held_out(rows, family).to_numpy()
    base = _fit_law(law, flops, moved, seconds, ~held, _bounds(hardware, family, dtype))
    modelled = law_s(base, flops, moved)
    grids, correction = _fit_grids(law, rows, np.log(seconds / modelled), ~held)
    predicted = modelled * np.exp(correction)
    judged = held if held.any() else ~held
    if law.judged is not None:
        served = judged & law.judged(rows).to_numpy()
        judged = served if served.any() else judged  # a small model's shapes may all lie outside
    residual = _residual(predicted[judged], seconds[judged], bool(held.any()))
    update: dict[str, Any] = {"source": "; ".join(sorted(set(rows.source))), "residual": residual, "grids": grids}
    if law.anchors is not None:
        update["anchors"] = fit_anchors(law, rows, np.log(seconds / predicted))
    return base.model_copy(update=update)


def _fit_law(
    law: Law, flops: Floats | None, moved: Floats, seconds: Floats, seen: Any, bounds: tuple[float, float]
) -> RooflineFit | MemoryBoundFit:
    """The law's own figures: least mean absolute logarithmic error over a sample of the rows seen."""
    chosen = np.flatnonzero(seen)
    if len(chosen) > _SAMPLE:
        chosen = np.sort(np.random.default_rng(1).permutation(chosen)[:_SAMPLE])
    some_flops = None if flops is None else flops[chosen]
    start = [np.log(_START["bandwidth"]), np.log(_START["fixed_s"])]
    if flops is not None:
        start += [np.log(_START["peak"]), np.log(_START["sharpness"] - 1.0)]

    def loss(x: Floats) -> float:
        modelled = law_s(_section(law, x, bounds), some_flops, moved[chosen])
        return float(np.abs(np.log(modelled / seconds[chosen])).mean())

    return _section(law, simplex(loss, start), bounds)


def _bounds(hardware: HardwareProfile, family: str, dtype: str) -> tuple[float, float]:
    """(peak FLOP/s, bytes/s) of the datasheet."""
    computed = GEMM_FAMILIES[dtype].dtype if family in ("gemm", "experts") else "bf16"
    return hardware.peak_flops(computed), hardware.memory_bandwidth_bytes_per_s


def _section(law: Law, x: Floats, bounds: tuple[float, float]) -> RooflineFit | MemoryBoundFit:
    """The section at search point ``x``: logarithms of fractions of the datasheet, never above it."""
    figures: dict[str, Any] = {
        "provenance": "fitted",
        "source": "points",
        "bandwidth_bytes_per_s": _rounded(bounds[1] * np.exp(np.clip(x[0], _LEAST, 0.0))),
        "fixed_s": _rounded(np.exp(x[1])),
        "grids": (),
        "residual": None,
    }
    if len(x) > 2:
        figures |= {
            "peak_flops": _rounded(bounds[0] * np.exp(np.clip(x[2], _LEAST, 0.0))),
            "sharpness": _rounded(min(1.0 + np.exp(x[3]), 16.0)),
        }
    return law.fit.model_construct(**figures)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _fit_grids(law: Law, rows: pd.DataFrame, target: Floats, seen: Any) -> tuple[tuple[Grid, ...], Floats]:
    """The correction grids and their logarithm at every row; a grid without rows enough to carry it is left out."""
    values = {name: np.log2(np.asarray(value, dtype=float)) for name, value in law.axes(rows).items()}
    grids: list[Grid] = []
    total = np.zeros(len(rows))
    for candidates in law.grids:
        nodes = {name: trimmed(axis, np.exp2(values[name])) for name, axis in candidates.items()}
        if seen.sum() < _ROWS_A_NODE * np.prod([len(axis) for axis in nodes.values()]) ** 0.5:
            continue
        at, logs = [values[name] for name in nodes], [np.log2(axis) for axis in nodes.values()]
        weight = np.ones(int(seen.sum()))
        thin = max(1.0, np.prod([len(axis) for axis in nodes.values()]) / seen.sum())
        fitted = fit_grid([value[seen] for value in at], logs, (target - total)[seen], weight, law.smoothing * thin)
        factors = np.round(np.exp(fitted), 3)
        axes = {name: tuple(float(node) for node in axis) for name, axis in nodes.items()}
        grids.append(Grid(axes=axes, factor=tuple(float(factor) for factor in factors.ravel())))
        total += grid_values(at, logs, np.log(factors))
    return tuple(grids), total


def _residual(predicted: Floats, seconds: Floats, is_held_out: bool) -> Residual:
    error = np.abs(predicted / seconds - 1.0)
    median, p90 = (round(float(np.quantile(error, q)), 4) for q in (0.5, 0.9))
    return Residual(median=median, p90=p90, worst=round(float(error.max()), 3), rows=len(error), held_out=is_held_out)
