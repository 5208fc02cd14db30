"""Cases from the silicon sample of aiconfigurator (Apache-2.0, NVIDIA): TTFT and TPOT at a fixed concurrency.

Dense models in aggregated serving. The sample does not say whether a figure is a mean or a median, how many requests
were sent, nor the engine's limits: means, ten requests a user, greedy sampling and the engine's usual budget are
assumed, and lengths are drawn in 0.8 to 1.0 of nominal.

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
SHORTEST: Final = 0.8  # of the nominal length
PRESET: Final = {"vLLM": "vllm", "SGLang": "sglang", "TensorRT-LLM": "tensorrt-llm"}
SYNCHRONOUS: Final = ("0.12.0",)  # vLLM versions before asynchronous scheduling became the default
ASSUMED: Final = f"mean or median not stated; {REQUESTS_PER_USER} requests a user assumed"
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
    shorter = (1 + SHORTEST) / 2
    decode_s = (shorter * float(row["osl"]) - 1) * seconds(row[f"tpot{_FIGURE}"])
    requests_per_s = _users(row) / (seconds(row[f"ttft{_FIGURE}"]) + decode_s)
    peak = hardware.compute.peak_flops[PEAK_DTYPE[row["weight_dtype"]]].value * int(float(row["tp"]))
    return requests_per_s * shorter * float(row["isl"]) * 2 * weights / peak


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
                "prompt_tokens": _lengths(float(row["isl"])),
                "output_tokens": _lengths(float(row["osl"])),
            },
        },
        "measured": {
            "ttft_s": {"mean": seconds(row[f"ttft{_FIGURE}"])},
            "tpot_s": {"mean": seconds(row[f"tpot{_FIGURE}"])},
        },
    }


def _engine(row: Row, users: int) -> Document:
    engine: Document = {"preset": PRESET[row["engine"]], "quantization": row["weight_dtype"]}
    engine |= {"max_num_seqs": max(256, users), "sampling": "greedy"}  # benchmark clients send random tokens, greedily
    if row["engine"] == "vLLM":
        if re.fullmatch(r"[\d.]+", row["engine_version"]):
            engine["version"] = row["engine_version"]
        if row["engine_version"] in SYNCHRONOUS:
            engine["async_scheduling"] = False
    return engine


def _lengths(nominal: float) -> Document:
    return {"distribution": "uniform", "min": round(SHORTEST * nominal), "max": round(nominal)}
