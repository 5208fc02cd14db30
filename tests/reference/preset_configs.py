"""Engine configurations of every preset: the preset's own defaults, or knobs at random within their bounds."""

from __future__ import annotations

from random import Random
from typing import Any

from sim.engine.config import EngineConfig
from sim.scenario.knobs import scheduler_knobs
from sim.scenario.presets import PRESETS

OTHERS = ("sglang", "tensorrt-llm", "tgi", "orca", "static")
SHARED = ("enable_prefix_caching", "enable_chunked_prefill", "async_scheduling")


def preset_config(preset: str, num_gpu_blocks: int, **keys: Any) -> EngineConfig:
    """The preset's defaults with some keys changed, its own knobs among them."""
    values = {**PRESETS[preset], **keys}
    own = scheduler_knobs(preset)
    fields = EngineConfig.__dataclass_fields__.keys() & values.keys()
    return EngineConfig(
        num_gpu_blocks, preset=preset, knobs={key: values[key] for key in own}, **{key: values[key] for key in fields}
    )


def random_preset_config(preset: str, rng: Random, document: dict[str, Any]) -> EngineConfig:
    """A preset under the limits of an oracle input."""
    given = document["config"]
    keys: dict[str, Any] = {key: given[key] for key in ("block_size", "max_num_seqs", "max_num_batched_tokens")}
    keys["max_model_len"] = given.get("max_model_len", 4096)
    keys["max_new_tokens"] = rng.choice([None, None, 1, 20, 100])
    if PRESETS[preset]["enable_prefix_caching"]:
        keys["enable_prefix_caching"] = given.get("enable_prefix_caching", False)
    if preset in ("sglang", "tensorrt-llm"):
        keys["async_scheduling"] = given.get("async_scheduling", False)
        keys["enable_chunked_prefill"] = rng.random() < 0.7
    keys |= random_knobs(preset, rng, keys)
    room = rng.choice([0, 0, 1, 3, 30])
    return preset_config(preset, given["num_gpu_blocks"] + room, **keys)


def random_pipeline_config(rng: Random, presets: list[str], **keys: Any) -> EngineConfig:
    """One of the presets, its memory in blocks, single tokens or one piece a request."""
    preset = rng.choice(presets)
    keys["block_size"] = size = rng.choice([1, 16]) if preset == "sglang" else 16
    keys["num_gpu_blocks"] *= 16 // size
    if preset in ("vllm", "orca") and rng.random() < 0.3:
        keys |= {"kv_allocation": "contiguous", "kv_reservation": rng.choice(["request", "pow2", "oracle"])}
        keys |= {"block_size": 1, "num_gpu_blocks": 16 * keys["num_gpu_blocks"], "enable_prefix_caching": False}
    return preset_config(preset, **{**keys, **random_knobs(preset, rng, keys)})


def random_knobs(preset: str, rng: Random, keys: dict[str, Any]) -> dict[str, Any]:
    if preset == "sglang":
        page = keys["block_size"]
        chunk = -(-keys["max_num_batched_tokens"] // page) * page
        return {
            "max_num_batched_tokens": chunk,
            "schedule_policy": rng.choice(["fcfs", "lpm"]),
            "max_prefill_tokens": rng.choice([16, chunk, 2 * chunk, 16384]),
            "enable_mixed_chunk": rng.random() < 0.3,
            "schedule_conservativeness": rng.choice([0.1, 0.3, 1.0, 1.3]),
            "init_new_token_ratio": rng.choice([0.1, 0.7]),
            "new_token_ratio_decay_steps": rng.choice([5, 50, 600]),
        }
    if preset == "tensorrt-llm":
        return {"capacity_scheduler_policy": rng.choice(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"])}
    if preset == "tgi":
        return {
            "max_num_batched_tokens": rng.choice([keys["max_num_batched_tokens"], 4096]),
            "waiting_served_ratio": rng.choice([0.0, 0.3, 1.2]),
            "max_waiting_tokens": rng.choice([1, 5, 20]),
        }
    if preset == "static":
        return {"max_queue_delay_s": rng.choice([0.0, 0.003, 0.5])}
    return {}
