"""The cluster section: how requests reach the replicas."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.layout import Layout
from sim.scenario.engine import Section


class Pool(Section):
    """Replicas that do one phase of a request."""

    replicas: int = Field(ge=1, le=100_000)
    layout: Layout


class Disaggregation(Section):
    """Prefill and decode on replicas of their own, with the KV cache sent between them."""

    prefill: Pool
    decode: Pool
    transfer_gb_per_s: float = Field(gt=0)


class ClusterSpec(Section):
    """Routing policy, and whether the phases are split."""

    router: Literal["round_robin", "least_loaded", "prefix_affinity"] = "round_robin"
    disaggregation: Disaggregation | None = None
