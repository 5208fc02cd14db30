"""Layouts that say something impossible about experts or nodes: refused, with the nearest that would do."""

from __future__ import annotations

from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture


def check_nodes(layout: Layout) -> None:
    """Refuse a TP group that fills a node and spills a part over the next.

    Raises:
        InputError: with the nearest sizes that fill whole nodes.
    """
    tp, node = layout.tensor_parallel_size, layout.gpus_per_node
    if tp > node and tp % node:
        below, above = tp // node * node, (tp // node + 1) * node
        raise InputError(
            "layout.tensor_parallel_size",
            f"{tp} is more than a node's {node} GPUs and does not fill whole nodes",
            f"use {below} or {above}, or at most {node}",
        )


def check_experts(arch: Architecture, layout: Layout) -> None:
    """Refuse what a layout says about experts that the model or its ranks do not have.

    Raises:
        InputError: naming the key and what would do.
    """
    experts = max((run.mlp.num_experts for run in arch.layers if run.mlp is not None), default=0)
    if not experts:
        _without_experts(arch, layout)
        return
    load = layout.expert_load
    if load is not None and load.distribution == "histogram":
        _check_counts(arch, experts, load.counts)
    elif load is not None and load.counts is not None:
        what = f"counts are of a histogram, not of '{load.distribution}'"
        raise InputError("layout.expert_load.counts", what, "leave them out, or set distribution to histogram")
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    if layout.num_redundant_experts and not layout.enable_eplb:
        raise InputError("layout.num_redundant_experts", "copies without placement by load", "set enable_eplb to true")
    if layout.enable_eplb and not layout.enable_expert_parallel:
        raise InputError("layout.enable_eplb", "experts are not spread out", "set enable_expert_parallel to true")
    if layout.enable_eplb and (experts + layout.num_redundant_experts) % ranks:
        total = experts + layout.num_redundant_experts
        enough = -(-experts // ranks) * ranks - experts
        nearest = max(enough, round(total / ranks) * ranks - experts)
        raise InputError(
            "layout.num_redundant_experts",
            f"{experts} experts and {layout.num_redundant_experts} copies do not divide by {ranks} ranks",
            f"use {nearest}",
        )
    _check_exchange(layout)


def _check_exchange(layout: Layout) -> None:
    apart = layout.data_parallel_size > 1 and layout.enable_expert_parallel
    for key, asked in (
        ("all2all_backend", layout.all2all_backend != "allgather_reducescatter"),
        ("enable_dbo", layout.enable_dbo),
    ):
        if asked and not apart:
            raise InputError(
                f"layout.{key}",
                "tokens are exchanged only between data-parallel ranks that share their experts",
                "set data_parallel_size above 1 and enable_expert_parallel to true, or leave it out",
            )


def _without_experts(arch: Architecture, layout: Layout) -> None:
    for key, asked in (
        ("expert_load", layout.expert_load is not None),
        ("enable_eplb", layout.enable_eplb),
        ("num_redundant_experts", layout.num_redundant_experts > 0),
        ("all2all_backend", layout.all2all_backend != "allgather_reducescatter"),
        ("enable_dbo", layout.enable_dbo),
        ("enable_expert_parallel", layout.enable_expert_parallel),
    ):
        if asked:
            raise InputError(f"layout.{key}", f"{arch.name} has no experts", "leave it out")


def _check_counts(arch: Architecture, experts: int, counts: list[float] | None) -> None:
    if counts is None or len(counts) != experts or min(counts) < 0 or sum(counts) <= 0:
        given = "none" if counts is None else f"{len(counts)}"
        raise InputError(
            "layout.expert_load.counts",
            f"{given} given for the {experts} experts of {arch.name}",
            f"give {experts} counts of at least 0, not all of them 0",
        )
