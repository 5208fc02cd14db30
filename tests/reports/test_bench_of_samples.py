"""What a benchmark client is told about several answers to a prompt."""

from __future__ import annotations

from typing import Any

from reports.plan_bench import traffic_of
from sim import Scenario


def traffic(**keys: Any) -> Any:
    load = {
        "num_requests": 100,
        "arrivals": {"process": "poisson", "rate_per_s": 5.0},
        "prompt_tokens": {"distribution": "constant", "value": 500},
        "output_tokens": {"distribution": "constant", "value": 100},
        **keys,
    }
    return traffic_of(Scenario.from_dict({"model": "Llama-3.1-8B", "hardware": "h100-sxm", "workload": load}))


def test_answers_are_requests_at_as_many_times_the_rate() -> None:
    one, three = traffic(), traffic(n=3)
    assert (three.requests, three.rate_per_s) == (3 * one.requests, 3 * one.rate_per_s)
    assert one.notes == ()
    assert three.notes == ("the 3 answers to a prompt are sent as requests that have nothing in common",)


def test_beams_are_said_not_to_be_sent() -> None:
    assert any("beam search cannot be sent" in note for note in traffic(beam_width=2).notes)
