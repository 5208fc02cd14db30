"""What single shapes deviate by from the smooth fit: remembered for the shapes that were measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.fit_families import Law
from calibration.fit_solver import Floats, fit_grid
from hardware_profiles.grid import Anchors

if TYPE_CHECKING:
    import pandas as pd

_WORTH = 0.02  # a shape that the smooth fit meets this closely needs no anchor
_SMOOTHING = 0.01


def fit_anchors(law: Law, rows: pd.DataFrame, deviation: Floats) -> Anchors | None:
    """Factors of every shape along its anchor axis; None where no shape deviates.

    Args:
        law: of the family, with its anchor axes.
        rows: the points.
        deviation: logarithm of measured over predicted, a row each.
    """
    assert law.anchors is not None
    shape, along, nodes = law.anchors
    axes = {name: np.asarray(value, dtype=float) for name, value in law.axes(rows).items()}
    places = np.stack([axes[name] for name in shape], axis=1)
    octaves = np.log2(np.array(nodes))
    points = []
    for place in np.unique(places, axis=0):
        mine = np.all(places == place, axis=1)
        position = np.clip(np.log2(axes[along][mine]), octaves[0], octaves[-1])
        logs = fit_grid([position], [octaves], deviation[mine], np.ones(int(mine.sum())), _SMOOTHING)
        if np.abs(logs).max() > _WORTH:
            points.append(tuple(float(f"{value:.4g}") for value in (*place, *np.exp(logs))))
    if not points:
        return None
    return Anchors(shape=shape, along=along, nodes=tuple(float(node) for node in nodes), points=tuple(points))
