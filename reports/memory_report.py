"""A memory budget as a document: what `servecast memory --json` prints."""

from __future__ import annotations

from typing import Any, Final

from reports.memory_cases import Asked, Case
from reports.memory_lengths import request_lengths
from sim.models.budget import MemoryBudget
from sim.models.parameters import active_params, total_params
from sim.models.waste import expected_waste

SCHEMA_VERSION: Final = 1


def asked_document(asked: Asked) -> dict[str, Any]:
    """One budget as it is, several under ``variants``. Bytes, tokens; null where something does not apply."""
    cases = [case_document(case, asked.lengths) for case in asked.cases]
    head: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "name": asked.name}
    return head | cases[0] if len(cases) == 1 else head | {"variants": cases}


def case_document(case: Case, lengths: tuple[int, ...]) -> dict[str, Any]:
    """Everything about one case."""
    scenario, budget = case.scenario, case.budget
    head = {
        "label": case.label,
        "model": scenario.model,
        "hardware": case.hardware.name,
        "gpus_per_replica": scenario.layout.gpus_per_replica,
        "layout": scenario.layout.model_dump(mode="json"),
        "fits": budget is not None,
    }
    if budget is None:
        refusal = case.refusal
        return head | {"problem": refusal.problem if refusal else None, "remedy": refusal.remedy if refusal else None}
    return head | {
        "memory_rules": budget.rules.name,
        "binding_rank": budget.binding_rank,
        "parameters": {"total": total_params(budget.arch), "active": active_params(budget.arch)},
        "memory": _memory(budget),
        "kv": _kv(budget),
        "concurrency": [concurrency_row(budget, length) for length in lengths if length <= budget.max_model_len],
        "waste": waste_row(case),
        "swap": swap_row(case),
        "notes": list(budget.arch.notes),
    }


def _memory(budget: MemoryBudget) -> dict[str, Any]:
    charges = budget.charges
    return {
        "total_bytes": budget.total_bytes,
        "usable_bytes": budget.usable_bytes,
        "weights_bytes": budget.weights_bytes,
        "activation_bytes": budget.activation_bytes,
        "overhead_bytes": budget.overhead_bytes,
        "kv_bytes": budget.kv_bytes,
        "weights": dict(sorted(budget.weights.items())),
        "overhead": {
            "cuda_graphs_bytes": charges.graph_bytes,
            "context_bytes": charges.context_bytes,
            "communicator_bytes": charges.communicator_bytes,
            "runtime_bytes": charges.runtime_bytes,
            "kv_residual_bytes": charges.residual_bytes,
        },
    }


def _kv(budget: MemoryBudget) -> dict[str, Any]:
    return {
        "num_gpu_blocks": budget.num_gpu_blocks,
        "pool_blocks": budget.pool_blocks,
        "block_size": budget.block_size,
        "block_bytes": budget.pool.block_bytes,
        "capacity_tokens": budget.capacity_tokens,
        "capacity_tokens_all_layers": budget.capacity_tokens_all_layers,
        "bytes_per_token": budget.kv_bytes_per_token,
        "bytes_per_token_per_gpu": budget.kv_bytes_per_token_per_rank,
        "by_layer_kind": [
            {
                "kind": cache.kind,
                "layers": cache.layers,
                "bytes_per_token_per_layer": cache.bytes_per_token,
                "bytes_per_sequence_per_layer": cache.bytes_per_sequence,
                "window": cache.window,
            }
            for cache in budget.caches
        ],
        "groups": [
            {"kind": group.kind, "layers": group.layers, "block_tokens": group.block_tokens, "window": group.window}
            for group in budget.pool.groups
        ],
    }


def concurrency_row(budget: MemoryBudget, length: int) -> dict[str, Any]:
    """Requests of ``length`` tokens at once: what memory holds, what the engine runs, and which of the two binds."""
    ranks = budget.layout.data_parallel_size
    in_memory = budget.pool_blocks // budget.pool.blocks(length, 1) * ranks
    prefilling = budget.pool_blocks // budget.pool.blocks(length, budget.max_num_batched_tokens) * ranks
    most = budget.max_num_seqs * ranks
    return {
        "tokens": length,
        "in_memory": in_memory,
        "in_memory_while_prefilling": prefilling,
        "requests": budget.users(length),
        "limited_by": "max_num_seqs" if in_memory > most else "kv_memory",
    }


def swap_row(case: Case) -> dict[str, Any] | None:
    """Room for swapped caches and what copying one is worth, see `sim.tier_use.swap_outlook`."""
    if case.scenario.engine.preemption == "recompute":
        return None
    from sim.tier_use import swap_outlook

    return swap_outlook(case.scenario.resolved())


def waste_row(case: Case) -> dict[str, Any] | None:
    """What paging and what contiguous reservation waste on the scenario's lengths; None where it has none."""
    budget = case.budget
    lengths = request_lengths(case.scenario.workload) if case.has_workload else []
    if budget is None or not lengths:
        return None
    waste = expected_waste(lengths, budget.block_size, budget.max_model_len)
    return {
        "held_tokens_per_request": round(waste.held_tokens, 3),
        "paged_fraction": round(waste.paged_fraction, 6),
        "contiguous_fraction": round(waste.contiguous_fraction, 6),
    }
