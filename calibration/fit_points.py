"""Measured kernel times as one tidy table, whatever made them: published tables or one's own microbenchmarks.

A row is one timing. ``family`` says which law it follows, ``dtype`` the GEMM family or the dtype of the cache,
``seconds`` the time of one call. Which other columns must be filled depends on the family, see `FAMILIES`. Rows of
``experts`` may say in ``ranks`` over how many ranks the experts are spread; a hole means 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sim.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Family:
    """Columns of a family, and those that make up a *shape*: rows of one shape are held out together."""

    columns: tuple[str, ...]
    shape: tuple[str, ...]


FAMILIES: Final = {
    "gemm": Family(("m", "n", "k"), ("n", "k")),
    "decode_attention": Family(
        ("batch", "context", "heads", "kv_heads", "head_dim"), ("batch", "heads", "kv_heads", "head_dim")
    ),
    "prefill_attention": Family(
        ("batch", "new", "heads", "kv_heads", "head_dim"), ("batch", "heads", "kv_heads", "head_dim")
    ),
    "mla_decode": Family(("batch", "context", "heads"), ("batch", "heads")),
    "mla_prefill": Family(("batch", "new", "heads"), ("batch", "heads")),
    "experts": Family(
        ("rows", "active", "experts", "hidden", "width", "projections"), ("experts", "hidden", "width", "projections")
    ),
    "elementwise": Family(("bytes",), ("bytes",)),
    "all_reduce": Family(("bytes", "ranks"), ("bytes", "ranks")),
    "all_gather": Family(("bytes", "ranks"), ("bytes", "ranks")),
    "reduce_scatter": Family(("bytes", "ranks"), ("bytes", "ranks")),
    "all_to_all": Family(("bytes", "ranks"), ("bytes", "ranks")),
    "host_to_device": Family(("bytes",), ("bytes",)),  # measured, not fitted: nothing reads them yet
    "device_to_host": Family(("bytes",), ("bytes",)),
}
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_ALWAYS: Final = ("family", "dtype", "seconds", "source")


def checked(points: pd.DataFrame, where: str) -> pd.DataFrame:
    """``points`` when they keep the schema.

    Raises:
        InputError: missing columns, an unknown family, a hole in a column that the family needs, or a time that is not
            positive and finite.
    """
    import numpy as np

    _require(points, _ALWAYS, where)
    for family, rows in points.groupby("family"):
        name = str(family)
        if name not in FAMILIES:
            raise InputError(f"{where}: family", f"unknown family {name!r}", nearest(name, FAMILIES))
        columns = FAMILIES[name].columns
        _require(points, columns, where)
        numbers = rows[[*columns, "seconds"]].to_numpy(dtype=float)
        bad = np.flatnonzero(~np.all(np.isfinite(numbers) & (numbers > 0), axis=1))
        if len(bad):
            raise InputError(
                f"{where}: row {rows.index[bad[0]]}",
                f"a {name} row needs positive numbers in {', '.join(columns)} and seconds",
                "drop the row or measure it again",
            )
    return points


def read_points(path: str | Path) -> pd.DataFrame:
    """A table written by ``calibrate run`` or ``calibrate import``, checked.

    Raises:
        InputError: not a readable Parquet file, or not of the schema.
    """
    import pandas as pd

    try:
        points = pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InputError(str(path), f"cannot be read as Parquet ({error})", "name a table of `calibrate run`") from None
    return checked(points, str(path))


def held_out(points: pd.DataFrame, family: str, fraction: float = 0.25, seed: int = 0) -> pd.Series[bool]:
    """Which rows belong to shapes that a fit must not see: a random ``fraction`` of the shapes."""
    import numpy as np
    import pandas as pd

    shape = list(FAMILIES[family].shape)
    shapes = points[shape].drop_duplicates().sort_values(shape).reset_index(drop=True)
    chosen = np.random.default_rng(seed).permutation(len(shapes))[: int(fraction * len(shapes))]
    marked = shapes.assign(held=np.isin(np.arange(len(shapes)), chosen))
    merged = points[shape].merge(marked, on=shape, how="left")["held"]
    return pd.Series(merged.to_numpy(dtype=bool), index=points.index)


def _require(points: pd.DataFrame, columns: Sequence[str], where: str) -> None:
    missing = [column for column in columns if column not in points.columns]
    if missing:
        raise InputError(where, f"lacks the columns {', '.join(missing)}", "see calibration/fit_points.py")
