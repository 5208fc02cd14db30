"""Swap and offload in words, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from reports.text import number, percent
from sim.summary_tiers import MemoryTiers

GB = 1e9


def _pays(tokens: int | None) -> str:
    if tokens is None:
        return "at no length"
    return "at any length" if tokens == 1 else f"from {tokens:,} tokens on"


def tier_lines(tiers: MemoryTiers) -> Iterator[tuple[str, str]]:
    """(name, sentence) for what went through memory beside the GPU."""
    if (swap := tiers.swap) is not None:
        moved = f"{number(swap.out_bytes / GB)} GB out, {number(swap.in_bytes / GB)} GB back"
        pays = _pays(swap.crossover_tokens)
        full = f", {swap.no_room} of them for want of room" if swap.no_room else ""
        yield (
            "preempted",
            f"{swap.swapped} swapped ({moved}), {swap.recomputed} recomputed{full}; copying is cheaper {pays}",
        )
    if tiers.prefix:
        yield "prefix found", "; ".join(f"{percent(tier.hit_rate)} in {tier.name}" for tier in tiers.prefix)


def tier_cards(tiers: MemoryTiers) -> Iterator[tuple[str, str, str]]:
    """(title, figure, detail) of the same, for the report."""
    if (swap := tiers.swap) is not None:
        pays = _pays(swap.crossover_tokens)
        yield "Swapped, requests", f"{swap.swapped}", f"{swap.recomputed} recomputed; copying is cheaper {pays}"
    if tiers.prefix:
        beyond = [tier for tier in tiers.prefix[1:] if tier.hit_rate is not None]
        detail = "; ".join(f"{percent(tier.hit_rate)} in {tier.name}" for tier in tiers.prefix)
        yield "Prefix in offload tiers", percent(sum(tier.hit_rate or 0.0 for tier in beyond)), detail
