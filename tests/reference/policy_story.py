"""Tiny runs of any engine for traces that are worked out by hand: every step takes 100 us."""

from __future__ import annotations

from typing import Any

from oracle_format import Line
from preset_configs import preset_config
from random_scenarios import add_hash_ids

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import workload_of
from sim.cost.linear import LinearStepTimer

STEP_US = 100


def play(preset: str, *requests: Line, tokens: int, **keys: Any) -> list[Line]:
    """Step lines with a pool of ``tokens`` tokens; the same with and without jumps.

    Every key that is not given is the preset's default; steps are scheduled one at a time unless told otherwise.
    """
    keys = {"async_scheduling": False, "enable_prefix_caching": False, "max_model_len": 4096, **keys}
    size = keys.get("block_size") or preset_config(preset, 2).block_size
    if any("segments" in request for request in requests):
        keys["enable_prefix_caching"] = True
        add_hash_ids(list(requests), size)
    config = preset_config(preset, 1 + tokens // size, **keys)
    logs: list[list[Line]] = []
    for jump in (False, True):
        logs.append([])
        timer = LinearStepTimer(STEP_US, 0, 0)
        load = workload_of(list(requests), size)
        Fleet(load, [config], timer, RoundRobin(), tick_s=1e-6, jump=jump, on_line=logs[-1].append).run()
    assert logs[0] == logs[1]
    return logs[0]
