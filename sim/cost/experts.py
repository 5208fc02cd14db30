"""Experts on ranks: where a layer's experts lie, and what the most loaded rank has to do."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hardware_profiles.profile import HardwareProfile
from sim.cost import laws
from sim.cost.collectives import LOW_LATENCY_TOKENS, distinct
from sim.cost.kinds import Experts
from sim.cost.routing import ExpertRouting, largest_of
from sim.layout import ExpertLoad, Layout
from sim.models.architecture import Architecture

_ORDER_SEED: Final = 0  # which experts are popular has nothing to do with their numbers
# How far an expert's load in one batch and layer strays from what it was placed by, where nothing is said: with it the
# runs of DeepSeek-V3 under SGLang on 32 and 72 H100 come out best (docs/layouts.md).
_USUAL_DRIFT: Final = 0.3

# Grouped products on tokens sent to their experts (DeepGEMM behind DeepEP), as shares of the datasheet: fitted to
# fp8 kernel timings on H200, hidden 7168, width 2048, 256 experts on 2 to 256 ranks, even load (aiconfigurator-core
# 0.12.0, Apache-2.0, NVIDIA: h200_sxm/moe/sglang/0.5.10, wideep_generation_moe and wideep_context_moe; median error
# 2.5 % of the masked form, 10 % of the sorted one on up to 64 ranks).
_PEAK: Final = 0.63
_BANDWIDTH: Final = 0.79
_SHARPNESS: Final = 4.0
_FIXED_S: Final = 20e-6
_SORTED_FIXED_S: Final = 60e-6  # assumed; the timings hold launches of eager kernels as well
# An element of a token that arrives: sorting its rows, adding up its results. The timings pass over the tokens of all
# ranks, so that this is too much where there are many ranks (docs/layouts.md).
_SORTED_BYTES: Final = 13.4


@dataclass(frozen=True, slots=True)
class PlacedRouting(ExpertRouting):
    """Routing whose experts lie on given ranks.

    Attributes:
        ranks: how many.
        busiest_share: share of all (token, expert) pairs that the most loaded rank gets on average.
        spread: standard deviation of a rank's share from batch to batch and layer to layer.
    """

    ranks: int = 1
    busiest_share: float = 1.0
    spread: float = 0.0

    def busiest_rank(self, pairs: float, ranks: int) -> float:
        """(token, expert) pairs of the most loaded rank: its share, and the largest excess by drift and luck."""
        if ranks != self.ranks:
            return ExpertRouting.busiest_rank(self, pairs, ranks)
        mean = self.busiest_share * pairs
        return mean + largest_of(ranks) * math.sqrt(mean + (self.spread * pairs) ** 2)

    def busiest_load(self) -> float:
        """Load of the most loaded rank over the mean in batches so large that luck evens out."""
        return self.ranks * (self.busiest_share + largest_of(self.ranks) * self.spread)


def routing_of(arch: Architecture, layout: Layout, usual_skew: float) -> ExpertRouting | None:
    """How tokens meet experts under ``layout``; None where the cost model's own assumption holds.

    Args:
        arch: the model; layers with experts are taken to be alike.
        layout: load, placement and copies.
        usual_skew: exponent of the popularity where the layout says nothing.
    """
    experts = max((run.mlp.num_experts for run in arch.layers if run.mlp is not None), default=0)
    if not experts or (layout.expert_load is None and not layout.enable_eplb):
        return None
    shares = _shares(layout.expert_load, experts, usual_skew)
    ranks = layout.tensor_parallel_size * layout.data_parallel_size if layout.enable_expert_parallel else 1
    held = placed(shares, ranks, layout.num_redundant_experts) if layout.enable_eplb else in_order(shares, ranks)
    spread = _drift(layout.expert_load) * math.sqrt(sum(share**2 for rank in held for share in rank) / ranks)
    return PlacedRouting(tuple(sorted(shares, reverse=True)), ranks, max(map(sum, held)), spread)


def sent_experts(op: Experts, hardware: HardwareProfile, routing: ExpertRouting) -> Callable[[float], float]:
    """Seconds against tokens of a data-parallel rank of the routed experts, on the rank with the most rows.

    Small batches come by the low-latency kernels as one padded block an expert; others are sorted by expert first.
    """
    family = laws.GEMM_FAMILIES[op.family]
    peak = hardware.peak_flops(family.dtype) * _PEAK * hardware.sustained_fraction
    bandwidth = hardware.memory_bandwidth_bytes_per_s * _BANDWIDTH * hardware.sustained_memory_fraction
    copies = op.experts * op.ranks / op.total_experts
    blocks = {"deepep_low_latency": math.inf, "deepep_auto": LOW_LATENCY_TOKENS}.get(op.backend, 0)

    def seconds(count: float) -> float:
        tokens = count * op.token_share
        active = max(1.0, routing.active(tokens, op.top_k) / op.ranks * copies)
        rows = max(1.0, routing.busiest_rank(tokens * op.top_k, op.ranks))
        flops, moved = laws.experts_work(rows, active, op.hidden, op.width, op.projections, op.bits, family.input_bytes)
        kernel: float = ((flops / peak) ** _SHARPNESS + (moved / bandwidth) ** _SHARPNESS) ** (1 / _SHARPNESS)
        if count <= blocks:
            return kernel + _FIXED_S
        arrived = rows / op.top_k * distinct(op.ranks, op.top_k)  # a token comes once, whatever it wants here
        return kernel + _SORTED_FIXED_S + arrived * op.hidden * _SORTED_BYTES / bandwidth

    return seconds


def _shares(load: ExpertLoad | None, experts: int, usual_skew: float) -> list[float]:
    """Share of each expert, in the order of their numbers."""
    if load is not None and load.distribution == "balanced":
        return [1.0 / experts] * experts
    if load is not None and load.distribution == "histogram" and load.counts is not None:
        total = sum(load.counts)
        return [count / total for count in load.counts]
    shares = list(ExpertRouting.power_law(experts, usual_skew if load is None else load.exponent).shares)
    random.Random(_ORDER_SEED).shuffle(shares)
    return shares


def _drift(load: ExpertLoad | None) -> float:
    if load is not None and load.drift is not None:
        return load.drift
    return 0.0 if load is not None and load.distribution == "balanced" else _USUAL_DRIFT


def in_order(shares: Sequence[float], ranks: int) -> list[list[float]]:
    """Loads on each rank with experts dealt by number in equal runs; the first ranks take those that are left over."""
    size, rest = divmod(len(shares), ranks)
    held, begin = [], 0
    for rank in range(ranks):
        end = begin + size + (rank < rest)
        held.append(list(shares[begin:end]))
        begin = end
    return held


def placed(shares: Sequence[float], ranks: int, redundant: int) -> list[list[float]]:
    """Loads on each rank with ``redundant`` copies of the most loaded experts, packed by load into equal slots.

    The two steps of DeepSeek's load balancer without its node groups (github.com/deepseek-ai/EPLB): an extra copy
    always goes to the expert whose copies are most loaded; copies are packed heaviest first onto the least loaded rank
    with a free slot.
    """
    copies = [1] * len(shares)
    heap = [(-share, expert) for expert, share in enumerate(shares)]
    heapq.heapify(heap)
    for _ in range(redundant):
        _, expert = heap[0]
        copies[expert] += 1
        heapq.heapreplace(heap, (-shares[expert] / copies[expert], expert))
    pieces = sorted((shares[e] / copies[e] for e in range(len(shares)) for _ in range(copies[e])), reverse=True)
    slots = math.ceil(len(pieces) / ranks)
    open_ranks = [(0.0, rank, 0) for rank in range(ranks)]
    held: list[list[float]] = [[] for _ in range(ranks)]
    for piece in pieces:
        load, rank, used = heapq.heappop(open_ranks)
        held[rank].append(piece)
        if used + 1 < slots:
            heapq.heappush(open_ranks, (load + piece, rank, used + 1))
    return held
