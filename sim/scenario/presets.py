"""Serving engines as defaults of the engine keys: `engine.preset` names a row, any key given beside it wins.

A preset says which policy schedules (`sim.engine.policies`) and fills in what its engine would use. Where numbers come
from, and what each engine calls the keys, is on the page docs/engines.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sim.models.engine_memory import release_number

# Keys that mean something only to vLLM stand here with the value that says so.
_COMMON: Final[Mapping[str, Any]] = {
    "long_prefill_token_threshold": 0,
    "scheduling_policy": "fcfs",
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "kv_allocation": "paged",
    "preemption": "recompute",
}

# vLLM V1: vllm/config/{cache,scheduler}.py; the batch limits are those of its API server on data-centre GPUs.
_VLLM: Final[Mapping[str, Any]] = {
    **_COMMON,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "block_size": 16,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "async_scheduling": True,
    "kv_reservation": None,
}

# SGLang 0.5: python/sglang/srt/{server_args,environ}.py; chunked_prefill_size on GPUs of 60 to 160 GB, the memory share
# where it is not computed from the GPU, max_running_requests of a model with a long context.
_SGLANG: Final[Mapping[str, Any]] = {
    **_COMMON,
    "max_num_seqs": 2048,
    "max_num_batched_tokens": 8192,
    "block_size": 1,
    "kv_allocation": "token",
    "gpu_memory_utilization": 0.88,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "async_scheduling": True,
    "max_new_tokens": None,
    "schedule_policy": "fcfs",
    "attention_backend": None,
    "max_prefill_tokens": 16384,
    "enable_mixed_chunk": False,
    "schedule_conservativeness": 1.0,
    "init_new_token_ratio": 0.7,
    "min_new_token_ratio_factor": 0.14,
    "new_token_ratio_decay_steps": 600,
}

# TensorRT-LLM 1.0, PyTorch backend: tensorrt_llm/llmapi/llm_args.py and builder.py (BuildConfig).
_TENSORRT_LLM: Final[Mapping[str, Any]] = {
    **_COMMON,
    "max_num_seqs": 2048,
    "max_num_batched_tokens": 8192,
    "block_size": 32,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": False,
    "async_scheduling": True,
    "max_new_tokens": None,
    "capacity_scheduler_policy": "GUARANTEED_NO_EVICT",
}

# TGI 2.3: launcher/src/main.rs; block size and prefix caching as with FlashInfer, the memory share of its warm-up.
_TGI: Final[Mapping[str, Any]] = {
    **_COMMON,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 4096,
    "block_size": 1,
    "kv_allocation": "token",
    "gpu_memory_utilization": 0.95,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": False,
    "async_scheduling": False,
    "max_new_tokens": None,
    "waiting_served_ratio": 0.3,
    "max_waiting_tokens": 20,
    "max_batch_total_tokens": None,
}

# Orca (OSDI 2022): the largest batch of its evaluation; it names no other limit. Nothing is shared or split.
_ORCA: Final[Mapping[str, Any]] = {
    **_COMMON,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 16384,
    "block_size": 1,
    "kv_allocation": "token",
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": False,
    "enable_chunked_prefill": False,
    "async_scheduling": False,
    "max_new_tokens": None,
    "kv_reservation": None,
}

# The baseline Orca was measured against, with the delay of Triton's dynamic batcher.
_STATIC: Final[Mapping[str, Any]] = {**_ORCA, "max_queue_delay_s": 0.0}

PRESETS: Final[dict[str, Mapping[str, Any]]] = {
    "vllm": _VLLM,
    "sglang": _SGLANG,
    "tensorrt-llm": _TENSORRT_LLM,
    "tgi": _TGI,
    "orca": _ORCA,
    "static": _STATIC,
}

# Defaults that a later release changed (vllm-project/vllm pull request 38284).
_CHANGED: Final[Mapping[str, Mapping[tuple[int, ...], Mapping[str, Any]]]] = {
    "vllm": {(0, 21): {"gpu_memory_utilization": 0.92}},
}

# Keys of the rows above that not every engine has, and the engines that have them.
OWNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "long_prefill_token_threshold": ("vllm",),
    "scheduling_policy": ("vllm",),
    "watermark": ("vllm",),
    "scheduler_reserve_full_isl": ("vllm",),
    "enable_chunked_prefill": ("vllm", "sglang", "tensorrt-llm"),
    "async_scheduling": ("vllm", "sglang", "tensorrt-llm"),
    "enable_prefix_caching": ("vllm", "sglang", "tensorrt-llm", "tgi"),
    "max_new_tokens": ("sglang", "tensorrt-llm", "tgi", "orca", "static"),
    "kv_reservation": ("vllm", "orca", "static"),
    "schedule_policy": ("sglang",),
    "attention_backend": ("sglang",),
    "max_prefill_tokens": ("sglang",),
    "enable_mixed_chunk": ("sglang",),
    "schedule_conservativeness": ("sglang",),
    "init_new_token_ratio": ("sglang",),
    "min_new_token_ratio_factor": ("sglang",),
    "new_token_ratio_decay_steps": ("sglang",),
    "capacity_scheduler_policy": ("tensorrt-llm",),
    "waiting_served_ratio": ("tgi",),
    "max_waiting_tokens": ("tgi",),
    "max_batch_total_tokens": ("tgi",),
    "max_queue_delay_s": ("static",),
}

# What an engine calls a key of ours; either name may be written.
NATIVE_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "sglang": {
        "max_running_requests": "max_num_seqs",
        "chunked_prefill_size": "max_num_batched_tokens",
        "context_length": "max_model_len",
        "page_size": "block_size",
        "mem_fraction_static": "gpu_memory_utilization",
    },
    "tensorrt-llm": {
        "max_batch_size": "max_num_seqs",
        "max_num_tokens": "max_num_batched_tokens",
        "max_seq_len": "max_model_len",
        "tokens_per_block": "block_size",
        "free_gpu_memory_fraction": "gpu_memory_utilization",
        "enable_block_reuse": "enable_prefix_caching",
    },
    "tgi": {
        "max_concurrent_requests": "max_num_seqs",
        "max_batch_prefill_tokens": "max_num_batched_tokens",
        "max_total_tokens": "max_model_len",
        "cuda_memory_fraction": "gpu_memory_utilization",
    },
    "static": {"max_batch_size": "max_num_seqs"},
}

_LIKE: Final[dict[str, str]] = {}  # presets added by `add_preset`, and the engine each is like


def family(preset: str) -> str:
    """The engine whose keys, host overheads and memory rules a preset has: itself, unless it was added."""
    return _LIKE.get(preset, preset)


def defaults_of(preset: str, release: Any) -> Mapping[str, Any]:
    """The row of ``preset`` as ``release`` of its engine has it; what a preset of one's own sets stays as set."""
    row, engine = PRESETS[preset], family(preset)
    asked = (release_number(release) if isinstance(release, str) else None) or ()
    changed = {
        key: value
        for first, changes in _CHANGED.get(engine, {}).items()
        if asked >= first
        for key, value in changes.items()
        if row[key] == PRESETS[engine][key]
    }
    return {**row, **changed}


def add_preset(name: str, like: str, defaults: Mapping[str, Any]) -> None:
    """Make ``name`` a preset: the row of ``like`` with other ``defaults``. A second call replaces it."""
    PRESETS[name] = {**PRESETS[like], **defaults}
    _LIKE[name] = family(like)
