"""Fitted figures by operator family and dtype: the kernels section of a profile.

Each section is a physical law with few figures and, where measurements show that it pays, `Grid` factors on top, all
multiplied. The laws themselves are in ``sim.cost.laws``.
"""

from __future__ import annotations

from pydantic import Field

from hardware_profiles.figures import Figure, Fit
from hardware_profiles.grid import Anchors, Grid
from sim.schema import StrictModel


class RooflineFit(Fit):
    """``((flops / peak)^p + (bytes / bandwidth)^p)^(1/p) + fixed`` with ``p = sharpness``.

    ``sharpness`` 1 is a sum (nothing overlaps); a large one is the plain maximum of the roofline.
    """

    peak_flops: float = Field(gt=0)
    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)
    sharpness: float = Field(8.0, ge=1, le=32)
    grids: tuple[Grid, ...] = ()
    anchors: Anchors | None = None


class MemoryBoundFit(Fit):
    """``bytes / bandwidth + fixed``."""

    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)
    grids: tuple[Grid, ...] = ()


class Segment(StrictModel):
    """One alpha-beta piece of a collective, for messages up to ``up_to_bytes`` (None = no upper end)."""

    up_to_bytes: float | None = None
    alpha_s: float = Field(ge=0)
    beta_bytes_per_s: float = Field(gt=0)


class CollectiveFit(Fit):
    """A collective over ``ranks`` GPUs of one node: ``alpha + bytes / beta`` by segment, sizes ascending."""

    ranks: int = Field(ge=2)
    segments: tuple[Segment, ...] = Field(min_length=1)


class Kernels(StrictModel):
    """All fitted sections of one device.

    Attributes:
        gemm: by family of weights (``bf16``, ``fp8``, ...). Grid axes m, n, k.
        decode_attention: by dtype of the cache. Grid axes parallel (sequences x KV heads), context, group (query heads
            a KV head), head_dim; a second grid sees batch and kv_heads apart.
        prefill_attention: by dtype of the cache. Grid axes parallel (sequences x query heads), new, group, head_dim.
        mla_decode: attention in the latent space (multi-head latent attention), by dtype. Grid axes batch, context,
            heads.
        mla_prefill: attention over expanded keys and values, by dtype. Grid axes parallel, new.
        experts: grouped products of a mixture of experts, by family. Grid axes rows (an expert), experts, matrix
            (hidden x width); ranks (that share the experts), rows; anchors at the measured shapes.
        mixed_query_rows: how many query rows the attention kernel of a step with prefill computes for each decoding
            sequence and head; None where such steps run decode attention as in a step without prefill.
        elementwise: norms, activations, rotary, cache writes, quantisation. Grid axis bytes.
        collectives: by kind (``all_reduce``, ``all_gather``, ``reduce_scatter``, ``all_to_all``), one for each rank
            count.
    """

    gemm: dict[str, RooflineFit] = Field(default_factory=dict)
    decode_attention: dict[str, MemoryBoundFit] = Field(default_factory=dict)
    prefill_attention: dict[str, RooflineFit] = Field(default_factory=dict)
    mla_decode: dict[str, RooflineFit] = Field(default_factory=dict)
    mla_prefill: dict[str, RooflineFit] = Field(default_factory=dict)
    experts: dict[str, RooflineFit] = Field(default_factory=dict)
    elementwise: MemoryBoundFit | None = None
    mixed_query_rows: Figure | None = None
    collectives: dict[str, tuple[CollectiveFit, ...]] = Field(default_factory=dict)
