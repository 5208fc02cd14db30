"""Collectives within and across nodes, and the exchange of tokens between ranks that hold different experts.

A group that fits a node takes the fit measured there. Across nodes a collective is hierarchical: within each node, then
between counterparts of different nodes, each over its own network port, then within the node again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hardware_profiles.assume import collective_fit
from hardware_profiles.profile import HardwareProfile
from sim.cost import kernels
from sim.cost.kinds import Collective, Exchange
from sim.cost.routing import ExpertRouting
from sim.layout import All2AllBackend

Seconds = Callable[[float], float]

# Assumed: latency of one message between nodes, and the share of the port that a collective reaches.
_NETWORK_ALPHA_S: Final = 12e-6
_NETWORK: Final = 0.85

# DeepEP 1.x (github.com/deepseek-ai/DeepEP). Latencies and shares of the datasheet's link fitted by hand to kernel
# timings on H200 with one 400 Gb/s port a GPU, 1 to 8 nodes of 8, hidden 7168, top 8 (aiconfigurator-core 0.12.0,
# Apache-2.0, NVIDIA: h200_sxm/comm/sglang/0.5.6.post2), and held against DeepEP's own figures (docs/layouts.md).
_LOW_LATENCY_ALPHA_S: Final = {"node": 12e-6, "nodes": 25e-6}
_NORMAL_ALPHA_S: Final = {"dispatch": 35e-6, "combine": 55e-6}
_LOW_LATENCY_LINK: Final = {"dispatch": 0.60, "combine": 0.52}
_NORMAL_LINK: Final = 0.67
_PORT: Final = 0.94
# What the normal kernels are given of a GPU where another half-batch computes (vllm/envs.py, VLLM_DBO_COMM_SMS; the
# default of DeepEP and so of SGLang), and the multiprocessors of a GPU that does not say.
_EXCHANGE_MULTIPROCESSORS: Final = 20
_MULTIPROCESSORS: Final = 100
LOW_LATENCY_TOKENS: Final = 256  # of a rank: the size its buffers are made for


def collective(op: Collective, hardware: HardwareProfile, gpus_per_node: int) -> Seconds:
    """Seconds against tokens of one call of ``op``."""
    if op.ranks <= gpus_per_node:
        return kernels.collective(collective_fit(hardware, op.kind, op.ranks, gpus_per_node), op.bytes_per_token)
    steps = _across_nodes(op.kind, op.ranks, gpus_per_node, hardware, op.bytes_per_token)

    def seconds(tokens: float) -> float:
        return sum(step(tokens) for step in steps)

    return seconds


def _across_nodes(
    kind: str, ranks: int, gpus_per_node: int, hardware: HardwareProfile, bytes_per_token: float
) -> list[Seconds]:
    nodes = math.ceil(ranks / gpus_per_node)
    inside = ["reduce_scatter", "all_gather"] if kind == "all_reduce" else [kind]
    passes = 2 if kind == "all_reduce" else 1
    steps = [
        kernels.collective(collective_fit(hardware, part, gpus_per_node, gpus_per_node), bytes_per_token)
        for part in (inside if gpus_per_node > 1 else [])
    ]
    port = hardware.links.inter_node_bytes_per_s.value * _NETWORK
    sent = passes * (nodes - 1) / nodes * bytes_per_token / gpus_per_node
    alpha = passes * math.ceil(math.log2(nodes)) * _NETWORK_ALPHA_S
    return [*steps, lambda tokens: alpha + tokens * sent / port]


# -- tokens to experts and back


def occupied(backend: All2AllBackend, hardware: HardwareProfile) -> Callable[[int], float]:
    """Share of a GPU that is set aside for the exchange of so many tokens of a rank beside another half-batch.

    The normal kernels run on multiprocessors of their own; the low-latency ones need none while tokens travel.
    """
    cores = hardware.compute.multiprocessors.value if hardware.compute.multiprocessors else _MULTIPROCESSORS
    quiet = {"deepep_low_latency": math.inf, "deepep_auto": LOW_LATENCY_TOKENS}.get(backend, 0)
    share = min(1.0, _EXCHANGE_MULTIPROCESSORS / cores)
    return lambda tokens: 0.0 if tokens <= quiet else share


def exchange(
    op: Exchange, hardware: HardwareProfile, gpus_per_node: int, routing: ExpertRouting | None = None
) -> Seconds:
    """Seconds against tokens of a data-parallel rank of sending tokens to their experts, or results back.

    What the busiest rank receives, and sends back, decides; without ``routing`` ranks are loaded alike.
    """
    if op.backend == "allgather_reducescatter":
        return _gathered(op, hardware, gpus_per_node)
    busiest = routing.busiest_load() if routing else 1.0
    normal, low = _normal(op, hardware, gpus_per_node, busiest), _low_latency(op, hardware, gpus_per_node, busiest)
    if op.backend == "deepep_high_throughput":
        return normal
    if op.backend == "deepep_low_latency":
        return low
    return lambda tokens: low(tokens) if tokens <= LOW_LATENCY_TOKENS else normal(tokens)


def _gathered(op: Exchange, hardware: HardwareProfile, gpus_per_node: int) -> Seconds:
    """Every rank gets the tokens of all (16 bit), and results are summed back: vLLM's default."""
    whole = 2.0 * op.hidden * op.data
    if op.phase == "dispatch":
        return collective(Collective(op.name, "all_gather", op.ranks, whole, 1), hardware, gpus_per_node)
    return collective(Collective(op.name, "reduce_scatter", op.ranks, whole, 1), hardware, gpus_per_node)


def _low_latency(op: Exchange, hardware: HardwareProfile, gpus_per_node: int, busiest: float) -> Seconds:
    """Each token once for every expert it picks, straight to its rank: over the port between nodes, links within."""
    remote = max(0.0, 1.0 - gpus_per_node / op.ranks)
    size = busiest * op.top_k * op.hidden * op.element_bytes / op.tensor
    alpha = _LOW_LATENCY_ALPHA_S["nodes" if remote else "node"]
    port = remote * size / (hardware.links.inter_node_bytes_per_s.value * _PORT)
    link = (1 - remote) * size / (hardware.links.gpu_bytes_per_s.value * _LOW_LATENCY_LINK[op.phase])
    return lambda tokens: alpha + tokens * max(port, link)


def _normal(op: Exchange, hardware: HardwareProfile, gpus_per_node: int, busiest: float) -> Seconds:
    """Each token once for every node that holds one of its experts, forwarded there to every rank that does.

    What enters a node comes in at the port that has the sender's place in its own node, so that a port sees the load
    of the node; the ranks' excesses add up there as independent ones do.
    """
    nodes = max(1, round(op.ranks / gpus_per_node))
    hit_nodes = min(distinct(nodes, op.top_k), op.groups_per_token or op.top_k)
    hit_ranks = distinct(op.ranks, op.top_k) * (1 - 1 / op.ranks)
    size = op.hidden * op.element_bytes / op.tensor
    node = 1.0 + (busiest - 1.0) / math.sqrt(min(op.ranks, gpus_per_node))
    port = node * hit_nodes * (1 - 1 / nodes) * size / (hardware.links.inter_node_bytes_per_s.value * _PORT)
    link = busiest * hit_ranks * size / (hardware.links.gpu_bytes_per_s.value * _NORMAL_LINK)
    alpha = _NORMAL_ALPHA_S[op.phase]
    return lambda tokens: alpha + tokens * max(port, link)


def distinct(places: int, picks: int) -> float:
    """Expected number of different places among ``picks`` even picks."""
    return places * (1 - (1 - 1 / places) ** picks)
