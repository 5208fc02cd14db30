"""The engine on an oracle input, without a step log: what a user's run does, records and all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from oracle_format import Line

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import engine_of, workload_of
from sim.cost.linear import LinearStepTimer
from sim.workload import PrefixSpans

TICK_S = 1e-6


def run_fleet(
    document: Line,
    *,
    jump: bool,
    window: int | None = None,
    spans: bool = False,
    watch: Callable[[Fleet], None] | None = None,
) -> Fleet:
    """Run the engine.

    Args:
        document: an oracle input.
        jump: time by change, or one event a step.
        window: sliding window of the model, tokens.
        spans: give the shared text as the workload generators do, instead of one id a block.
        watch: called once for each step, between steps.
    """
    engine = engine_of(document["config"])
    timer = LinearStepTimer(**document["latency"])
    timer.window = window
    workload = workload_of(document["requests"], engine.block_size)
    if spans:
        workload = replace(workload, prefixes=spans_of(document["requests"]))
    on_line = (lambda line: watch(fleet)) if watch else None
    fleet = Fleet(workload, [engine], timer, RoundRobin(), tick_s=TICK_S, jump=jump, on_line=on_line)
    fleet.run()
    return fleet


def spans_of(requests: list[Line]) -> PrefixSpans:
    """Shared text as rows (node, end): one node a shared beginning, and the private text of a quoted request."""
    offsets, nodes, ends = [0], [], []
    for index, request in enumerate(requests):
        end = 0
        for name, length in request.get("segments", []):
            end += length
            kind, number = name.split(":")
            if kind != "sys" and int(number) == index:
                continue  # its own text needs no row
            node = int(number) if kind == "sys" else ~int(number)
            if len(nodes) > offsets[-1] and nodes[-1] == node:
                ends[-1] = end
            else:
                nodes.append(node)
                ends.append(end)
        offsets.append(len(nodes))
    return PrefixSpans(*(np.array(values, dtype=np.int64) for values in (offsets, nodes, ends)))


def request_rows(fleet: Fleet) -> list[Line]:
    """The rows of the requests that were served, as request lines."""
    table = fleet.recorder.requests.sorted_by("id")
    names = {"arrival_us": "arrival_s", "admitted_us": "scheduled_s", "first_token_us": "first_token_s"}
    names |= {"finish_us": "finish_s"}
    columns: dict[str, list[Any]] = {
        name: [round(value / TICK_S) for value in table.column(source)] for name, source in names.items()
    }
    for name in ("id", "preemptions", "cached_tokens", "resume_cached_tokens", "output_tokens"):
        columns[name] = list(table.column(name))
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [row for row, status in zip(rows, table.column("status"), strict=True) if status == 0]
