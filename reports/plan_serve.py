"""The command lines that start the winner on a real engine.

Flags as in vllm/engine/arg_utils.py (vLLM 0.15), python/sglang/srt/server_args.py (SGLang 0.5),
tensorrt_llm/commands/serve.py (TensorRT-LLM 1.0) and launcher/src/main.rs (TGI 3).
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Final

from sim.layout import Layout
from sim.scenario import Scenario
from sim.scenario.pools import pools_of

ENGINES: Final = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM", "tgi": "TGI"}
FIRST_PORT: Final = 8000

# Weight formats that an engine makes of a 16-bit checkpoint at its start, and its words for them.
_ON_THE_FLY: Final = {
    "vllm": {"fp8": "fp8", "nf4": "bitsandbytes"},
    "sglang": {"fp8": "fp8", "w8a8_fp8": "w8a8_fp8", "nf4": "bitsandbytes"},
    "tensorrt-llm": {},
    "tgi": {"fp8": "fp8", "nf4": "bitsandbytes-nf4"},
}
# Formats that come with the checkpoint and are named all the same.
_OF_CHECKPOINT: Final = {"vllm": ("awq", "gptq"), "sglang": ("awq", "gptq"), "tensorrt-llm": (), "tgi": ("awq", "gptq")}
_KV: Final = {
    "vllm": {"fp8": "fp8"},
    "sglang": {"fp8": "fp8_e4m3"},
    "tensorrt-llm": {"fp8": "fp8"},
    "tgi": {"fp8": "fp8_e4m3fn"},
}
_16_BIT: Final = (None, "none", "bf16", "bfloat16", "fp16", "float16", "half")


@dataclass(frozen=True, slots=True)
class ServeCommand:
    """How one engine serves a scenario.

    Attributes:
        engine: preset.
        lines: a command for each pool, every one for its first replica.
        files: {name: content} that the commands refer to.
        notes: what the commands leave to their reader.
    """

    engine: str
    lines: tuple[str, ...]
    files: dict[str, str]
    notes: tuple[str, ...]


def serve_commands(scenario: Scenario) -> list[ServeCommand]:
    """A command for each engine that has the features; that of the simulated engine first."""
    own = scenario.engine.preset
    order = sorted(ENGINES, key=lambda engine: (engine != own, list(ENGINES).index(engine)))
    return [command for engine in order if (command := serve_command(scenario, engine)) is not None]


def serve_command(scenario: Scenario, engine: str) -> ServeCommand | None:
    """The command of one engine; None where it cannot do what the scenario asks (stages, ranks, apart phases)."""
    pools = pools_of(scenario)
    split = len(pools) > 1
    if split and engine != "vllm":
        return None
    lines: list[str] = []
    files: dict[str, str] = {}
    notes: list[str] = []
    gpu = 0
    for number, (name, pool) in enumerate(pools.items()):
        words = _words(pool, engine, files, notes)
        if words is None:
            return None
        if split:
            role = "kv_producer" if name == "prefill" else "kv_consumer"
            words += ["--kv-transfer-config", json.dumps({"kv_connector": "NixlConnector", "kv_role": role})]
        each = pool.layout.gpus_per_replica
        devices = ",".join(map(str, range(gpu, gpu + each))) if gpu + each <= pool.layout.gpus_per_node else ""
        prefix = f"CUDA_VISIBLE_DEVICES={devices} " if devices else ""
        lines.append(f"{prefix}{shlex.join(words)} --port {FIRST_PORT + 100 * number}")
        if pool.layout.replicas > 1:
            what = f"{name} engine" if split else "engine"
            notes.append(f"start {pool.layout.replicas} such {what}s, each with {each} GPUs and a port of its own")
        gpu += each * pool.layout.replicas
    if split or any(pool.layout.replicas > 1 for pool in pools.values()):
        notes.append(f"put them behind a router with the policy {scenario.cluster.router}")
    if engine != scenario.engine.preset:
        notes.append(f"simulated was {ENGINES.get(scenario.engine.preset, scenario.engine.preset)}: not this engine")
    if any(pool.engine.kv_allocation == "contiguous" for pool in pools.values()):
        notes.append("simulated was contiguous KV memory, which this engine does not have")
    notes += [note for pool in pools.values() for note in _beside_the_gpu(pool, engine)]
    return ServeCommand(engine, tuple(lines), files, tuple(dict.fromkeys(notes)))


def _beside_the_gpu(pool: Scenario, engine: str) -> list[str]:
    """What the simulated cache has that the command does not ask for."""
    e, notes = pool.engine, []
    if e.kv_offload is not None:
        size = f"--kv-offloading-size {e.kv_offload[0].memory_gib:g}" if engine == "vllm" else "this engine's own flags"
        notes.append(f"simulated was KV offload: the command lacks it; add {size}, or a connector with more tiers")
    if e.preemption != "recompute":
        notes.append("simulated was swapping of preempted requests, which this engine does not have: it recomputes")
    if e.kv_retention is not None:
        notes.append(f"simulated was {e.kv_retention.policy}, which this engine does not have")
    return notes


def _words(pool: Scenario, engine: str, files: dict[str, str], notes: list[str]) -> list[str] | None:
    """The command of one pool without device and port."""
    notes += _format_notes(pool, engine)
    if engine == "vllm":
        return _vllm(pool)
    if engine == "sglang":
        return _sglang(pool)
    if engine == "tensorrt-llm":
        return _tensorrt_llm(pool, files)
    return _tgi(pool, notes)


def _vllm(pool: Scenario) -> list[str]:
    e, layout = pool.engine, pool.layout
    return [
        "vllm", "serve", pool.model,
        *_degrees(layout, "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size"),
        *(["--enable-expert-parallel"] if layout.enable_expert_parallel else []),
        "--max-num-seqs", str(e.max_num_seqs),
        "--max-num-batched-tokens", str(e.max_num_batched_tokens),
        *(["--max-model-len", str(e.max_model_len)] if e.max_model_len else []),
        "--block-size", str(e.block_size),
        "--gpu-memory-utilization", f"{e.gpu_memory_utilization:g}",
        "--enable-prefix-caching" if e.enable_prefix_caching else "--no-enable-prefix-caching",
        "--enable-chunked-prefill" if e.enable_chunked_prefill else "--no-enable-chunked-prefill",
        *(["--scheduling-policy", e.scheduling_policy] if e.scheduling_policy != "fcfs" else []),
        *(["--async-scheduling"] if e.async_scheduling else []),
        *_formats(pool, "vllm", "--quantization", "--kv-cache-dtype"),
    ]  # fmt: skip


def _sglang(pool: Scenario) -> list[str]:
    e, layout = pool.engine, pool.layout
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    return [
        "python", "-m", "sglang.launch_server", "--model-path", pool.model,
        *_degrees(layout, "--tp-size", "--pp-size", "--dp-size"),
        *(["--ep-size", str(ranks)] if layout.enable_expert_parallel else []),
        "--max-running-requests", str(e.max_num_seqs),
        "--chunked-prefill-size", str(e.max_num_batched_tokens),
        *(["--context-length", str(e.max_model_len)] if e.max_model_len else []),
        "--mem-fraction-static", f"{e.gpu_memory_utilization:g}",
        *([] if e.enable_prefix_caching else ["--disable-radix-cache"]),
        *_formats(pool, "sglang", "--quantization", "--kv-cache-dtype"),
    ]  # fmt: skip


def _tensorrt_llm(pool: Scenario, files: dict[str, str]) -> list[str] | None:
    e, layout = pool.engine, pool.layout
    if layout.data_parallel_size > 1:
        return None
    options: dict[str, object] = {
        "enable_chunked_prefill": e.enable_chunked_prefill,
        "kv_cache_config": {"enable_block_reuse": e.enable_prefix_caching, **_kv(pool, "tensorrt-llm", "dtype")},
    }
    files["trtllm.yaml"] = "\n".join(_yaml(options)) + "\n"
    return [
        "trtllm-serve", pool.model,
        *_degrees(layout, "--tp_size", "--pp_size", ""),
        *(["--ep_size", str(layout.tensor_parallel_size)] if layout.enable_expert_parallel else []),
        "--max_batch_size", str(e.max_num_seqs),
        "--max_num_tokens", str(e.max_num_batched_tokens),
        *(["--max_seq_len", str(e.max_model_len)] if e.max_model_len else []),
        "--kv_cache_free_gpu_memory_fraction", f"{e.gpu_memory_utilization:g}",
        "--extra_llm_api_options", "trtllm.yaml",
    ]  # fmt: skip


def _tgi(pool: Scenario, notes: list[str]) -> list[str] | None:
    e, layout = pool.engine, pool.layout
    if layout.data_parallel_size > 1 or layout.pipeline_parallel_size > 1:
        return None
    length = e.max_model_len or 0
    if not e.enable_prefix_caching:
        notes.append("set PREFIX_CACHING=0 in its environment")
    return [
        "text-generation-launcher", "--model-id", pool.model,
        "--num-shard", str(layout.tensor_parallel_size),
        "--max-batch-size", str(e.max_num_seqs),
        "--max-batch-prefill-tokens", str(e.max_num_batched_tokens),
        *(["--max-total-tokens", str(length), "--max-input-tokens", str(length - 1)] if length else []),
        "--cuda-memory-fraction", f"{e.gpu_memory_utilization:g}",
        *_formats(pool, "tgi", "--quantize", "--kv-cache-dtype"),
    ]  # fmt: skip


def _degrees(layout: Layout, tensor: str, pipeline: str, data: str) -> list[str]:
    words = [tensor, str(layout.tensor_parallel_size)]
    words += [pipeline, str(layout.pipeline_parallel_size)] if layout.pipeline_parallel_size > 1 else []
    return words + ([data, str(layout.data_parallel_size)] if layout.data_parallel_size > 1 else [])


def _formats(pool: Scenario, engine: str, weights: str, cache: str) -> list[str]:
    name = pool.engine.quantization
    word = _ON_THE_FLY[engine].get(name or "", name if name in _OF_CHECKPOINT[engine] else None)
    words = [weights, word] if word else []
    return words + [item for key, value in _kv(pool, engine, cache).items() for item in (key, value)]


def _kv(pool: Scenario, engine: str, key: str) -> dict[str, str]:
    word = _KV[engine].get(pool.engine.kv_cache_dtype.key)
    return {key: word} if word else {}


def _format_notes(pool: Scenario, engine: str) -> list[str]:
    name, kv = pool.engine.quantization, pool.engine.kv_cache_dtype.key
    notes = []
    if name not in _16_BIT and name not in _ON_THE_FLY[engine]:
        notes.append(f"name a checkpoint of the model quantised to {name}")
    if kv not in ("auto", "bf16", "fp16", "fp8"):
        notes.append(f"has no flag for a KV cache in {kv}")
    return notes


def _yaml(options: dict[str, object], indent: str = "") -> list[str]:
    lines = []
    for key, value in options.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_yaml(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value) if isinstance(value, bool) else value}")
    return lines
