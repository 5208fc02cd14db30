"""Reading traces with a shape of their own: oracle scenarios, benchmark reports, conversations, shared-prefix lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from sim.errors import InputError
from sim.workload import PrefixSpans
from workloads.spec import TraceSpec
from workloads.traces.hash_chains import HashChains
from workloads.traces.source import TraceFile, as_object
from workloads.traces.table import TraceTable, number, positive, whole


def read_oracle(file: TraceFile, table: TraceTable) -> None:
    """Requests of a scheduler-oracle scenario (``NAME.input.json``): whole microseconds, hash ids of full blocks."""
    document = as_object(file.json_document(), table.where)
    requests = document.get("requests")
    if not isinstance(requests, list):
        raise InputError(table.where, "has no list of requests", "give a NAME.input.json of the oracle")
    config = document.get("config")
    block_tokens = config.get("block_size", 16) if isinstance(config, dict) else 16
    table.hashes = HashChains(positive(block_tokens, "config.block_size", table.where), outputs=True)
    for index, entry in enumerate(requests):
        where = f"{table.where}:{index}"
        request = as_object(entry, where)
        if "arrival_step" in request:
            raise InputError(where, "arrives at a step, not at a time", "only the conformance tests replay this")
        table.add(index, *(whole(_need(request, key, where), key, where) for key in ("prompt_len", "output_len")))
        after = request.get("after")
        table.column("after", "q").append(-1 if after is None else whole(after, "after", where))
        table.column("think_s", "d").append(number(request.get("think_us", 0), "think_us", where) / 1e6)
        arrival_s = (
            math.nan if after is not None else number(_need(request, "arrival_us", where), "arrival_us", where) / 1e6
        )
        table.arrival_s.append(arrival_s)
        table.column("priority", "q").append(whole(request.get("priority", 0), "priority", where))
        table.hashes.add(request.get("hash_ids", []), where)
        if table.full:
            return


def read_report(file: TraceFile, table: TraceTable) -> None:
    """Requests of an inference-perf ``per_request_lifecycle_metrics.json``, in order of their start.

    Lengths are the server's count where it is there; else the requested ``max_tokens`` where the request ignored the
    end-of-sequence token; else the client's count, which re-tokenises and may be low. Failed requests are left out.
    """
    rows: list[tuple[float, int, int, int]] = []
    failed = counted = 0
    for index, entry in file.json_array():
        where = f"{table.where}[{index}]"
        if entry.get("error"):
            failed += 1
            continue
        start = number(_need(entry, "start_time", where), "start_time", where)
        prompt_tokens, output_tokens, by_client = _report_lengths(entry, where)
        counted += by_client
        rows.append((start, index, prompt_tokens, output_tokens))
    for start, index, prompt_tokens, output_tokens in sorted(rows)[: table.limit]:
        table.arrival_s.append(start)
        table.add(index, prompt_tokens, output_tokens)
    table.from_first = True
    if failed:
        table.notes.append(f"{failed} failed requests were left out.")
    if counted:
        table.notes.append(f"Output lengths of {counted} requests are the client's count, which may be low.")


def read_conversations(file: TraceFile, table: TraceTable, spec: TraceSpec) -> None:
    """First exchanges of ShareGPT conversations: what the human says first is the prompt, what is answered the output.

    The file has text and no token counts: tokens are estimated as characters / ``chars_per_token``, at least 1.
    """
    skipped = 0
    for line, entry in file.json_objects():
        turns = entry.get("conversations", entry.get("conversation"))
        texts = _first_exchange(turns)
        if texts is None:
            skipped += 1
            continue
        table.add(line, *(max(1, round(len(text) / spec.chars_per_token)) for text in texts))
        if table.full:
            break
    table.notes.append(f"Token counts are estimated at {spec.chars_per_token:g} characters a token.")
    if skipped:
        table.notes.append(f"{skipped} conversations without a question and an answer were left out.")


def read_shared_prefixes(file: TraceFile, table: TraceTable) -> PrefixSpans | None:
    """Requests of an inference-perf shared-prefix trace: a shared beginning by id, then private text.

    The same id and length are the same text; another length under the same id is another text, as in that benchmark.
    """
    texts: dict[tuple[int, int], int] = {}
    nodes: list[int] = []
    ends: list[int] = []
    table.from_first = True
    for line, record in file.json_lines():
        where = file.at(line)
        keys = ("shared_prefix_length", "tail_input_length", "output_length")
        shared, tail, output = (whole(_need(record, key, where), key, where) for key in keys)
        if shared < 0 or tail < 0:
            raise InputError(where, f"lengths {shared} and {tail} must not be negative", "mend or drop the row")
        table.arrival_s.append(number(_need(record, "timestamp", where), "timestamp", where))
        table.add(line, shared + tail, output)
        prefix = record.get("shared_prefix_id")
        named = prefix is not None and shared > 0
        nodes.append(texts.setdefault((whole(prefix, "shared_prefix_id", where), shared), len(texts)) if named else -1)
        ends.append(shared)
        if table.full:
            break
    has = np.array(nodes) >= 0
    if not has.any():
        return None
    return PrefixSpans(np.concatenate(([0], np.cumsum(has))), np.array(nodes)[has], np.array(ends)[has])


def _report_lengths(entry: dict[str, Any], where: str) -> tuple[int, int, bool]:
    """(prompt tokens, output tokens, whether the client counted the output), of either generation of the report."""
    info = as_object(_need(entry, "info", where), where)
    response = as_object(info.get("response_metrics") or info, where)
    usage = as_object(response.get("server_usage") or {}, where)
    prompt = next((value for value in _keyed((usage, "prompt_tokens"), (info, "input_tokens"))), None)
    prompt_tokens = whole(prompt, "info.input_tokens", where)
    completion = usage.get("completion_tokens")
    if completion is None:
        completion = _pinned_output(entry.get("request"))
    by_client = completion is None
    output_tokens = whole(response.get("output_tokens") if by_client else completion, "output_tokens", where)
    return prompt_tokens, output_tokens, by_client


def _pinned_output(request: Any) -> Any:
    """``max_tokens`` of a request (JSON text) that ignores the end-of-sequence token, else None."""
    try:
        body = json.loads(request) if isinstance(request, str) else request
    except ValueError:
        return None
    if not isinstance(body, dict) or not body.get("ignore_eos"):
        return None
    return body.get("max_tokens", body.get("max_completion_tokens"))


def _keyed(*pairs: tuple[dict[str, Any], str]) -> Iterable[Any]:
    return (mapping[key] for mapping, key in pairs if mapping.get(key) is not None)


def _first_exchange(turns: Any) -> tuple[str, str] | None:
    """The first two texts of a conversation when both are there."""
    if not isinstance(turns, list) or len(turns) < 2:
        return None
    texts = [turn.get("value", turn.get("content")) if isinstance(turn, dict) else None for turn in turns[:2]]
    question, answer = texts
    if not isinstance(question, str) or not isinstance(answer, str) or not question or not answer:
        return None
    return question, answer


def _need(mapping: dict[str, Any], key: str, where: str) -> Any:
    if key not in mapping:
        raise InputError(where, f"{key} is missing", "mend or drop the request")
    return mapping[key]
