"""Cases from the silicon sample of aiconfigurator (Apache-2.0, NVIDIA): TTFT and TPOT at a fixed concurrency.

Dense models in aggregated serving. The sample gives lengths, concurrency and layout alone. How such runs are made is
in the same repository: its runners (src/aiconfigurator/eval/benchmarks, later the benchmark template of its
generator) send prompts and answers of one fixed length, ten requests a user after two to warm up, and read means. Its
generator (src/aiconfigurator/generator/rule_plugin) deploys engines with a budget of prompt + 1,500 tokens and the
batch, TensorRT-LLM without chunked prefill and block reuse and with 0.8 of the memory left for the cache, SGLang with
mixed chunks; its preset "fp8" (sdk/task.py) is 8-bit weights and an 8-bit cache. Those settings are taken for all rows.
The largest batch is not known: 256, or as many as there are users.

Some rows name fewer GPUs than their load needs (several engines behind one front end, or prompts found in a cache). A
row is left out where computing its prompts alone would take more than 75 % of the datasheet FLOP/s of its GPUs;
the best FP8 and FP4 products measured on Hopper and Blackwell stay below that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from calibration.cases_open import seconds, tags_of
from calibration.cases_tags import HARDWARE, kind_of
from hardware_profiles import load_hardware
from sim.models.loader import load_model
from sim.models.parameters import parameter_counts

Row = dict[str, str]
Document = dict[str, Any]

# model of a row -> (catalogue name, quantisation where the name implies it)
MODELS: Final = {
    "Qwen/Qwen3-32B": "Qwen/Qwen3-32B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct",
}
PEAK_DTYPE: Final = {"fp8": "fp8", "fp8_block": "fp8", "nvfp4": "fp4"}
SUSTAINED: Final = 0.75  # of the datasheet peak
REQUESTS_PER_USER: Final = 10
SPARE_TOKENS: Final = 1500  # that the generator adds to a prompt's for the budget of a step
PRESET: Final = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt-llm"}
SYNCHRONOUS: Final = ("0.12.0",)  # vLLM versions before asynchronous scheduling became the default
ASSUMED: Final = f"fixed lengths, {REQUESTS_PER_USER} requests a user and engine settings as in the source's own runner"
_FIGURE: Final = "_unstated (mean or median)_ms"


def documents(rows: list[Row]) -> Iterator[tuple[str, Document]]:
    """One file for each model, device, engine and precision, with a case for each concurrency and length."""
    ladders: dict[str, list[Document]] = {}
    for row in rows:
        if _usable(row):
            model = row["model"].rsplit("/", 1)[-1].lower()
            key = f"slc-{model}-{HARDWARE[row['gpu']]}-{row['engine'].lower()}-{row['weight_dtype']}"
            ladders.setdefault(key, []).append(_case(row))
    for key, cases in ladders.items():
        yield key, {"cases": cases}


def _usable(row: Row) -> bool:
    return (
        row["id"].startswith("slc-")
        and row["model"] in MODELS
        and kind_of(row["model"]) == "dense"
        and "mode=agg" in row["flags"]
        and row["gpu"] in HARDWARE
        and "tp" in row
        and _prefill_share(row) <= SUSTAINED
    )


def _prefill_share(row: Row) -> float:
    """FLOP/s that the prompts' matrix products need, over the datasheet peak of the row's GPUs.

    Little's law: concurrency / (TTFT + (output - 1) x TPOT) requests a second, each 2 FLOPs a weight and prompt token.
    """
    arch, hardware = load_model(MODELS[row["model"]]), load_hardware(HARDWARE[row["gpu"]])
    counts = parameter_counts(arch)
    weights = sum(counts.values()) - counts.get("embedding", 0) - counts.get("lm_head", 0)
    decode_s = (float(row["osl"]) - 1) * seconds(row[f"tpot{_FIGURE}"])
    requests_per_s = _users(row) / (seconds(row[f"ttft{_FIGURE}"]) + decode_s)
    peak = hardware.compute.peak_flops[PEAK_DTYPE[row["weight_dtype"]]].value * int(float(row["tp"]))
    return requests_per_s * float(row["isl"]) * 2 * weights / peak


def _users(row: Row) -> int:
    return int(row["rate_or_concurrency"].split()[1])


def _case(row: Row) -> Document:
    users = _users(row)
    return {
        "name": row["id"],
        "source": f"{row['source']}: {row['note'].split('; ')[1]}",
        "notes": f"{row['engine']} {row['engine_version']}; {ASSUMED}",
        "tags": {**tags_of(row, "report"), "knee": "closed loop", "load": "closed loop"},
        "scenario": {
            "model": MODELS[row["model"]],
            "hardware": HARDWARE[row["gpu"]],
            "layout": {"tensor_parallel_size": int(float(row["tp"]))},
            "engine": _engine(row, users),
            "workload": {
                "num_requests": REQUESTS_PER_USER * users,
                "arrivals": {"process": "closed_loop", "concurrency": users},
                "prompt_tokens": _length(row["isl"]),
                "output_tokens": _length(row["osl"]),
            },
        },
        "measured": {
            "ttft_s": {"mean": seconds(row[f"ttft{_FIGURE}"])},
            "tpot_s": {"mean": seconds(row[f"tpot{_FIGURE}"])},
        },
    }


def _engine(row: Row, users: int) -> Document:
    engine: Document = {"preset": PRESET[row["engine"]], "quantization": row["weight_dtype"]}
    seqs, prompt = max(256, users), int(float(row["isl"])) + SPARE_TOKENS
    engine |= {"max_num_seqs": seqs, "sampling": "greedy"}  # benchmark clients send random tokens, greedily
    if row["engine"] == "SGLang":
        engine |= {"max_prefill_tokens": prompt, "enable_mixed_chunk": True}
    else:
        engine["max_num_batched_tokens"] = seqs + prompt
    if row["weight_dtype"] == "fp8":
        engine["kv_cache_dtype"] = "fp8"
    if row["engine"] == "TensorRT-LLM":
        engine |= {"enable_prefix_caching": False, "gpu_memory_utilization": 0.8}
    if row["engine"] == "vLLM":
        if re.fullmatch(r"[\d.]+", row["engine_version"]):
            engine["version"] = row["engine_version"]
        if row["engine_version"] in SYNCHRONOUS:
            engine["async_scheduling"] = False
    return engine


def _length(nominal: str) -> Document:
    return {"distribution": "constant", "value": round(float(nominal))}
