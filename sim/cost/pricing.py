"""Operators to tables of seconds: what of a step depends on one count alone."""

from __future__ import annotations

import math
from collections.abc import Callable

from hardware_profiles.assume import elementwise_fit, experts_fit, gemm_fit
from hardware_profiles.profile import HardwareProfile
from sim.cost import collectives, kernels, laws
from sim.cost.experts import sent_experts
from sim.cost.kinds import Collective, Driver, Elementwise, Exchange, Experts, Gemm, Operator, SortedSampling
from sim.cost.routing import ExpertRouting
from sim.cost.table import Table, count_nodes

LARGEST_COUNT = 1 << 18
# Exponent of the experts' popularity: with it the batches of 7 to 33 of Mixtral-8x7B and Llama-4-Scout on H100 (vLLM
# 0.15) hit as many experts as their step times tell; routers are trained to balance, but never do (docs/cost-model.md).
USUAL_SKEW = 0.7
NODES = count_nodes(LARGEST_COUNT)
DRIVERS: tuple[Driver, ...] = ("tokens", "routed", "decode_seqs", "prefill_context", "sampled")

# Sorting a row of logits: one thread block sorts it, in passes over keys and indices; then masks, softmax, scatter.
# Both figures from the step times of vLLM 0.15 on H100 with and without truncated sampling (docs/cost-model.md).
_SORT_S_PER_ELEMENT = 4.0e-9
_SORT_BYTES_PER_ELEMENT = 120.0
_SORT_KERNELS = 15


def price(operator: Operator, hardware: HardwareProfile, gpus_per_node: int, routing: ExpertRouting | None) -> Table:
    """Seconds of all ``operator.count`` calls against the operator's count of the step."""
    one = _seconds(operator, hardware, gpus_per_node, routing)
    return Table.of(lambda count: operator.count * one(count), NODES)


def priced(
    operators: list[Operator], hardware: HardwareProfile, gpus_per_node: int, routing: ExpertRouting | None
) -> dict[Driver, dict[str, Table]]:
    """Tables by what they scale with and by name; operators of one name are added up."""
    tables: dict[Driver, dict[str, Table]] = {driver: {} for driver in DRIVERS}
    for operator in operators:
        named = tables[operator.driver]
        table = price(operator, hardware, gpus_per_node, routing)
        named[operator.name] = named[operator.name] + table if operator.name in named else table
    return tables


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
        return collectives.collective(operator, hardware, gpus_per_node)
    if isinstance(operator, Exchange):
        return collectives.exchange(operator, hardware, gpus_per_node, routing)
    if isinstance(operator, SortedSampling):
        return _sorting(operator.vocab, hardware)
    routing = routing or ExpertRouting.power_law(operator.total_experts, USUAL_SKEW)
    if operator.backend != "allgather_reducescatter":
        return sent_experts(operator, hardware, routing)
    return _experts(operator, hardware, routing)


def _sorting(vocab: int, hardware: HardwareProfile) -> Callable[[float], float]:
    """A row keeps one multiprocessor busy, so that rows up to their number take the time of one."""
    cores = hardware.compute.multiprocessors.value if hardware.compute.multiprocessors else 100.0
    passes = kernels.elementwise(elementwise_fit(hardware), vocab * _SORT_BYTES_PER_ELEMENT, _SORT_KERNELS)

    def seconds(rows: float) -> float:
        return vocab * _SORT_S_PER_ELEMENT * math.ceil(rows / cores) + passes(rows)

    return seconds


def _experts(op: Experts, hardware: HardwareProfile, routing: ExpertRouting) -> Callable[[float], float]:
    """Grouped products of the experts that are hit, on the rank with the most rows."""
    family = laws.GEMM_FAMILIES[op.family]
    fit = experts_fit(hardware, op.family, family.dtype)
    ranks, copies = op.ranks, op.experts * op.ranks / op.total_experts
    shape = {
        "experts": op.experts,
        "hidden": op.hidden,
        "width": op.width,
        "matrix": op.hidden * op.width,
        "ranks": ranks,
    }
    kernel = kernels.Bounded(fit, hardware, family.dtype, shape)
    expert_bytes = op.projections * op.hidden * op.width * op.bits / 8.0

    def seconds(count: float) -> float:
        tokens = count * op.token_share
        active = max(1.0, routing.active(tokens, op.top_k) / ranks * copies)
        rows = max(1.0, routing.busiest_rank(tokens * op.top_k, ranks))
        flops, moved = laws.experts_work(rows, active, op.hidden, op.width, op.projections, op.bits, family.input_bytes)
        return kernel(flops, moved, active * expert_bytes, rows=rows / op.experts)

    return seconds
