"""`servecast show layouts`: which layouts of a model on a GPU are legal and fit, with the memory of one GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.text import count, gib, number
from sim.errors import InputError
from sim.planner.layouts import FITS, LayoutCheck, check_layouts
from sim.scenario import Scenario

MOST_GPUS: Final = 16
# Layouts need no traffic; this stands in for it.
_NO_WORKLOAD: Final[dict[str, Any]] = {
    "num_requests": 1,
    "arrivals": {"process": "constant", "rate_per_s": 1.0},
    "prompt_tokens": 1,
    "output_tokens": 1,
}
_HEADER: Final = ("layout", "GPUs", "weights", "other", "KV cache", "KV tokens", "longest requests", "verdict")


def show_layouts(
    model: str | None, hardware: str | None, overrides: Sequence[str], max_gpus: int, *, as_json: bool
) -> None:
    """Print the layouts of at most ``max_gpus`` GPUs.

    Raises:
        InputError: a name missing or unknown, an override that is none.
    """
    if model is None or hardware is None:
        missing = "a model and a GPU" if model is None else "a GPU"
        raise InputError("show layouts", f"needs {missing}", "for example show layouts llama-3.1-70b h100-sxm")
    base = Scenario.from_dict({"name": "layouts", "model": model, "hardware": hardware, "workload": _NO_WORKLOAD})
    scenario = base.with_overrides(overrides)
    checks = check_layouts(scenario, max_gpus)
    if as_json:
        print(json.dumps([_document(check) for check in checks], indent=2))
        return
    _print(checks)


def _document(check: LayoutCheck) -> dict[str, Any]:
    layout, budget = check.layout, check.budget
    document: dict[str, Any] = {
        "label": check.layout.label,
        "layout": layout.model_dump(exclude_defaults=True),
        "gpus": layout.gpus_per_replica,
        "verdict": check.verdict,
    }
    if budget is not None:
        document["gpu_bytes"] = {
            "usable": budget.usable_bytes,
            "weights": budget.weights_bytes,
            "activations_and_overhead": budget.charges.total,
            "kv": max(0, budget.kv_bytes),
            "missing": max(0, check.missing_bytes),
        }
        document["binding_rank"] = budget.binding_rank
        document["kv_tokens"] = _tokens(check)
        document["max_model_len"] = budget.max_model_len
        document["longest_requests"] = round(budget.concurrency(budget.max_model_len), 2)
    if check.refusal is not None:
        document["reason"] = check.refusal.problem
        document["remedy"] = check.refusal.remedy
    return document


def _tokens(check: LayoutCheck) -> int:
    """Tokens that the KV caches of the whole engine hold."""
    return check.budget.capacity_tokens * check.layout.data_parallel_size if check.budget is not None else 0


def _row(check: LayoutCheck) -> tuple[str, ...]:
    budget = check.budget
    head = (check.layout.label, str(check.layout.gpus_per_replica))
    if budget is None:
        assert check.refusal is not None
        return (*head, "", "", "", "", "", "; ".join(filter(None, (check.refusal.problem, check.refusal.remedy))))
    memory = (gib(budget.weights_bytes), gib(budget.charges.total))
    if check.verdict != FITS:
        return (*head, *memory, "", "", "", f"{gib(check.missing_bytes)} missing")
    room = (gib(budget.kv_bytes), number(_tokens(check)), number(budget.concurrency(budget.max_model_len)))
    return (*head, *memory, *room, check.verdict)


def _print(checks: Sequence[LayoutCheck]) -> None:
    console = Console(highlight=False)
    rows = [_HEADER, *map(_row, checks)]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        style = "bold" if index == 0 else "" if checks[index - 1].verdict == FITS else "dim"
        console.print(Text("  ".join([*cells, row[-1]]).rstrip(), style=style), soft_wrap=True)
    fits = [check for check in checks if check.verdict == FITS]
    console.print()
    console.print(_summary(checks, fits), soft_wrap=True)


def _summary(checks: Sequence[LayoutCheck], fits: Sequence[LayoutCheck]) -> str:
    lengths = {check.budget.max_model_len for check in checks if check.budget is not None}
    longest = f"one request of {max(lengths):,} tokens (engine.max_model_len)" if lengths else "the longest request"
    lines = [f"Memory is of the GPU that holds the fewest KV blocks; a layout fits if {longest} does."]
    if fits:
        smallest = fits[0].layout.gpus_per_replica
        least = [check.layout.label for check in fits if check.layout.gpus_per_replica == smallest]
        lines.append(f"Smallest that fit: {', '.join(least)} on {count(smallest, 'GPU')}.")
    else:
        lines.append("None fits: allow more GPUs (--max-gpus), shorter requests or smaller formats (--set).")
    return "\n".join(lines)
