"""Recorded workloads: readers of the formats that traces and benchmarks use, and a writer."""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from sim.errors import InputError
from sim.workload import PrefixSpans, Workload
from workloads.spec import MAX_REQUESTS, TRACE_FORMATS, TraceSpec
from workloads.traces import documents, tabular
from workloads.traces.layouts import LAYOUTS, layout_of
from workloads.traces.source import TraceFile
from workloads.traces.table import TraceTable

_TABULAR: Final = {layout.format: layout for layout in LAYOUTS}


def read_trace(spec: TraceSpec, base_dir: Path | None = None) -> Workload:
    """The requests of a trace file, as recorded but for ``rate_scale`` and ``max_requests``.

    Raises:
        InputError: no such file, an unknown or malformed format, a bad row (with its line), unsorted arrivals, a
            corrupt or truncated gzip, a file that expands without bound, no request at all.
    """
    file = TraceFile(Path(spec.path).expanduser(), base_dir)
    name = detect_format(file) if spec.format == "auto" else spec.format
    table = TraceTable(str(file.path), spec.max_requests or MAX_REQUESTS + 1)
    prefixes: PrefixSpans | None = None
    start = file.head.lstrip()[:1]
    if name == "oracle":
        documents.read_oracle(file, table)
    elif name == "sharegpt" and start in ("[", "{"):
        documents.read_conversations(file, table, spec)
    elif name == "inference-perf" and start == "[":
        documents.read_report(file, table)
    elif name == "inference-perf":
        prefixes = documents.read_shared_prefixes(file, table)
    else:
        layout = _TABULAR[name]
        read = tabular.read_parquet if file.parquet else tabular.read_json if start in ("[", "{") else tabular.read_csv
        tabular.read_rows(read(file, layout, table), layout, table, spec)
    if spec.max_requests is not None and table.full:
        table.notes.append(f"Only the first {spec.max_requests} requests of the trace.")
    if spec.rate_scale != 1.0:
        table.notes.append(f"Gaps between the trace's arrivals are divided by {spec.rate_scale:g}.")
    workload = table.workload(spec.rate_scale)
    return workload if prefixes is None else dataclasses.replace(workload, prefixes=prefixes)


def replay(spec: TraceSpec, seed: int, base_dir: Path | None = None) -> Workload:
    """A trace as a workload: its own arrivals, or those of ``spec.arrivals``."""
    workload = read_trace(spec, base_dir)
    if spec.arrivals is None:
        if workload.after is None and np.isnan(workload.arrival_s).all():
            remedy = "set trace.arrivals, e.g. {process: poisson, rate_per_s: 4}"
            raise InputError("workload.trace.path", f"{spec.path} holds lengths but no arrival times", remedy)
        return workload
    from workloads.synthetic import arrange

    if workload.after is not None:
        problem = "would replace arrivals that follow other requests"
        raise InputError("workload.trace.arrivals", problem, "remove it: this trace is closed-loop")
    chains = arrange(spec.arrivals, None, seed, len(workload), None)
    kept = first_requests(workload, len(chains.arrival_s))
    notes = kept.notes
    if len(kept) < len(workload):
        notes += (f"The stages end after {len(kept)} of the trace's {len(workload)} requests.",)
    return dataclasses.replace(
        kept,
        arrival_s=chains.arrival_s,
        after=chains.after,
        think_s=chains.think_s,
        in_turn=chains.in_turn,
        notes=notes,
    )


def first_requests(workload: Workload, count: int) -> Workload:
    """The first ``count`` requests of a workload."""
    columns = ("arrival_s", "prompt_tokens", "output_tokens", "priority", "after", "think_s", "session_id")
    cut = {name: column[:count] for name in columns if (column := getattr(workload, name)) is not None}
    prefixes = workload.prefixes
    if prefixes is not None:
        rows = int(prefixes.offsets[min(count, len(workload))])
        prefixes = PrefixSpans(prefixes.offsets[: count + 1], prefixes.node[:rows], prefixes.end[:rows])
    return dataclasses.replace(workload, **cut, prefixes=prefixes)


def detect_format(file: TraceFile) -> str:
    """The format of a trace, from its first lines; raises `InputError` when none fits."""
    if file.parquet:
        return "servecast"
    head = file.head.lstrip()
    if head.startswith(("[", "{")):
        return _detect_json(file, head)
    names = [name.strip() for name in head.split("\n", 1)[0].replace('"', "").split(",")]
    layout = layout_of(names)
    if layout is None:
        known = "; ".join(f"{layout.format}: {layout.wanted}" for layout in LAYOUTS)
        problem = f"no known trace format has the columns {', '.join(names)[:120]!r}"
        for mark, word in ((";", "semicolons"), ("\t", "tabs")):
            if len(names) == 1 and layout_of([name.strip() for name in names[0].split(mark)]) is not None:
                raise InputError(str(file.path), f"has its columns separated by {word}", "separate them by commas")
        raise InputError(str(file.path), problem, f"rename the columns as in one of {known}")
    return layout.format


def _detect_json(file: TraceFile, head: str) -> str:
    """The format of JSON lines or of an array by the keys of the first object; the oracle's is one object of all."""
    keys: set[str] = set()
    if head.startswith("["):
        keys = set(next(file.json_array(), (0, {}))[1])
    else:
        with suppress(ValueError, RecursionError):
            keys = set(json.loads(head.split("\n", 1)[0]))
    layout = layout_of(keys)
    if layout is not None:
        return layout.format
    if "conversations" in keys or "conversation" in keys:
        return "sharegpt"
    if "shared_prefix_length" in keys or {"start_time", "info"} <= keys:
        return "inference-perf"
    if head.startswith("{") and '"requests"' in head:
        return "oracle"
    raise InputError(str(file.path), "no known trace format begins like this", f"one of {', '.join(TRACE_FORMATS)}")
