"""Policies that keep a part of the KV cache, as the model and the engine see them: their memory and speed, no quality.

StreamingLLM (Xiao et al., ICLR 2024, arXiv 2309.17453) keeps the first tokens (attention sinks) and a sliding window,
and attends only those, in the prompt too. H2O (Zhang et al., NeurIPS 2023, arXiv 2306.14048) computes the prompt whole
and then keeps a budget of tokens, half of them the newest and half those that were attended most. What a model answers
with such a cache is not modelled, nor is H2O's bookkeeping of attention scores, for which fused attention kernels have
no room.
"""

from __future__ import annotations

from dataclasses import replace

from sim.errors import InputError
from sim.models.architecture import Architecture, Attention

_WHY = {
    "mla": "caches one latent for all heads, from which no head's tokens can be dropped without the others'",
    "sliding": "has sliding windows of its own, behind which nothing is kept anyway",
    "chunked": "attends in chunks of its own, behind which nothing is kept anyway",
    "linear": "has layers that keep a state instead of tokens",
}


def retained(arch: Architecture, policy: str, tokens: int) -> Architecture:
    """``arch`` with every attention cut to the ``tokens`` that ``policy`` keeps.

    Raises:
        InputError: a model that the policy cannot serve.
    """
    kinds = dict.fromkeys(run.attention.kind for run in arch.layers if run.attention is not None)
    for kind in kinds:
        if kind in _WHY:
            raise InputError(
                "engine.kv_retention",
                f"{policy} cannot serve {arch.name}, which {_WHY[kind]}",
                "set it to null, or choose a model with full attention in all layers (MHA, GQA or MQA)",
            )
    layers = tuple(replace(run, attention=_cut(run.attention, tokens)) for run in arch.layers)
    return replace(arch, layers=layers)


def _cut(attention: Attention | None, tokens: int) -> Attention | None:
    return None if attention is None else replace(attention, kind="sliding", window=tokens)
