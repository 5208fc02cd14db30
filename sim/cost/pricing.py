"""Operators to tables of seconds: what of a step depends on one count alone."""

from __future__ import annotations

from collections.abc import Callable

from hardware_profiles.assume import collective_fit, elementwise_fit, experts_fit, gemm_fit
from hardware_profiles.profile import HardwareProfile
from sim.cost import kernels, laws
from sim.cost.operators import Collective, Elementwise, Experts, Gemm, Operator
from sim.cost.routing import ExpertRouting
from sim.cost.table import Table, count_nodes

LARGEST_COUNT = 1 << 18
NODES = count_nodes(LARGEST_COUNT)


def price(operator: Operator, hardware: HardwareProfile, gpus_per_node: int, routing: ExpertRouting | None) -> Table:
    """Seconds of all ``operator.count`` calls against the operator's count of the step."""
    one = _seconds(operator, hardware, gpus_per_node, routing)
    return Table.of(lambda count: operator.count * one(count), NODES)


def _seconds(
    operator: Operator, hardware: HardwareProfile, gpus_per_node: int, routing: ExpertRouting | None
) -> Callable[[float], float]:
    if isinstance(operator, Gemm):
        family = laws.GEMM_FAMILIES[operator.family]
        fit = gemm_fit(hardware, operator.family, family.dtype)
        return kernels.gemm(fit, hardware, family, operator.n, operator.k, operator.bits, operator.batch)
    if isinstance(operator, Elementwise):
        return kernels.elementwise(elementwise_fit(hardware), operator.bytes_per_token, operator.kernels)
    if isinstance(operator, Collective):
        link = collective_fit(hardware, operator.kind, operator.ranks, gpus_per_node)
        return kernels.collective(link, operator.bytes_per_token)
    return _experts(operator, hardware, routing or ExpertRouting.balanced(operator.total_experts))


def _experts(op: Experts, hardware: HardwareProfile, routing: ExpertRouting) -> Callable[[float], float]:
    """Grouped products of the experts that are hit, on the rank with the most rows."""
    family = laws.GEMM_FAMILIES[op.family]
    fit = experts_fit(hardware, op.family, family.dtype)
    ranks = round(op.total_experts / op.experts)
    correction = kernels.Correction(fit, {"experts": op.experts, "matrix": op.hidden * op.width})
    peak, bandwidth = hardware.peak_flops(family.dtype), hardware.memory_bandwidth_bytes_per_s

    def seconds(count: float) -> float:
        tokens = count * op.token_share
        active = max(1.0, routing.active(tokens, op.top_k) / ranks)
        rows = max(1.0, routing.busiest_rank(tokens * op.top_k, ranks))
        flops, moved = laws.experts_work(rows, active, op.hidden, op.width, op.projections, op.bits, family.input_bytes)
        fitted: float = laws.roofline(fit, flops, moved) * correction(rows=rows / op.experts)
        weights = active * op.projections * op.hidden * op.width * op.bits / 8.0
        return max(fitted, float(flops / peak), weights / bandwidth)

    return seconds
