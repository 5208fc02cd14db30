"""Cases from the silicon sample of aiconfigurator (Apache-2.0, NVIDIA): TTFT and TPOT at a fixed concurrency.

Dense models in aggregated serving. The sample does not say whether a figure is a mean or a median, how many requests
were sent, nor the engine's limits: means, ten requests a user and the engine's usual budget are assumed, and lengths
are drawn in 0.8 to 1.0 of nominal. TensorRT-LLM and SGLang are simulated with vLLM's scheduler, which fills a batch
alike in a closed loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from calibration.cases_open import seconds, tags_of
from calibration.cases_tags import HARDWARE, kind_of

Row = dict[str, str]
Document = dict[str, Any]

# model of a row -> (catalogue name, quantisation where the name implies it)
MODELS: Final = {
    "Qwen/Qwen3-32B": "Qwen/Qwen3-32B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Llama-3.1-8B-Instruct",
}
REQUESTS_PER_USER: Final = 10
SHORTEST: Final = 0.8  # of the nominal length
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
    )


def _case(row: Row) -> Document:
    users = int(row["rate_or_concurrency"].split()[1])
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
    engine: Document = {"preset": "vllm", "quantization": row["weight_dtype"], "max_num_seqs": max(256, users)}
    if row["engine"] == "vLLM" and row["engine_version"] in SYNCHRONOUS:
        engine["async_scheduling"] = False
    return engine


def _lengths(nominal: float) -> Document:
    return {"distribution": "uniform", "min": round(SHORTEST * nominal), "max": round(nominal)}
