"""Equal to the recordings of the real scheduler, step by step and in every field, with and without jumps."""

from __future__ import annotations

from pathlib import Path

import pytest
from oracle_format import first_difference, load

from sim.conformance import run_oracle


@pytest.mark.parametrize("mode", ["exact", "jump"])
def test_engine_equals_the_recording(oracle_dir: Path, scenario: str, mode: str) -> None:
    document, steps, requests = load(oracle_dir, scenario)
    got_steps, got_requests = run_oracle(document, exact=mode == "exact")
    assert not (message := first_difference("steps", got_steps, steps)), message
    assert not (message := first_difference("requests", got_requests, requests)), message
