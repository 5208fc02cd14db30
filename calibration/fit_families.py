"""What the fit needs to know of each family: its work, its law, the axes of its correction grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from calibration.fit_solver import Floats
from hardware_profiles.kernels import MemoryBoundFit, RooflineFit
from sim.cost import laws
from sim.cost.laws import GEMM_FAMILIES

if TYPE_CHECKING:
    import pandas as pd

MLA_RANK: Final = 512  # DeepSeek-V2/V3 and Kimi: the only latent geometry in published tables
MLA_ROPE: Final = 64
MLA_QK: Final = 192
MLA_V: Final = 128
_WIDTHS: Final = (32, 256, 1024, 2048, 4096, 8192, 16384, 65536)
_KV_BYTES: Final = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True)
class Law:
    """A family as the fit sees it.

    Attributes:
        fit: class of the section.
        work: rows and dtype to (flops or None, bytes).
        axes: rows to the position on each axis of the grids.
        grids: candidates for the nodes of each axis of each grid, later grids correct earlier ones; nodes outside the
            data are dropped.
        smoothing: of the grids.
        anchors: (axes of a shape, the axis along which it is followed, its nodes): shapes that the fit remembers.
        judged: the rows that serving runs and the residual is taken over; None = all.
    """

    fit: type[RooflineFit] | type[MemoryBoundFit]
    work: Callable[[pd.DataFrame, str], tuple[Any, Any]]
    axes: Callable[[pd.DataFrame], dict[str, Any]]
    grids: tuple[dict[str, tuple[float, ...]], ...]
    smoothing: float = 0.02
    judged: Callable[[pd.DataFrame], Any] | None = None
    anchors: tuple[tuple[str, ...], str, tuple[float, ...]] | None = None


def _octaves(low: int, high: int, step: int = 1) -> tuple[float, ...]:
    return tuple(2.0**power for power in range(low, high + 1, step))


_CONTEXTS: Final = (1.0, *_octaves(6, 17))
_CHUNKS: Final = (1.0, *_octaves(4, 14, 2))


def _gemm_work(rows: pd.DataFrame, family: str) -> tuple[Any, Any]:
    how = GEMM_FAMILIES[family]
    return laws.gemm_work(rows.m, rows.n, rows.k, how.weight_bits, how.input_bytes)


def _decode_work(rows: pd.DataFrame, dtype: str) -> tuple[Any, Any]:
    moved = laws.decode_attention_work(
        rows.batch, rows.context, rows.heads, rows.kv_heads, 2.0 * rows.head_dim, _KV_BYTES[dtype]
    )
    return None, moved


def _prefill_work(rows: pd.DataFrame, dtype: str) -> tuple[Any, Any]:
    pairs, tokens = rows.batch * rows.new * (rows.new + 1) / 2, rows.batch * rows.new
    return laws.prefill_attention_work(pairs, tokens, tokens, rows.heads, rows.kv_heads, 2.0 * rows.head_dim)


def _mla_decode_work(rows: pd.DataFrame, dtype: str) -> tuple[Any, Any]:
    return laws.mla_decode_work(rows.batch, rows.context, rows.heads, MLA_RANK, MLA_ROPE, _KV_BYTES[dtype])


def _mla_prefill_work(rows: pd.DataFrame, dtype: str) -> tuple[Any, Any]:
    pairs, tokens = rows.batch * rows.new * (rows.new + 1) / 2, rows.batch * rows.new
    return laws.prefill_attention_work(pairs, tokens, tokens, rows.heads, rows.heads, MLA_QK + MLA_V)


def _experts_work(rows: pd.DataFrame, family: str) -> tuple[Any, Any]:
    how = GEMM_FAMILIES[family]
    return laws.experts_work(
        rows.rows, rows.active, rows.hidden, rows.width, rows.projections, how.weight_bits, how.input_bytes
    )


LAWS: Final = {
    "gemm": Law(
        RooflineFit,
        _gemm_work,
        lambda rows: {"m": rows.m, "n": rows.n, "k": rows.k},
        ({"m": (1.0, *_octaves(4, 15)), "n": _WIDTHS, "k": _WIDTHS},),
        0.01,
        lambda rows: (rows.n >= 1024) & (rows.k >= 1024),
    ),
    "decode_attention": Law(
        MemoryBoundFit,
        _decode_work,
        lambda rows: {
            "parallel": rows.batch * rows.kv_heads,
            "context": rows.context,
            "group": rows.heads / rows.kv_heads,
            "head_dim": rows.head_dim,
            "batch": rows.batch,
            "kv_heads": rows.kv_heads,
        },
        (
            {"parallel": _octaves(0, 13), "context": _CONTEXTS, "group": (1, 2, 16), "head_dim": (64, 128, 256)},
            {"batch": (1, 2), "kv_heads": (1, 2), "parallel": _octaves(0, 12, 2), "context": _octaves(6, 16, 2)},
        ),
        smoothing=0.005,
        judged=lambda rows: rows.batch <= 512,
    ),
    "prefill_attention": Law(
        RooflineFit,
        _prefill_work,
        lambda rows: {
            "parallel": rows.batch * rows.heads,
            "new": rows.new,
            "group": rows.heads / rows.kv_heads,
            "head_dim": rows.head_dim,
        },
        ({"parallel": _octaves(0, 14, 2), "new": _CHUNKS, "group": (1, 2, 16), "head_dim": (64, 128, 256)},),
    ),
    "mla_decode": Law(
        RooflineFit,
        _mla_decode_work,
        lambda rows: {"batch": rows.batch, "context": rows.context, "heads": rows.heads},
        ({"batch": _octaves(0, 10), "context": _CONTEXTS, "heads": (1, 8, 16, 32, 64, 128)},),
    ),
    "mla_prefill": Law(
        RooflineFit,
        _mla_prefill_work,
        lambda rows: {"parallel": rows.batch * rows.heads, "new": rows.new},
        ({"parallel": _octaves(0, 14, 2), "new": _CHUNKS},),
    ),
    "experts": Law(
        RooflineFit,
        _experts_work,
        lambda rows: {
            "rows": rows.rows / rows.experts,
            "experts": rows.experts,
            "matrix": rows.hidden * rows.width,
            "hidden": rows.hidden,
            "width": rows.width,
            "ranks": rows.ranks.fillna(1.0) if "ranks" in rows else 0.0 * rows.rows + 1.0,
        },
        (
            {"rows": _octaves(-8, 12, 2), "experts": _octaves(0, 9, 2), "matrix": _octaves(17, 27, 2)},
            {"ranks": (1, 2, 8, 64), "rows": _octaves(-8, 12, 4)},
        ),
        0.05,
        anchors=(("experts", "hidden", "width", "ranks"), "rows", _octaves(-2, 12, 2)),
    ),
    "elementwise": Law(
        MemoryBoundFit,
        lambda rows, dtype: (None, rows.bytes),
        lambda rows: {"bytes": rows.bytes},
        ({"bytes": _octaves(10, 32, 2)},),
    ),
}


def trimmed(nodes: tuple[float, ...], values: Floats) -> Floats:
    """The nodes that the data reach, and one past each end."""
    axis = np.array(nodes, dtype=float)
    first = max(int(np.searchsorted(axis, values.min(), side="right")) - 1, 0)
    last = min(int(np.searchsorted(axis, values.max(), side="left")), len(axis) - 1)
    return axis[first : last + 1]
