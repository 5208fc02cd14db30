"""From the speculative section of a scenario to its parts: what the scheduler, the memory and the cost model need."""

from __future__ import annotations

from typing import Final

from hardware_profiles import HardwareProfile
from hardware_profiles.overheads import EngineOverheads
from sim.cost.speculative import (
    NGRAM_SEQUENCE_S,
    Drafter,
    DraftPass,
    LookupDrafter,
    MedusaDrafter,
    RecurrentDrafter,
)
from sim.engine.speculative_acceptance import BetaSurvival, DrawnAcceptance, Survival, SurvivalByPosition
from sim.engine.speculative_config import Speculation
from sim.models.draft import Draft
from sim.models.kv_format import KvFormat
from sim.scenario.speculative import Speculative

# Drafters with a KV cache of their own: vLLM gives them slots for all drafts in every allocation.
_CACHING: Final = ("draft_model", "eagle", "eagle3", "mtp")
# Of those, the ones that need the hidden states of a hit's last block, which the cache does not hold.
_ON_FEATURES: Final = ("eagle", "eagle3", "mtp")
# Methods that vLLM runs with asynchronous scheduling; the others need the sampled tokens on the host.
ASYNCHRONOUS: Final = _CACHING


def survival_of(spec: Speculative) -> Survival:
    """The acceptance model that the section describes."""
    rate, depth = spec.acceptance_rate, spec.depth
    if spec.accepted_tokens is not None:
        return SurvivalByPosition.measured(spec.accepted_tokens, depth)
    if isinstance(rate, list):
        return SurvivalByPosition.by_position(rate)
    assert rate is not None
    if spec.acceptance_concentration is not None:
        return BetaSurvival(rate, spec.acceptance_concentration, depth)
    return SurvivalByPosition.constant(rate, depth)


def speculation_of(spec: Speculative | None, seed: int) -> Speculation | None:
    """What the scheduler needs to know; None without drafts."""
    if spec is None:
        return None
    return Speculation(
        num_speculative_tokens=spec.num_speculative_tokens,
        acceptance=DrawnAcceptance(seed, survival_of(spec)),
        lookahead_tokens=spec.num_speculative_tokens if spec.method in _CACHING else 0,
        drops_last_hit=spec.method in _ON_FEATURES,
        disable_by_batch_size=spec.disable_by_batch_size,
    )


def drafter_of(
    spec: Speculative,
    draft: Draft | None,
    kv: KvFormat,
    hardware: HardwareProfile,
    gpus_per_node: int,
    overheads: EngineOverheads,
) -> Drafter:
    """What drafting costs."""
    if draft is None:
        if spec.method == "ngram":
            return LookupDrafter(NGRAM_SEQUENCE_S)
        return LookupDrafter(0.0, rows_per_draft=2 * spec.guesses)
    if draft.medusa_heads:
        return MedusaDrafter(draft, hardware, gpus_per_node)
    model = DraftPass(draft, kv, hardware, gpus_per_node, overheads)
    return RecurrentDrafter(model, spec.num_speculative_tokens, spec.depth)
