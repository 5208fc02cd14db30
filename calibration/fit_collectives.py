"""Fit a collective: a few alpha-beta segments over the message size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from calibration.fit_solver import Floats
from hardware_profiles.figures import Residual
from hardware_profiles.kernels import CollectiveFit, Segment
from sim.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_MAX_SEGMENTS = 4
_GAIN = 0.8  # another segment must cut the error at least to this
_GOOD = 0.005  # mean relative error that needs no further segment


def fit_collective(rows: pd.DataFrame) -> CollectiveFit:
    """Segments from the rows of one rank count; the residual is that of a fit to every other message size.

    Raises:
        InputError: fewer than six message sizes.
    """
    ranks = int(rows.ranks.iloc[0])
    median = rows.groupby("bytes").seconds.median().sort_index()
    sizes, seconds = median.index.to_numpy(dtype=float), median.to_numpy(dtype=float)
    if len(sizes) < 6:
        raise InputError(f"collective over {ranks} ranks", f"{len(sizes)} message sizes, a fit needs 6", "measure more")
    seen = np.arange(len(sizes)) % 2 == 0
    seen[-1] = True
    trial = _segments(sizes[seen], seconds[seen])
    error = np.abs(_predict(trial, sizes[~seen]) / seconds[~seen] - 1.0)
    quantiles = [round(float(np.quantile(error, q)), 4) for q in (0.5, 0.9)]
    residual = Residual(
        median=quantiles[0], p90=quantiles[1], worst=round(float(error.max()), 3), rows=len(error), held_out=True
    )
    return CollectiveFit(
        provenance="fitted",
        source="; ".join(sorted(set(rows.source))),
        residual=residual,
        ranks=ranks,
        segments=tuple(_segments(sizes, seconds)),
    )


def _segments(sizes: Floats, seconds: Floats) -> list[Segment]:
    """The fewest segments after which one more no longer pays."""
    best = _split(sizes, seconds, 1)
    for count in range(2, _MAX_SEGMENTS + 1):
        if len(sizes) < 3 * count or best[0] < _GOOD * len(sizes):
            break
        candidate = _split(sizes, seconds, count)
        if candidate[0] > _GAIN * best[0]:
            continue
        best = candidate
    return best[1]


def _split(sizes: Floats, seconds: Floats, count: int) -> tuple[float, list[Segment]]:
    """(error, segments) of the best cut into ``count`` pieces of at least three sizes, by dynamic programming."""
    total = len(sizes)
    tables: list[dict[int, tuple[float, list[tuple[int, int]]]]] = [{0: (0.0, [])}]
    for _ in range(count):
        reached: dict[int, tuple[float, list[tuple[int, int]]]] = {}
        for start, (error, pieces) in tables[-1].items():
            for end in range(start + 3, total + 1):
                extended = error + _line(sizes[start:end], seconds[start:end])[2]
                if end not in reached or extended < reached[end][0]:
                    reached[end] = (extended, [*pieces, (start, end)])
        tables.append(reached)
    error, pieces = tables[-1][total]
    segments = []
    for start, end in pieces:
        alpha, beta, _ = _line(sizes[start:end], seconds[start:end])
        top = None if end == total else float(np.sqrt(sizes[end - 1] * sizes[end]))
        segments.append(Segment(up_to_bytes=top, alpha_s=alpha, beta_bytes_per_s=beta))
    return error, segments


def _line(sizes: Floats, seconds: Floats) -> tuple[float, float, float]:
    """(alpha, beta, summed relative error) of ``alpha + size / beta``, least squares in relative error."""
    weight = 1.0 / seconds
    design = np.stack([weight, sizes * weight], axis=1)
    (alpha, slope), *_ = np.linalg.lstsq(design, np.ones(len(sizes)), rcond=None)
    if alpha < 0.0:
        alpha, slope = 0.0, float((sizes * weight).sum() / ((sizes * weight) ** 2).sum())
    if slope <= 0.0:
        alpha, slope = float(np.exp(np.log(seconds).mean())), 1e-18
    error = float(np.abs((alpha + slope * sizes) / seconds - 1.0).sum())
    return float(alpha), 1.0 / float(slope), error


def _predict(segments: list[Segment], sizes: Floats) -> Floats:
    out = np.empty(len(sizes))
    for index, size in enumerate(sizes):
        piece = next(s for s in segments if s.up_to_bytes is None or size <= s.up_to_bytes)
        out[index] = piece.alpha_s + size / piece.beta_bytes_per_s
    return out
