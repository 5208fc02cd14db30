"""The run as a Chrome trace, to be opened in Perfetto: engine steps, counters, each request from arrival to finish."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from reports.families import by_family
from sim.metrics_steps import middle_step, row_times_s
from sim.records import STATUS
from sim.result import Result, arrays_of

#: A browser holds about a million events; a longer run is shown from its start up to here.
MAX_STEP_ROWS: Final = 100_000
MAX_REQUESTS: Final = 20_000
#: Steps that tell where their time went; to price a step takes longer than to write it.
MAX_BREAKDOWNS: Final = 10_000
_NS: Final = 1e-9

Event = dict[str, Any]


def write_timeline(result: Result, path: Path) -> None:
    """Write the trace; times are microseconds from the start of the run."""
    rows, requests = len(result.step_columns), len(result.request_columns)
    shown = {"steps_shown": min(rows, MAX_STEP_ROWS), "steps": rows}
    shown |= {"requests_shown": min(requests, MAX_REQUESTS), "requests": requests}
    if result.context.breakdown is not None:
        shown["steps_with_breakdown"] = min(rows, MAX_BREAKDOWNS)
    with path.open("w", encoding="utf-8") as file:
        header = json.dumps({"name": result.summary.name, **shown})
        file.write(f'{{"displayTimeUnit": "ms", "otherData": {header}, "traceEvents": [')
        _write_events(file, _events(result))
        file.write("\n]}\n")


def _write_events(file: TextIO, events: Iterator[Event]) -> None:
    separator = "\n"
    for event in events:
        file.write(separator + json.dumps(event))
        separator = ",\n"


def _events(result: Result) -> Iterator[Event]:
    replicas = result.context.scenario.layout.replicas
    for replica in range(replicas):
        yield _named(_engine(replica), "process_name", f"engine {replica}" if replicas > 1 else "engine")
        yield _named(
            _requests(replica), "process_name", f"requests of engine {replica}" if replicas > 1 else "requests"
        )
    lanes = _lanes(result)
    for process, lane in sorted({(_engine(replica), lane) for replica, lane in lanes}):
        yield _named(process, "thread_name", f"steps {lane + 1}" if lane else "steps", lane)
    yield from _steps(result, lanes)
    yield from _request_slices(result)
    yield from _flows(result, lanes)


def _lanes(result: Result) -> list[tuple[int, int]]:
    """(replica, lane) of each row: the first lane free at its start, as micro-batches of a pipeline overlap."""
    arrays = arrays_of(result.step_columns)
    starts = arrays["start_s"][:MAX_STEP_ROWS].tolist()
    lengths, replicas = row_times_s(arrays).tolist(), arrays["replica"].tolist()
    free_us: dict[int, list[float]] = {}
    lanes = []
    for replica, start, length in zip(replicas, starts, lengths, strict=False):
        ends = free_us.setdefault(replica, [])
        lane = next((number for number, end in enumerate(ends) if end <= _us(start)), len(ends))
        ends[lane:] = [_us(start + length), *ends[lane + 1 :]]
        lanes.append((replica, lane))
    return lanes


def _engine(replica: int) -> int:
    return 2 * replica + 1


def _requests(replica: int) -> int:
    return 2 * replica + 2


def _named(process: int, kind: str, name: str, thread: int = 0) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _steps(result: Result, lanes: Sequence[tuple[int, int]]) -> Iterator[Event]:
    arrays = arrays_of(result.step_columns)
    length = row_times_s(arrays)[:MAX_STEP_ROWS].tolist()
    columns = {name: values[:MAX_STEP_ROWS].tolist() for name, values in arrays.items()}
    names = list(columns)
    idle = _idle_after(arrays["replica"], arrays["start_s"], row_times_s(arrays)).tolist()
    shape = {name: np.rint(values).astype(np.int64).tolist() for name, values in _priced(arrays, result).items()}
    for index, values in enumerate(zip(*columns.values(), strict=True)):
        row = dict(zip(names, values, strict=True))
        process, start = _engine(row["replica"]), _us(row["start_s"])
        end = _us(row["start_s"] + length[index])
        arguments = _step_arguments(row) | _breakdown(result, shape, index)
        yield {"ph": "X", "name": _step_name(row), "cat": "step", "pid": process, "tid": lanes[index][1],
               "ts": start, "dur": round(end - start, 3), "args": arguments}  # fmt: skip
        yield from _counters(process, start, row["running"], row["waiting"], row["used_blocks"])
        if idle[index]:
            yield from _counters(process, _us(row["start_s"] + length[index]), 0, 0, 0)


def _counters(process: int, at_us: float, running: int, waiting: int, blocks: int) -> Iterator[Event]:
    shared = {"ph": "C", "pid": process, "ts": at_us}
    yield {"name": "sequences", **shared, "args": {"running": running, "waiting": waiting}}
    yield {"name": "KV blocks", **shared, "args": {"used": blocks}}


def _idle_after(replica: NDArray[Any], start_s: NDArray[Any], length_s: NDArray[Any]) -> NDArray[np.bool_]:
    """(rows,) whether the engine of a row has nothing to do at the row's end."""
    idle = np.ones(len(replica), bool)
    for number in np.unique(replica):
        own = np.flatnonzero(replica == number)
        idle[own[:-1]] = start_s[own[1:]] > start_s[own[:-1]] + length_s[own[:-1]] + 1e-9
    return idle


