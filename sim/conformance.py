"""Runs the scenarios that record what a real vLLM scheduler did, through the same engine as every simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.cost.linear import LinearStepTimer
from sim.engine.config import EngineConfig
from sim.engine.log import Line
from sim.engine.recorder import Recorder
from sim.engine.scheduler import TOO_LARGE, TOO_LONG
from sim.engine.speculative_acceptance import RecordedRule
from sim.engine.speculative_config import Speculation
from sim.workload import PrefixSpans, Workload

TICK_S = 1e-6
CONFIG_DEFAULTS: dict[str, Any] = {
    "num_gpu_blocks": 1000,
    "block_size": 16,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 512,
    "max_model_len": 4096,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": False,
    "long_prefill_token_threshold": 0,
    "policy": "fcfs",
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "async_scheduling": False,
    "spec_method": None,
    "num_speculative_tokens": 0,
}

REJECTED_BY = {TOO_LONG: "max_model_len", TOO_LARGE: "num_gpu_blocks"}
REQUEST_KEYS = (
    "id",
    "arrival_us",
    "admitted_us",
    "first_token_us",
    "finish_us",
    "preemptions",
    "cached_tokens",
    "resume_cached_tokens",
    "output_tokens",
)


def run_oracle(document: dict[str, Any], *, exact: bool) -> tuple[list[Line], list[Line]]:
    """Simulate one oracle input; return its step lines and request lines in the oracle's format.

    Args:
        document: a parsed ``NAME.input.json``.
        exact: one event a step instead of time by change; the lines are the same.
    """
    engine = engine_of(document["config"])
    steps: list[Line] = []
    requests = document["requests"]
    fleet = Fleet(
        workload_of(requests, engine.block_size),
        [engine],
        LinearStepTimer(**document["latency"]),
        RoundRobin(),
        tick_s=TICK_S,
        jump=not exact,
        on_line=steps.append,
        arrival_steps={i: r["arrival_step"] for i, r in enumerate(requests) if "arrival_step" in r},
    )
    fleet.run()
    return steps, _request_lines(fleet.recorder)


def engine_of(given: dict[str, Any]) -> EngineConfig:
    """The engine of an oracle input's ``config``; drafts are accepted by the recordings' rule."""
    config = {**CONFIG_DEFAULTS, **given}
    method, drafts = config.pop("spec_method"), config.pop("num_speculative_tokens")
    if method and drafts:
        eagle = method == "eagle"
        config["speculation"] = Speculation(drafts, RecordedRule(drafts), drafts if eagle else 0, drops_last_hit=eagle)
    config["scheduling_policy"] = config.pop("policy")
    return EngineConfig(**config)


def workload_of(requests: list[dict[str, Any]], block_size: int) -> Workload:
    """The requests of an oracle input; ``hash_ids`` name the full blocks of prompt and output."""
    hashes = [request.get("hash_ids", []) for request in requests]
    ends = [list(range(block_size, block_size * len(ids) + 1, block_size)) for ids in hashes]
    return Workload(
        arrival_s=np.array([request.get("arrival_us", np.nan) for request in requests], dtype=float) * TICK_S,
        prompt_tokens=np.array([request["prompt_len"] for request in requests], dtype=np.int64),
        output_tokens=np.array([request["output_len"] for request in requests], dtype=np.int64),
        priority=np.array([request.get("priority", 0) for request in requests], dtype=np.int64),
        after=np.array([request.get("after", -1) for request in requests], dtype=np.int64),
        think_s=np.array([request.get("think_us", 0) for request in requests], dtype=float) * TICK_S,
        prefixes=PrefixSpans(
            np.cumsum([0] + [len(ids) for ids in hashes], dtype=np.int64),
            np.array([id for ids in hashes for id in ids], dtype=np.int64),
            np.array([end for row in ends for end in row], dtype=np.int64),
        ),
    )


def _request_lines(recorder: Recorder) -> list[Line]:
    table = recorder.requests.sorted_by("id")

    def micros(name: str) -> list[int]:
        return [round(value / TICK_S) if value >= 0 else -1 for value in table.column(name)]

    rows = zip(
        table.column("id"),
        micros("arrival_s"),
        micros("scheduled_s"),
        micros("first_token_s"),
        micros("finish_s"),
        table.column("preemptions"),
        table.column("cached_tokens"),
        table.column("resume_cached_tokens"),
        table.column("output_tokens"),
        table.column("reason"),
        strict=True,
    )
    lines: list[Line] = []
    for *values, reason in rows:
        line = dict(zip(REQUEST_KEYS, values, strict=True))
        if reason >= 0:
            line = {
                "id": line["id"],
                "arrival_us": line["arrival_us"],
                "rejected": REJECTED_BY[recorder.reasons[int(reason)]],
            }
        lines.append(line)
    return lines
