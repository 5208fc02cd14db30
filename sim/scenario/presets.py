"""Serving engines as defaults of the engine keys: `engine.preset` names a row, any key given beside it wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# vLLM V1: vllm/config/{cache,scheduler}.py; the batch limits are those of its API server on data-centre GPUs.
_VLLM: Final[Mapping[str, Any]] = {
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "block_size": 16,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "scheduling_policy": "fcfs",
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "async_scheduling": True,
    "kv_allocation": "paged",
    "preemption": "recompute",
}

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {"vllm": _VLLM}
PLANNED: Final = ("sglang", "tensorrt-llm", "tgi", "orca", "static")
