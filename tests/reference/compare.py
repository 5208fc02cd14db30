"""The engine, with and without jumps, against the judge: every field of every line."""

from __future__ import annotations

from naive_vllm import simulate
from oracle_format import Line, first_difference

from sim.conformance import run_oracle

MAX_STEPS = 4000


def disagreement(document: Line) -> str:
    """Where the engine differs from the judge on one scenario; empty when it does not.

    Raises:
        NoProgress: the judge itself does not come to an end.
    """
    steps, requests = simulate(document, MAX_STEPS)
    for mode in ("exact", "jump"):
        got_steps, got_requests = run_oracle(document, exact=mode == "exact")
        message = first_difference("steps", got_steps, steps) or first_difference("requests", got_requests, requests)
        if message:
            return f"{mode}: {message}"
    return ""
