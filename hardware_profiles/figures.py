"""A number and where it comes from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.schema import StrictModel

Provenance = Literal["datasheet", "measured", "fitted", "assumed"]


class Figure(StrictModel):
    """One number with its provenance.

    ``datasheet``: the vendor's own document. ``measured``: observed, ``source`` says by what and when. ``fitted``: from
    a table that ``source`` names. ``assumed``: an estimate, ``source`` says from what.
    """

    value: float
    provenance: Provenance
    source: str = Field(min_length=3)


class Residual(StrictModel):
    """Relative error ``|predicted / measured - 1|`` of a fit, as fractions, on rows it was not fitted to."""

    median: float = Field(ge=0)
    p90: float = Field(ge=0)
    worst: float = Field(ge=0)
    rows: int = Field(ge=1)
    held_out: bool


class Fit(StrictModel):
    """Base of every fitted section: what it was fitted to, and how well."""

    provenance: Provenance
    source: str = Field(min_length=3)
    residual: Residual | None = None
