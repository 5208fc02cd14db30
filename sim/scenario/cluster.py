"""The cluster section: how requests reach the replicas."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from sim.layout import Layout
from sim.scenario.engine import Section
from sim.scenario.knobs import Place

RouterName = Literal[
    "round_robin",
    "random",
    "least_loaded",
    "power_of_two",
    "prefix_affinity",
    "cache_aware",
    "session_sticky",
]

LONGEST_S: Final = 1e9  # of any time in a scenario, as of those in a workload


class Pool(Section):
    """Replicas that do one phase of a request.

    Attributes:
        replicas: how many engines.
        layout: of each of them.
        hardware: the scenario's where None.
        engine: engine keys that differ from the scenario's.
        router: the cluster's where None.
    """

    replicas: int = Field(ge=1, le=100_000)
    layout: Layout
    hardware: Place | None = None
    engine: dict[str, Any] = Field(default_factory=dict)
    router: RouterName | None = None


class Disaggregation(Section):
    """Prefill and decode on replicas of their own, with the KV cache sent between them.

    Attributes:
        transfer_gb_per_s: of each replica's link to the network, one direction; transfers at one time share it.
        transfer_latency_s: before the first byte of a transfer.
        receive_us_per_token: time of the decode engine's host for each prompt token of a request that comes in (page
            indices, descriptors, bookkeeping); steps wait for what does not hide behind the one that runs.
        overlap: ``none``: the decode side takes blocks once the prefill has ended, then the cache is sent (vLLM's
            connectors). ``layerwise``: it takes them first, and layers are sent as they are computed.
    """

    prefill: Pool
    decode: Pool
    transfer_gb_per_s: float = Field(ge=1e-6, le=1e9)
    transfer_latency_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
    receive_us_per_token: float = Field(default=0.0, ge=0, le=1e9)
    overlap: Literal["none", "layerwise"] = "none"


class FleetEvent(Section):
    """What happens to a replica at a time.

    Attributes:
        at_s: seconds from the start of the run.
        action: ``start`` (one that was not there, or was stopped) and ``recover`` (one that failed) begin to load the
            model; ``stop`` takes no more requests and ends with its last one; ``fail`` loses everything at once.
        replica: its number in its pool, from 0. Those below ``replicas`` are there from the beginning.
        pool: prefill or decode where they are split.
        load_time_s: of a start or recovery; the cluster's where None.
    """

    at_s: float = Field(ge=0, le=LONGEST_S)
    action: Literal["start", "stop", "fail", "recover"]
    replica: int = Field(ge=0, lt=100_000)
    pool: Literal["prefill", "decode"] | None = None
    load_time_s: float | None = Field(None, ge=0, le=LONGEST_S)


class ClusterSpec(Section):
    """Routing policy, whether the phases are split, and what happens to replicas.

    Attributes:
        router: policy by name.
        router_load: what a load is: requests, their tokens, or KV blocks, running and waiting together.
        router_staleness_s: replicas report their loads this often, and the router knows the last report; 0: the truth.
        load_cap: of cache_aware: a replica loaded more than this many times the mean is passed over ...
        load_slack: ... if it also exceeds the smallest load by more than this.
        events: replicas that start, stop, fail and recover.
        load_time_s: from a start or recovery to the first request.
        max_retries: how often a request whose replica failed is sent again; beyond that it is lost.
        retry_delay_s: from a failure to the next try.
    """

    router: RouterName = "round_robin"
    router_load: Literal["requests", "tokens", "kv"] = "requests"
    router_staleness_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
    load_cap: float = Field(default=1.5, ge=1)
    load_slack: float = Field(default=16.0, ge=0)
    disaggregation: Disaggregation | None = None
    events: list[FleetEvent] = Field(default_factory=list, max_length=100_000)
    load_time_s: float = Field(default=60.0, ge=0, le=LONGEST_S)
    max_retries: int = Field(default=3, ge=0)
    retry_delay_s: float = Field(default=0.0, ge=0, le=LONGEST_S)
