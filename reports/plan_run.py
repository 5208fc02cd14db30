"""What the plan command does once its options are read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from reports.plan_outputs import as_document, write_plan
from reports.plan_terminal import print_plan
from reports.sweep_outputs import check_folder
from reports.sweep_run import point_progress
from sim.errors import InputError
from sim.planner.planning import plan
from sim.planner.schedule import read_curve
from sim.planner.space import Options
from sim.scenario import Scenario

Value = TypeVar("Value")


def run_plan(
    path: Path,
    options: Options,
    *,
    overrides: list[str],
    rate_curve: str | None,
    what_ifs: bool,
    out: Path | None,
    executor: str,
    address: str | None,
    workers: int | None,
    as_json: bool,
) -> bool:
    """Plan, write and print; returns whether something keeps the promise. Raises `InputError`, `KeyboardInterrupt`."""
    begin = time.perf_counter()
    scenario = Scenario.from_file(path).with_overrides(overrides)
    curve = read_curve(rate_curve) if rate_curve is not None else None
    if out is not None:
        check_folder(out)
    with point_progress(f"{scenario.name} plan", out) as progress:
        result = plan(
            scenario, options, rate_curve=curve, what_ifs=what_ifs, store=out,
            executor=executor, address=address, workers=workers, progress=progress,
        )  # fmt: skip
    if out is not None:
        write_plan(result, out)
    if as_json:
        print(json.dumps(as_document(result), indent=2))
    else:
        print_plan(result.plan, result.winner, out, time.perf_counter() - begin)
    return result.plan.winner is not None


def parse_options(
    *,
    hardware: str,
    max_gpus: int,
    max_usd_per_hour: float | None,
    max_watts: float | None,
    tensor_parallel: str,
    pipeline_parallel: str,
    disaggregation: bool,
    quantization: str,
    kv_cache_dtype: str,
    max_num_seqs: str,
    max_num_batched_tokens: str,
    prices: list[str],
    min_attainment: float,
    error_band: float | None,
) -> Options:
    """Options from the texts of the command line. Raises `InputError` naming the option."""
    return Options(
        hardware=_list("--hardware", hardware, str),
        max_gpus=max_gpus,
        max_usd_per_hour=max_usd_per_hour,
        max_watts=max_watts,
        tensor_parallel=_list("--tensor-parallel", tensor_parallel, _size),
        pipeline_parallel=_list("--pipeline-parallel", pipeline_parallel, _size) or (1,),
        disaggregation=disaggregation,
        quantization=_list("--quantization", quantization, _format),
        kv_cache_dtype=_list("--kv-cache-dtype", kv_cache_dtype, str),
        max_num_seqs=_list("--max-num-seqs", max_num_seqs, _size),
        max_num_batched_tokens=_list("--max-num-batched-tokens", max_num_batched_tokens, _size),
        usd_per_gpu_hour=dict(_price(text) for text in prices),
        min_attainment=min_attainment,
        error_band=error_band,
    )


def _list(option: str, text: str, read: Callable[[str], Value]) -> tuple[Value, ...] | None:
    """``a,b,c``; None for nothing."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(words):
        raise InputError(option, f"'{text}' has an empty entry", "write a,b,c")
    try:
        return tuple(dict.fromkeys(read(word) for word in words)) or None
    except ValueError:
        raise InputError(
            option, f"'{text}' is not a list of whole numbers of at least 1", "for example 1,2,4"
        ) from None


def _size(word: str) -> int:
    value = int(word)
    if value < 1:
        raise ValueError(word)
    return value


def _format(word: str) -> str | None:
    """``stored`` is the model as it is."""
    return None if word == "stored" else word


def _price(text: str) -> tuple[str, float]:
    name, separator, value = text.partition("=")
    try:
        price = float(value)
    except ValueError:
        price = -1.0
    if not separator or not name.strip() or not 0 < price < 1e6:
        raise InputError(f"--price {text}", "is not of the form HARDWARE=DOLLARS", "for example --price h200-sxm=2.8")
    return name.strip(), price
