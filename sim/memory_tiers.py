"""From the scenario's words about memory beside the GPU to blocks and ticks."""

from __future__ import annotations

from hardware_profiles import HardwareProfile
from sim.engine.tiers.plan import SwapPlan, TierPlan
from sim.errors import InputError
from sim.scenario import EngineSpec

GIB = 1 << 30


def host_link_bytes_per_s(engine: EngineSpec, hardware: HardwareProfile) -> float:
    """Speed of each GPU's link to host memory, one direction."""
    if engine.host_link_gb_per_s is not None:
        return engine.host_link_gb_per_s * 1e9
    return hardware.links.host_bytes_per_s.value


def swap_plan(engine: EngineSpec, hardware: HardwareProfile, block_bytes: float, tick_s: float) -> SwapPlan | None:
    """Host memory for preempted requests; None where they are recomputed.

    Args:
        engine: the scenario's section.
        hardware: the device, whose host link counts where the scenario gives none.
        block_bytes: of one block on one GPU.
        tick_s: of the engine's clock.
    """
    if engine.preemption == "recompute":
        return None
    return SwapPlan(
        engine.preemption,
        _blocks("engine.swap_space_gib", "the swap space", engine.swap_space_gib, block_bytes),
        block_bytes / host_link_bytes_per_s(engine, hardware) / tick_s,
        engine.async_scheduling,
    )


def tier_plans(
    engine: EngineSpec, block_bytes: float, block_bytes_per_gpu: float, tick_s: float
) -> tuple[TierPlan, ...]:
    """Tiers for evicted prefix blocks, nearest first.

    Args:
        engine: the scenario's section.
        block_bytes: of one block over all GPUs of the engine.
        block_bytes_per_gpu: of one block on one GPU.
        tick_s: of the engine's clock.
    """
    return tuple(
        TierPlan(
            tier.name,
            _blocks("engine.kv_offload", f"tier '{tier.name}'", tier.memory_gib, block_bytes),
            block_bytes_per_gpu / (tier.bandwidth_gb_per_s * 1e9) / tick_s,
        )
        for tier in engine.kv_offload or ()
    )


def _blocks(field: str, what: str, memory_gib: float, block_bytes: float) -> int:
    """Blocks that fit. Raises `InputError` where none does."""
    if not block_bytes:
        raise InputError(field, "the model caches nothing by token", "leave it out")
    blocks = int(memory_gib * GIB // block_bytes)
    if blocks < 1:
        raise InputError(
            field,
            f"{what} of {memory_gib:g} GiB holds no block of {block_bytes / GIB:.3g} GiB",
            f"give at least {block_bytes / GIB:.3g} GiB",
        )
    return blocks
