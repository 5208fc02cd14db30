"""What a profile says of whole tables of measured points: the simulator's own formulas, without its bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.fit_families import LAWS, Law
from calibration.fit_points import COLLECTIVES
from calibration.fit_solver import Floats, grid_values
from hardware_profiles.grid import Anchors
from hardware_profiles.kernels import CollectiveFit, Kernels, MemoryBoundFit, RooflineFit
from sim.cost import laws

if TYPE_CHECKING:
    import pandas as pd


def predicted_s(rows: pd.DataFrame, kernels: Kernels) -> Floats | None:
    """Seconds of each row of one family and dtype; None where the profile has no section for them."""
    family, dtype = str(rows["family"].iloc[0]), str(rows["dtype"].iloc[0])
    if family in COLLECTIVES:
        return _collective_s(rows, kernels.collectives.get(family, ()))
    if family not in LAWS:
        return None
    found: Any = getattr(kernels, family)
    section = found.get(dtype) if isinstance(found, dict) else found
    if section is None:
        return None
    law = LAWS[family]
    flops, moved = law.work(rows, dtype)
    return law_s(section, flops, moved) * np.exp(correction(section, law, rows))


def law_s(section: RooflineFit | MemoryBoundFit, flops: Any, moved: Any) -> Floats:
    """The bare law, uncorrected."""
    if isinstance(section, RooflineFit):
        return np.asarray(laws.roofline(section, np.asarray(flops), np.asarray(moved)))
    return np.asarray(laws.memory_bound(section, np.asarray(moved)))


def correction(section: RooflineFit | MemoryBoundFit, law: Law, rows: pd.DataFrame) -> Floats:
    """Logarithm of all grids and anchors of ``section`` at every row."""
    octaves = {name: np.log2(np.asarray(value, dtype=float)) for name, value in law.axes(rows).items()}
    total = np.zeros(len(rows))
    for grid in section.grids:
        nodes = [np.log2(np.array(axis)) for axis in grid.axes.values()]
        logs = np.log(np.array(grid.factor)).reshape([len(axis) for axis in nodes])
        total += grid_values([octaves[name] for name in grid.axes], nodes, logs)
    if isinstance(section, RooflineFit) and section.anchors is not None:
        total += _anchored(section.anchors, octaves)
    return total


def _anchored(anchors: Anchors, octaves: dict[str, Floats]) -> Floats:
    places = np.stack([octaves[name] for name in anchors.shape], axis=1)
    along = octaves[anchors.along]
    total = np.zeros(len(along))
    for place in np.unique(places, axis=0):
        mine = np.all(places == place, axis=1)
        at = {name: float(2.0**value) for name, value in zip(anchors.shape, place, strict=True)}
        surface = anchors.surface(at)
        total[mine] = [surface.log(float(value)) for value in along[mine]]
    return total


def _collective_s(rows: pd.DataFrame, fits: tuple[CollectiveFit, ...]) -> Floats | None:
    by_ranks = {fit.ranks: fit for fit in fits}
    if not set(rows["ranks"]) <= set(by_ranks):
        return None
    out = np.empty(len(rows))
    for index, (size, ranks) in enumerate(zip(rows["bytes"], rows["ranks"], strict=True)):
        pieces = by_ranks[int(ranks)].segments
        piece = next(s for s in pieces if s.up_to_bytes is None or size <= s.up_to_bytes)
        out[index] = piece.alpha_s + size / piece.beta_bytes_per_s
    return out
