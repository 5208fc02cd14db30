"""The scenario: schema, reading, overrides, hash, and what is supported."""

from __future__ import annotations

from sim.scenario.cluster import ClusterSpec, Disaggregation, FleetEvent, Pool
from sim.scenario.engine import EngineSpec, KvCacheDtype, KvOffload, Speculative, StepTime
from sim.scenario.scenario import Scenario
from sim.scenario.slo import SloSpec

__all__ = [
    "ClusterSpec",
    "Disaggregation",
    "EngineSpec",
    "FleetEvent",
    "KvCacheDtype",
    "KvOffload",
    "Pool",
    "Scenario",
    "SloSpec",
    "Speculative",
    "StepTime",
]
