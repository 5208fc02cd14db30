"""The flags of serve commands that a forecast depends on, engine by engine, and those that it does not.

From vllm/engine/arg_utils.py (vLLM 0.15), python/sglang/srt/server_args.py (SGLang 0.5) and
tensorrt_llm/commands/serve.py (TensorRT-LLM 1.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal[
    "int", "tokens", "float", "text", "on", "off", "both", "degree", "speculative", "offload", "eplb", "all2all"
]


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag and the key of the scenario that it sets.

    Attributes:
        names: as written on the command line; the first one is written back.
        key: dotted path in the scenario.
        kind: ``tokens`` takes 32k as well; ``on`` and ``off`` stand alone and set true or false; ``both`` is a flag
            with a ``--no-`` twin; ``degree`` is a number of which more than 1 sets true; ``offload`` is a tier's GiB;
            ``eplb`` is JSON with the copies; ``all2all`` is a backend, of which some are not modelled.
    """

    names: tuple[str, ...]
    key: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Engine:
    """How one engine is started.

    Attributes:
        preset: of the scenario.
        starts: words that a command line begins with, each possible form.
        flags: those that matter.
        idle: flags that change nothing of a forecast; the value tells whether an argument follows, or which ones do
            so: with any other the flag is not understood.
    """

    preset: str
    starts: tuple[tuple[str, ...], ...]
    flags: tuple[Flag, ...]
    idle: Mapping[str, bool | tuple[str, ...]]


_LAYOUT: Final = "layout."
_ENGINE: Final = "engine."
_IDLE: Final = {
    "--host": True,
    "--port": True,
    "--api-key": True,
    "--served-model-name": True,
    "--chat-template": True,
    "--trust-remote-code": False,
    "--revision": True,
    "--tokenizer": True,
    "--log-level": True,
    "--download-dir": True,
    "--enable-metrics": False,
}

VLLM: Final = Engine(
    preset="vllm",
    starts=(("vllm", "serve"), ("-m", "vllm.entrypoints.openai.api_server"), ("vllm.entrypoints.openai.api_server",)),
    flags=(
        Flag(("--model",), "model", "text"),
        Flag(("--tensor-parallel-size", "-tp"), _LAYOUT + "tensor_parallel_size", "int"),
        Flag(("--pipeline-parallel-size", "-pp"), _LAYOUT + "pipeline_parallel_size", "int"),
        Flag(("--data-parallel-size", "-dp"), _LAYOUT + "data_parallel_size", "int"),
        Flag(("--enable-expert-parallel", "-ep"), _LAYOUT + "enable_expert_parallel", "both"),
        Flag(("--all2all-backend",), _LAYOUT + "all2all_backend", "all2all"),
        Flag(("--enable-eplb",), _LAYOUT + "enable_eplb", "both"),
        Flag(("--eplb-config",), _LAYOUT + "num_redundant_experts", "eplb"),
        Flag(
            ("--eplb-config.num-redundant-experts", "--num-redundant-experts"), _LAYOUT + "num_redundant_experts", "int"
        ),
        Flag(("--enable-dbo",), _LAYOUT + "enable_dbo", "both"),
        Flag(("--max-num-seqs",), _ENGINE + "max_num_seqs", "int"),
        Flag(("--max-num-batched-tokens",), _ENGINE + "max_num_batched_tokens", "tokens"),
        Flag(("--max-model-len",), _ENGINE + "max_model_len", "tokens"),
        Flag(("--block-size",), _ENGINE + "block_size", "int"),
        Flag(("--gpu-memory-utilization",), _ENGINE + "gpu_memory_utilization", "float"),
        Flag(("--num-gpu-blocks-override",), _ENGINE + "num_gpu_blocks_override", "int"),
        Flag(("--enable-prefix-caching",), _ENGINE + "enable_prefix_caching", "both"),
        Flag(("--enable-chunked-prefill",), _ENGINE + "enable_chunked_prefill", "both"),
        Flag(("--long-prefill-token-threshold",), _ENGINE + "long_prefill_token_threshold", "int"),
        Flag(("--scheduling-policy",), _ENGINE + "scheduling_policy", "text"),
        Flag(("--scheduler-reserve-full-isl",), _ENGINE + "scheduler_reserve_full_isl", "both"),
        Flag(("--async-scheduling",), _ENGINE + "async_scheduling", "both"),
        Flag(("--quantization", "-q"), _ENGINE + "quantization", "text"),
        Flag(("--kv-cache-dtype",), _ENGINE + "kv_cache_dtype", "text"),
        Flag(("--speculative-config",), _ENGINE + "speculative", "speculative"),
        Flag(("--kv-offloading-size",), _ENGINE + "kv_offload", "offload"),
    ),
    idle=_IDLE
    | {
        "--kv-offloading-backend": ("native",),
        "--enable-auto-tool-choice": False,
        "--tool-call-parser": True,
        "--reasoning-parser": True,
        "--seed": True,
        "--disable-log-requests": False,
        "--no-enable-log-requests": False,
        "--uvicorn-log-level": True,
        "--distributed-executor-backend": True,
    },
)

