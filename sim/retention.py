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
from sim.scenario import EngineSpec, Scenario
from sim.scenario.kv_tiers import KvRetention

_WHY = {
    "mla": "caches one latent for all heads, from which no head's tokens can be dropped without the others'",
    "sliding": "has sliding windows of its own, behind which nothing is kept anyway",
    "chunked": "attends in chunks of its own, behind which nothing is kept anyway",
    "linear": "has layers that keep a state instead of tokens",
}


def retained(arch: Architecture, retention: KvRetention | None) -> Architecture:
    """``arch`` with every attention cut to what ``retention`` keeps.

    Raises:
        InputError: a model that the policy cannot serve.
    """
    if retention is None:
        return arch
    kinds = dict.fromkeys(run.attention.kind for run in arch.layers if run.attention is not None)
    for kind in kinds:
        if kind in _WHY:
            raise InputError(
                "engine.kv_retention",
                f"{retention.policy} cannot serve {arch.name}, which {_WHY[kind]}",
                "set it to null, or choose a model with full attention in all layers (MHA, GQA or MQA)",
            )
    layers = tuple(replace(run, attention=_cut(run.attention, retention.tokens)) for run in arch.layers)
    return replace(arch, layers=layers)


def _cut(attention: Attention | None, tokens: int) -> Attention | None:
    return None if attention is None else replace(attention, kind="sliding", window=tokens)


def kept_tokens(scenario: Scenario, arch: Architecture) -> int | None:
    """Tokens of a request whose blocks are held, where all layers forget alike; None: all of them.

    vLLM's scheduler frees what falls behind the window. Not here: with prefix caching, where such blocks stay findable,
    with drafts, over pipeline stages, and with memory beside the GPU; requests then hold their blocks to their end.
    """
    engine = scenario.engine
    windows = {run.attention.window for run in arch.layers if run.attention is not None}
    kinds = {run.attention.kind for run in arch.layers if run.attention is not None}
    if kinds != {"sliding"} or len(windows) != 1 or not _frees(scenario, engine):
        return None
    return windows.pop()


def _frees(scenario: Scenario, engine: EngineSpec) -> bool:
    alone = engine.speculative is None and scenario.layout.pipeline_parallel_size == 1
    in_gpu = engine.preemption == "recompute" and engine.kv_offload is None and engine.kv_allocation != "contiguous"
    return engine.preset == "vllm" and not engine.enable_prefix_caching and alone and in_gpu
