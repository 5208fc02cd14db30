"""The judge itself is judged by the real scheduler's recordings, in every field."""

from __future__ import annotations

from pathlib import Path

import pytest
from naive_vllm import simulate
from oracle_format import first_difference, load, names

ORACLE = Path(__file__).resolve().parents[1] / "conformance" / "oracle"


@pytest.mark.parametrize("name", names(ORACLE))
def test_naive_scheduler_equals_the_recording(name: str) -> None:
    document, steps, requests = load(ORACLE, name)
    got_steps, got_requests = simulate(document)
    assert not (message := first_difference("steps", got_steps, steps)), message
    assert not (message := first_difference("requests", got_requests, requests)), message
