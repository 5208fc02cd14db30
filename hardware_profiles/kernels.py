"""Fitted figures by operator family and dtype: the kernels section of a profile."""

from __future__ import annotations

from pydantic import Field

from hardware_profiles.figures import Fit
from sim.schema import StrictModel


class GemmFit(Fit):
    """Matrix product: ``max(flops / peak, bytes / bandwidth) + fixed``."""

    peak_flops: float = Field(gt=0)
    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)


class DecodeAttentionFit(Fit):
    """Attention of one query a sequence: ``bytes / bandwidth + fixed``, bytes by the cache read."""

    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)


class PrefillAttentionFit(Fit):
    """Causal attention of a chunk: ``flops / peak + bytes / bandwidth + fixed`` (a sum, not a maximum)."""

    peak_flops: float = Field(gt=0)
    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)


class ElementwiseFit(Fit):
    """Memory-bound pieces (norms, activations, rotary, cache writes): ``bytes / bandwidth + fixed``."""

    bandwidth_bytes_per_s: float = Field(gt=0)
    fixed_s: float = Field(ge=0)


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
    """All fitted sections. Keys are GEMM families (``bf16``, ``fp8``, ...) or KV dtypes."""

    gemm: dict[str, GemmFit] = Field(default_factory=dict)
    decode_attention: dict[str, DecodeAttentionFit] = Field(default_factory=dict)
    prefill_attention: dict[str, PrefillAttentionFit] = Field(default_factory=dict)
    elementwise: ElementwiseFit | None = None
    all_reduce: tuple[CollectiveFit, ...] = ()