def _step_name(row: Event) -> str:
    if not row["prefill_seqs"]:
        return f"decode {row['decode_seqs']}" + (f" (x{row['steps']})" if row["steps"] > 1 else "")
    prefill = f"prefill {row['prefill_tokens']}"
    return f"{prefill} + decode {row['decode_seqs']}" if row["decode_seqs"] else prefill


def _step_arguments(row: Event) -> Event:
    wanted = ("step", "steps", "decode_seqs", "decode_context", "prefill_seqs", "prefill_tokens", "preempted")
    return {name: row[name] for name in wanted}


def _priced(arrays: Mapping[str, NDArray[Any]], result: Result) -> dict[str, NDArray[Any]]:
    if result.context.breakdown is None:
        return {}
    return middle_step({name: values[:MAX_BREAKDOWNS] for name, values in arrays.items()})


def _breakdown(result: Result, shape: Mapping[str, list[int]], index: int) -> Event:
    """Microseconds of the row's middle step by family of operators."""
    breakdown = result.context.breakdown
    if breakdown is None or index >= MAX_BREAKDOWNS:
        return {}
    parts = by_family(breakdown({name: values[index] for name, values in shape.items()}))
    return {"us of a step": {name: round(value * 1e6, 1) for name, value in parts.items()}}


def _request_slices(result: Result) -> Iterator[Event]:
    """Nested async slices: the request, and in it queue, prefill and decode."""
    arrays = {name: values[:MAX_REQUESTS] for name, values in arrays_of(result.request_columns).items()}
    done = np.flatnonzero(arrays["status"] == STATUS.index("completed")).tolist()
    columns = {name: values.tolist() for name, values in arrays.items()}
    for index in done:
        row = {name: values[index] for name, values in columns.items()}
        moments = [row[name] for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s")]
        wanted = ("prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "priority")
        yield from _slice(row, f"request {row['id']}", moments[0], moments[3], {name: row[name] for name in wanted})
        for name, begin, end in zip(("queue", "prefill", "decode"), moments, moments[1:], strict=False):
            if end > begin:
                yield from _slice(row, name, begin, end, {})


def _flows(result: Result, lanes: Sequence[tuple[int, int]]) -> Iterator[Event]:
    """An arrow for each request: from the step that first has it over the one of its first token to its last."""
    steps, rows = arrays_of(result.step_columns), arrays_of(result.request_columns)
    done = np.flatnonzero(rows["status"][:MAX_REQUESTS] == STATUS.index("completed"))
    lane = np.array([lane for _, lane in lanes], np.int64)
    for replica in np.unique(rows["replica"][done]):
        own = np.flatnonzero(steps["replica"][:MAX_STEP_ROWS] == replica)
        start = steps["start_s"][own]
        end = start + row_times_s({name: values[own] for name, values in steps.items()})
        mine = done[(rows["replica"][done] == replica) & (rows["finish_s"][done] <= end.max(initial=0.0) + _NS)]
        for phase, moment in (("s", "scheduled_s"), ("t", "first_token_s"), ("f", "finish_s")):
            at = rows[moment][mine]
            row = _row_of(moment, at, start, end)
            inside = np.clip(at, start[row] + 0.1 * (end[row] - start[row]), start[row] + 0.9 * (end[row] - start[row]))
            threads = lane[own[row]].tolist()
            for request, time_s, thread in zip(rows["id"][mine].tolist(), inside.tolist(), threads, strict=True):
                yield {"ph": phase, "bp": "e", "name": "request", "cat": "flow", "id": request,
                       "pid": _engine(int(replica)), "tid": thread, "ts": _us(time_s)}  # fmt: skip


def _row_of(moment: str, at: NDArray[Any], start: NDArray[Any], end: NDArray[Any]) -> NDArray[Any]:
    """(requests,) the row that begins when a request is scheduled, or in which its token comes, which is at the end."""
    if moment == "scheduled_s":
        return np.asarray(np.searchsorted(start, at, side="right").clip(1) - 1)
    by_end = np.argsort(end, kind="stable")
    return np.asarray(by_end[np.searchsorted(end[by_end], at - _NS).clip(max=len(end) - 1)])


def _slice(row: Event, name: str, begin_s: float, end_s: float, arguments: Event) -> Iterator[Event]:
    shared = {"name": name, "cat": "request", "id": row["id"], "pid": _requests(row["replica"]), "tid": 0}
    yield {"ph": "b", "ts": _us(begin_s), **shared, "args": arguments}
    yield {"ph": "e", "ts": _us(end_s), **shared}


def _us(value_s: float) -> float:
    return round(value_s * 1e6, 3)
