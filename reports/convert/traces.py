"""A trace in another format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from sim.errors import InputError, nearest
from sim.files import whole_file
from sim.workload import Workload
from workloads import WorkloadSpec, build_workload, write_trace
from workloads.traces.hash_chains import shared_block_ids

FORMATS: Final = ("servecast", "mooncake", "azure", "burstgpt", "vidur")
_MOONCAKE_BLOCK: Final = 512
_EPOCH: Final = datetime(2024, 1, 1)


def convert_trace(source: Path, target: Path, to: str, source_format: str = "auto") -> tuple[int, tuple[str, ...]]:
    """Write the requests of ``source`` to ``target``; their number and what a reader should know.

    Raises `InputError` for a trace that cannot be read, or a format that cannot hold it.
    """
    if to not in FORMATS:
        raise InputError("--to", f"unknown trace format '{to}'", nearest(to, FORMATS))
    spec = WorkloadSpec.parse({"trace": {"path": str(source.absolute()), "format": source_format}})
    workload = build_workload(spec, 0)
    if to == "servecast":
        write_trace(workload, target)
        return len(workload), workload.notes
    if workload.after is not None and bool((workload.after >= 0).any()):
        raise InputError("--to", f"{to} cannot say that a request follows another", "write the servecast format")
    lines = {"mooncake": _mooncake, "azure": _azure, "burstgpt": _burstgpt, "vidur": _vidur}[to]
    with whole_file(target) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines(workload))
    lost = () if to == "mooncake" or workload.prefixes is None else (f"{to} does not hold which prompts share text",)
    return len(workload), (*workload.notes, *lost)


def _rows(workload: Workload) -> Iterator[tuple[float, int, int]]:
    columns = (workload.arrival_s, workload.prompt_tokens, workload.output_tokens)
    return zip(*(column.tolist() for column in columns), strict=True)


def _mooncake(workload: Workload) -> Iterator[str]:
    """Every block has an id; a text that nobody shares gets fresh ones."""
    offsets, ids = shared_block_ids(workload, _MOONCAKE_BLOCK) if workload.prefixes else (np.zeros(1, int), None)
    bounds = list(pairwise(offsets.tolist())) if ids is not None else [(0, 0)] * len(workload)
    shared: list[Any] = ids.tolist() if ids is not None else []
    fresh = max(shared, default=-1) + 1
    for (arrival, prompt, output), (low, high) in zip(_rows(workload), bounds, strict=True):
        own = shared[low:high]
        missing = max(0, -(-prompt // _MOONCAKE_BLOCK) - len(own))
        blocks = [*own, *range(fresh, fresh + missing)]
        fresh += missing
        row = {"timestamp": round(arrival * 1000), "input_length": prompt, "output_length": output, "hash_ids": blocks}
        yield json.dumps(row)


def _azure(workload: Workload) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens"
    for arrival, prompt, output in _rows(workload):
        moment = _EPOCH + timedelta(seconds=arrival)
        yield f"{moment:%Y-%m-%d %H:%M:%S.%f},{prompt},{output}"


def _burstgpt(workload: Workload) -> Iterator[str]:
    yield "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    for arrival, prompt, output in _rows(workload):
        yield f"{arrival:.6f},servecast,{prompt},{output},{prompt + output},Conversation log"


def _vidur(workload: Workload) -> Iterator[str]:
    yield "arrived_at,num_prefill_tokens,num_decode_tokens"
    for arrival, prompt, output in _rows(workload):
        yield f"{arrival!r},{prompt},{output}"
