"""Swap and offload in words, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from reports.text import number, percent
from sim.summary_tiers import MemoryTiers

GB = 1e9


def tier_lines(tiers: MemoryTiers) -> Iterator[tuple[str, str]]:
    """(name, sentence) for what went through memory beside the GPU."""
    if (swap := tiers.swap) is not None:
        moved = f"{number(swap.out_bytes / GB)} GB out, {number(swap.in_bytes / GB)} GB back"
        pays = "never" if swap.crossover_tokens is None else f"from {swap.crossover_tokens:,} tokens on"
        full = f", {swap.no_room} of them for want of room" if swap.no_room else ""
        yield (
            "preempted",
            f"{swap.swapped} swapped ({moved}), {swap.recomputed} recomputed{full}; copying is cheaper {pays}",
        )
    if tiers.prefix:
        yield "prefix found", "; ".join(f"{percent(tier.hit_rate)} in {tier.name}" for tier in tiers.prefix)
