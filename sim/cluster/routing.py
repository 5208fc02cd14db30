"""The router that a scenario names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sim.cluster.affinity import CacheAware, PrefixAffinity
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded, PowerOfTwo, Random, RoundRobin, Router, SessionSticky
from sim.scenario import ClusterSpec

ROUTERS: Final[Mapping[str, Callable[[ClusterSpec, int, Reports], Router]]] = {
    "round_robin": lambda spec, seed, reports: RoundRobin(reports),
    "random": lambda spec, seed, reports: Random(seed, reports),
    "least_loaded": lambda spec, seed, reports: LeastLoaded(reports),
    "power_of_two": lambda spec, seed, reports: PowerOfTwo(seed, reports),
    "prefix_affinity": lambda spec, seed, reports: PrefixAffinity(reports),
    "cache_aware": lambda spec, seed, reports: CacheAware(spec.load_cap, spec.load_slack, reports),
    "session_sticky": lambda spec, seed, reports: SessionSticky(reports),
}


def router_of(spec: ClusterSpec, seed: int) -> Router:
    """The policy of ``spec``, its random numbers drawn from ``seed``."""
    reports = Reports(spec.router_load, stale=spec.router_staleness_s > 0)
    return ROUTERS[spec.router](spec, seed, reports)
