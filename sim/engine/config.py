"""The knobs of one engine, under vLLM's names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from sim.engine.speculative_config import Speculation
    from sim.engine.tiers.plan import SwapPlan, TierPlan


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What the scheduler and the block pool need to know. Values are checked by the scenario, not here.

    ``num_gpu_blocks`` counts the null block, as vLLM prints it: one fewer can be used. ``preset`` names the policy,
    ``knobs`` are those that only it has. ``max_new_tokens`` is what clients allow an answer; None: exactly its length.
    ``speculation`` is None without speculative decoding. ``pipeline_stages`` are those of pipeline parallelism.
    ``swap`` is None where preempted requests are recomputed; ``tiers`` hold evicted prefix blocks, nearest first.
    ``kept_tokens`` are the last ones of a request whose blocks are held, None: all; with ``keeps_prompts`` only once
    its prompt is complete.
    """

    num_gpu_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_model_len: int = 4096
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    long_prefill_token_threshold: int = 0
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = True
    preset: str = "vllm"
    kv_allocation: Literal["paged", "contiguous", "token"] = "paged"
    max_new_tokens: int | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)
    speculation: Speculation | None = None
    pipeline_stages: int = 1
    swap: SwapPlan | None = None
    tiers: tuple[TierPlan, ...] = ()
    kept_tokens: int | None = None
    keeps_prompts: bool = False

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: block 0 is vLLM's null block."""
        return self.num_gpu_blocks - 1

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free while something runs."""
        return int(self.watermark * self.num_gpu_blocks)

    @property
    def pipeline_depth(self) -> int:
        """Steps that may be in flight: one a stage of a pipeline; async scheduling plans one while another runs."""
        if self.pipeline_stages > 1:
            return self.pipeline_stages
        return 2 if self.async_scheduling else 1