SGLANG: Final = Engine(
    preset="sglang",
    starts=(("-m", "sglang.launch_server"), ("sglang.launch_server",), ("sglang", "serve")),
    flags=(
        Flag(("--model-path", "--model"), "model", "text"),
        Flag(("--tp-size", "--tp", "--tensor-parallel-size"), _LAYOUT + "tensor_parallel_size", "int"),
        Flag(("--pp-size", "--pp", "--pipeline-parallel-size"), _LAYOUT + "pipeline_parallel_size", "int"),
        Flag(("--dp-size", "--dp", "--data-parallel-size"), _LAYOUT + "data_parallel_size", "int"),
        Flag(("--ep-size", "--ep", "--expert-parallel-size"), _LAYOUT + "enable_expert_parallel", "degree"),
        Flag(("--max-running-requests",), _ENGINE + "max_num_seqs", "int"),
        Flag(("--chunked-prefill-size",), _ENGINE + "max_num_batched_tokens", "int"),
        Flag(("--context-length",), _ENGINE + "max_model_len", "int"),
        Flag(("--page-size",), _ENGINE + "block_size", "int"),
        Flag(("--mem-fraction-static",), _ENGINE + "gpu_memory_utilization", "float"),
        Flag(("--disable-radix-cache",), _ENGINE + "enable_prefix_caching", "off"),
        Flag(("--disable-overlap-schedule",), _ENGINE + "async_scheduling", "off"),
        Flag(("--enable-mixed-chunk",), _ENGINE + "enable_mixed_chunk", "on"),
        Flag(("--schedule-policy",), _ENGINE + "schedule_policy", "text"),
        Flag(("--schedule-conservativeness",), _ENGINE + "schedule_conservativeness", "float"),
        Flag(("--max-prefill-tokens",), _ENGINE + "max_prefill_tokens", "int"),
        Flag(("--quantization",), _ENGINE + "quantization", "text"),
        Flag(("--kv-cache-dtype",), _ENGINE + "kv_cache_dtype", "text"),
    ),
    idle=_IDLE
    | {
        "--tokenizer-path": True,
        "--random-seed": True,
        "--tool-call-parser": True,
        "--reasoning-parser": True,
    },
)

TRTLLM: Final = Engine(
    preset="tensorrt-llm",
    starts=(("trtllm-serve", "serve"), ("trtllm-serve",)),
    flags=(
        Flag(("--model",), "model", "text"),
        Flag(("--tp_size", "--tensor_parallel_size"), _LAYOUT + "tensor_parallel_size", "int"),
        Flag(("--pp_size", "--pipeline_parallel_size"), _LAYOUT + "pipeline_parallel_size", "int"),
        Flag(("--ep_size", "--moe_expert_parallel_size"), _LAYOUT + "enable_expert_parallel", "degree"),
        Flag(("--gpus_per_node",), _LAYOUT + "gpus_per_node", "int"),
        Flag(("--max_batch_size",), _ENGINE + "max_num_seqs", "int"),
        Flag(("--max_num_tokens",), _ENGINE + "max_num_batched_tokens", "int"),
        Flag(("--max_seq_len",), _ENGINE + "max_model_len", "int"),
        Flag(
            ("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction"),
            _ENGINE + "gpu_memory_utilization",
            "float",
        ),
        Flag(("--enable_chunked_prefill",), _ENGINE + "enable_chunked_prefill", "on"),
        Flag(("--kv_cache_dtype",), _ENGINE + "kv_cache_dtype", "text"),
    ),
    idle={
        "--host": True,
        "--port": True,
        "--tokenizer": True,
        "--trust_remote_code": False,
        "--log_level": True,
        "--num_postprocess_workers": True,
        "--reasoning_parser": True,
        "--tool_parser": True,
    },
)

#: vLLM's backends that are modelled; ``deepep_auto`` is not one of its.
THEIR_ALL2ALL: Final = ("allgather_reducescatter", "deepep_high_throughput", "deepep_low_latency")

ENGINES: Final = (VLLM, SGLANG, TRTLLM)

#: Keys whose meaning differs between engines although the flag is the nearest there is.
CAUTIONS: Final = {
    (
        "vllm",
        "engine.speculative",
    ): "the acceptance rate is assumed, and of EAGLE a head of one layer: set what you measured",
    ("vllm", "engine.kv_offload"): "the speed of the link to the host is not said: that of the device's datasheet",
    ("sglang", "engine.gpu_memory_utilization"): "SGLang's share covers weights and cache, without activations",
    ("tensorrt-llm", "engine.gpu_memory_utilization"): "TensorRT-LLM's share is of the memory left after the weights",
}
