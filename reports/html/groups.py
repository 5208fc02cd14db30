"""Latencies by who asked: priority, conversation, turn of it, and the engine that served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reports.html.markup import Markup, join, table
from reports.text import number, percent, seconds
from sim.metrics import request_latencies
from sim.records import STATUS
from sim.result import Result, arrays_of

MOST: Final = 10
_HEADER: Final = ("requests", "completed", "prompt tokens", "output tokens", "cached", "TTFT p50", "TTFT p99",
                  "TPOT p50", "E2E p50", "E2E p99")  # fmt: skip


def groups_section(result: Result) -> Markup | None:
    """A table for each way in which the requests fall into groups; None where they do not."""
    rows = arrays_of(result.request_columns)
    latencies = request_latencies(rows)
    tables = []
    sessions = rows["session_id"]
    for title, keys, name in (
        ("By priority (smaller is served first)", rows["priority"], lambda key: f"priority {key}"),
        ("By turn of the conversation", _turns(sessions), lambda key: f"turn {key}"),
        ("By conversation", sessions, lambda key: f"conversation {key}" if key >= 0 else "none"),
        ("By engine", rows["replica"], lambda key: f"engine {key}" if key >= 0 else "none"),
    ):
        if len(np.unique(keys)) > 1:
            tables.append(_grouped(title, keys, name, rows, latencies))
    return join(tables) if tables else None


def _turns(sessions: NDArray[Any]) -> NDArray[np.int64]:
    """(n,) the how-manieth request of its session each is, from 1; 1 without a session."""
    order = np.argsort(sessions, kind="stable")
    ordered = sessions[order]
    begins = np.flatnonzero(np.append(True, np.diff(ordered) != 0))
    length = np.diff(np.append(begins, len(ordered)))
    turn = np.empty(len(sessions), np.int64)
    turn[order] = np.arange(len(ordered)) - np.repeat(begins, length) + 1
    turn[sessions < 0] = 1
    return turn


def _grouped(
    title: str,
    keys: NDArray[Any],
    name: Callable[[int], str],
    rows: dict[str, NDArray[Any]],
    latencies: dict[str, NDArray[Any]],
) -> Markup:
    """The groups in order; of very many those with the most tokens."""
    values, member = np.unique(keys, return_inverse=True)
    tokens = np.bincount(member, weights=rows["prompt_tokens"] + rows["output_tokens"])
    chosen = np.arange(len(values))
    if len(values) > MOST:
        chosen = np.sort(np.argsort(-tokens, kind="stable")[:MOST])
        title += f": the {MOST} with the most tokens of {len(values):,}"
    lines = [(name(int(values[at])), *_line(member == at, rows, latencies)) for at in chosen]
    return table(("", *_HEADER), lines, title)


def _line(own: NDArray[np.bool_], rows: dict[str, NDArray[Any]], latencies: dict[str, NDArray[Any]]) -> list[str]:
    done = own & (rows["status"] == STATUS.index("completed"))
    prompts = int(rows["prompt_tokens"][own].sum())

    def at(metric: str, level: float) -> str:
        values = latencies[metric][done]
        values = values[~np.isnan(values)]
        return seconds(float(np.quantile(values, level))) if len(values) else "-"

    return [
        f"{int(own.sum()):,}",
        f"{int(done.sum()):,}",
        number(prompts),
        number(int(rows["output_tokens"][own].sum())),
        percent(int(rows["cached_tokens"][own].sum()) / prompts) if prompts else "-",
        at("ttft_s", 0.5),
        at("ttft_s", 0.99),
        at("tpot_s", 0.5),
        at("e2e_s", 0.5),
        at("e2e_s", 0.99),
    ]
