"""Numbers that no run could end with are refused by their key, not by an overflow later on."""

from __future__ import annotations

from typing import Any

import pytest

from sim import Scenario
from sim.errors import InputError

SPLIT = {"prefill": {"replicas": 1, "layout": {}}, "decode": {"replicas": 1, "layout": {}}, "transfer_gb_per_s": 10.0}
HUGE = 1e300


@pytest.mark.parametrize(
    ("section", "keys", "field"),
    [
        ("cluster", {"load_time_s": HUGE}, "cluster.load_time_s"),
        ("cluster", {"retry_delay_s": HUGE}, "cluster.retry_delay_s"),
        ("cluster", {"router_staleness_s": HUGE}, "cluster.router_staleness_s"),
        ("cluster", {"events": [{"at_s": HUGE, "action": "fail", "replica": 0}]}, "cluster.events.0.at_s"),
        ("cluster", {"disaggregation": {**SPLIT, "transfer_gb_per_s": 1e-300}}, ".transfer_gb_per_s"),
        ("cluster", {"disaggregation": {**SPLIT, "transfer_latency_s": HUGE}}, ".transfer_latency_s"),
        ("cluster", {"disaggregation": {**SPLIT, "receive_us_per_token": HUGE}}, ".receive_us_per_token"),
        ("engine", {"kv_offload": {"memory_gib": HUGE, "bandwidth_gb_per_s": 1.0}}, ".memory_gib"),
        ("engine", {"kv_offload": {"memory_gib": 1.0, "bandwidth_gb_per_s": 1e-300}}, ".bandwidth_gb_per_s"),
        ("engine", {"preemption": "swap", "host_link_gb_per_s": 1e-300}, "engine.host_link_gb_per_s"),
        ("engine", {"preset": "static", "max_queue_delay_s": HUGE}, "engine.max_queue_delay_s"),
        ("layout", {"expert_load": {"distribution": "power_law", "drift": "0.2"}}, "layout.expert_load.drift"),
        ("layout", {"expert_load": {"distribution": "power_law", "drift": HUGE}}, "layout.expert_load.drift"),
        ("layout", {"expert_load": {"distribution": "histogram", "counts": [HUGE] * 8}}, "layout.expert_load.counts.0"),
    ],
)
def test_extreme_values_are_refused_by_their_key(section: str, keys: dict[str, Any], field: str) -> None:
    document = {
        "model": "mistralai/Mixtral-8x7B-v0.1",
        "hardware": "h100-sxm",
        "workload": {
            "num_requests": 1,
            "arrivals": {"process": "constant", "rate_per_s": 1.0},
            "prompt_tokens": 1,
            "output_tokens": 1,
        },
        section: keys,
    }
    with pytest.raises(InputError) as refusal:
        Scenario.from_dict(document)
    assert refusal.value.field.endswith(field)
