"""What tests ask of runs of random fleets, by jumps and step by step."""

from __future__ import annotations

import numpy as np
import pytest

from sim.cluster.fleet import Fleet
from sim.engine.stall import SimulationStalledError


def served(fleet: Fleet) -> Fleet | None:
    """Run it; None where requests of equal rank preempt each other for ever (vLLM too)."""
    try:
        fleet.run()
    except SimulationStalledError:
        return None
    return fleet


def assert_same_requests(jumped: Fleet | None, stepped: Fleet | None) -> None:
    """Jumps gave every request the times that single steps give it, in no more events."""
    if jumped is None or stepped is None:
        assert jumped is stepped
        return
    for name in jumped.recorder.requests.names:
        got, expected = (np.asarray(f.recorder.requests.sorted_by("id").column(name)) for f in (jumped, stepped))
        np.testing.assert_allclose(got, expected, rtol=1e-9, err_msg=name)
    assert jumped.engine_steps == stepped.engine_steps
    assert jumped.events <= stepped.events


def assert_gaps_and_blocks_add_up(fleet: Fleet) -> None:
    """The gaps of the records are those between the tokens of all answers, and every block is free at the end."""
    requests, steps = fleet.recorder.requests, fleet.recorder.steps
    done = np.asarray(requests.column("status")) == 0
    tokens = np.asarray(requests.column("output_tokens"))[done]
    runs, gaps = np.asarray(steps.column("steps")), np.asarray(steps.column("gaps"))
    assert (gaps * runs).sum() + sum(fleet.recorder.gap_tokens) == (tokens - 1).sum()
    lasted = runs * np.asarray(steps.column("duration_s"))
    lasted = lasted + np.asarray(steps.column("increment_s")) * runs * (runs - 1) / 2
    spans = (np.asarray(requests.column("finish_s")) - np.asarray(requests.column("first_token_s")))[done].sum()
    odd = sum(g * n for g, n in zip(fleet.recorder.gaps_s, fleet.recorder.gap_tokens, strict=True))
    assert (gaps * lasted).sum() + odd == pytest.approx(spans)
    for replica in fleet.replicas:
        replica.scheduler.pool.check([])
        assert replica.scheduler.pool.free == replica.scheduler.pool.usable_blocks
