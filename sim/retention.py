"""Which requests give back the blocks that their attention window leaves behind."""

from __future__ import annotations

from sim.models.architecture import Architecture
from sim.scenario import EngineSpec, Scenario


def kept_tokens(scenario: Scenario, arch: Architecture) -> int | None:
    """Tokens of a request whose blocks are held, where all layers forget alike; None: all of them.

    vLLM's scheduler frees what falls behind the window. Not here: with prefix caching, where such blocks stay findable,
    with drafts, and with memory beside the GPU; requests then hold their blocks to their end.
    """
    engine = scenario.engine
    windows = {run.attention.window for run in arch.layers if run.attention is not None}
    kinds = {run.attention.kind for run in arch.layers if run.attention is not None}
    if kinds != {"sliding"} or len(windows) != 1 or not _frees(engine):
        return None
    return windows.pop()


def _frees(engine: EngineSpec) -> bool:
    in_gpu = engine.preemption == "recompute" and engine.kv_offload is None and engine.kv_allocation != "contiguous"
    return engine.preset == "vllm" and not engine.enable_prefix_caching and engine.speculative is None and in_gpu
