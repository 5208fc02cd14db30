"""Contiguous reservation by hand: holes that are too small, lengths that are reserved, and what it all wastes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracle_format import Line
from policy_story import play
from preset_configs import preset_config
from story import ask, batches

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import workload_of
from sim.cost.linear import LinearStepTimer
from sim.metrics_steps import kv_waste

ARENA = {"kv_allocation": "contiguous", "kv_reservation": "request"}


def test_a_request_waits_although_enough_is_free_in_two_holes() -> None:
    # 30 slots: 0 gets 0..10, 1 gets 10..20, 2 gets 20..30. When 0 and 2 are over, 20 are free in holes of 10 and 10.
    load = (ask(8, 3), ask(4, 7), ask(8, 3), ask(10, 3))
    steps = play("orca", *load, tokens=30, **ARENA)
    assert batches(steps) == ["0:8 1:4 2:8", "0 1 2", "0 1 2", "1", "1", "1", "1", "3:10", "3", "3"]
    assert [step["free_blocks"] for step in steps] == [0, 0, 0, 20, 20, 20, 20, 18, 18, 18]
    pages = play("orca", *load, tokens=30, kv_allocation="token")
    assert batches(pages) == ["0:8 1:4 2:8", "0 1 2", "0 1 2", "1 3:10", "1 3", "1 3", "1"]


def test_a_freed_piece_joins_the_holes_beside_it() -> None:
    # 0 gets 0..4, 1 gets 4..10, 2 gets 10..14; 6 are left. 1 ends: two holes of 6. 0 ends: its hole and 1's are one of
    # 10, and 3 takes it, although 4 lies behind it in the queue and would have fitted long before.
    load = (ask(2, 3), ask(5, 2), ask(2, 5), ask(6, 5), ask(3, 1))
    steps = play("orca", *load, tokens=20, **ARENA)
    assert batches(steps) == ["0:2 1:5 2:2", "0 1 2", "0 2", "2 3:6 4:3", "2 3", "3", "3", "3"]


def test_the_first_hole_that_fits_is_taken() -> None:
    # Pieces of 4, 9, 4 and 3 fill the 20 slots. 0 and 2 leave holes 0..4 and 13..17. 4 wants 4 and takes the first,
    # so that 3's end opens 13..20 for 5, which wants 7.
    load = (ask(3, 2), ask(2, 8), ask(3, 2), ask(1, 3), ask(4, 1, at=150), ask(6, 2, at=160))
    steps = play("orca", *load, tokens=20, **ARENA)
    assert batches(steps)[:5] == ["0:3 1:2 2:3 3", "0 1 2 3", "1 3 4:4", "1 5:6", "1 5"]


@pytest.mark.parametrize(("rule", "slots"), [("max", 64), ("request", 10 + 25), ("pow2", 10 + 15), ("oracle", 10 + 8)])
def test_what_is_reserved_for_ten_tokens_and_nine_of_output(rule: str, slots: int) -> None:
    keys = {"kv_allocation": "contiguous", "kv_reservation": rule, "max_model_len": 64, "max_new_tokens": 26}
    steps = play("orca", ask(10, 9), tokens=200, **keys)
    assert {200 - step["free_blocks"] for step in steps} == {slots}


def test_the_longest_length_is_reserved_unless_told_otherwise() -> None:
    for preset in ("vllm", "orca", "static"):
        steps = play(
            preset, ask(10, 3), ask(5, 3), tokens=200, kv_allocation="contiguous", max_model_len=64, block_size=1
        )
        assert [200 - step["free_blocks"] for step in steps] == [128] * 3


def test_vllm_without_pages_never_preempts() -> None:
    # Pages for 12 tokens: both start, and 1 gives way as they grow. Pieces of 4 + 5 - 1 and 4 + 4 - 1: 1 waits.
    load = (ask(4, 5), ask(4, 4))
    pages = play("vllm", *load, tokens=12, block_size=1, scheduler_reserve_full_isl=False)
    assert [step.get("preempted") for step in pages if "preempted" in step] == [[1]]
    keys = {"kv_allocation": "contiguous", "kv_reservation": "oracle", "block_size": 1}
    pieces = play("vllm", *load, tokens=12, **keys)
    assert batches(pieces) == ["0:4", "0", "0", "0", "0", "1:4", "1", "1", "1"]


def test_vllm_without_pages_cuts_prompts_as_before() -> None:
    keys = {"kv_allocation": "contiguous", "kv_reservation": "oracle", "block_size": 1, "max_num_batched_tokens": 6}
    steps = play("vllm", ask(4, 3), ask(9, 2), tokens=30, **keys)
    assert batches(steps) == ["0:4 1:2", "0 1:5", "0 1:2", "1"]
    assert [step["free_blocks"] for step in steps] == [14, 14, 14, 20]


def waste_of(preset: str, *requests: Line, tokens: int, jump: bool = True, **keys: Any) -> dict[str, float]:
    config = preset_config(preset, tokens + 1, **{"max_model_len": 4096, **ARENA, **keys})
    load = workload_of(list(requests), 1)
    fleet = Fleet(load, [config], LinearStepTimer(100, 0, 0), RoundRobin(), tick_s=1e-6, jump=jump)
    fleet.run()
    table = {name: np.asarray(fleet.recorder.steps.column(name)) for name in fleet.recorder.steps.names}
    return kv_waste(table, config.block_size)


@pytest.mark.parametrize("jump", [True, False])
def test_three_kinds_of_waste_counted_by_hand(jump: bool) -> None:
    # One piece of 20 slots in 26, steps of equal length: 4, 5, 6, 7 tokens held of the 7 that come.
    # 13 are never filled. A second request that wants 20 waits in front of the 6 that are left.
    load = (ask(4, 4), ask(4, 4))
    kinds = waste_of("orca", *load, tokens=26, jump=jump, kv_reservation="max", max_model_len=20)
    held, room = 4 + 5 + 6 + 7, 4 * 26 + 4 * 20  # 6 are out of use only while the second waits
    assert kinds["reserved_unused"] == pytest.approx(2 * (3 + 2 + 1 + 0) / room)
    assert kinds["internal_fragmentation"] == pytest.approx(2 * 4 * 13 / room)
    assert kinds["external_fragmentation"] == pytest.approx(4 * 6 / room)
    assert kinds["waste_fraction"] == pytest.approx(1 - 2 * held / room)
    assert kinds["shared_fraction"] == 0


@pytest.mark.parametrize("preset", ["orca", "static", "tgi", "vllm", "sglang", "tensorrt-llm"])
def test_kinds_add_up(preset: str) -> None:
    contiguous = {} if preset in ("orca", "static") else {"kv_allocation": "paged", "kv_reservation": None}
    load = [ask(5 + 7 * i % 20, 1 + 5 * i % 17, at=40 * i) for i in range(40)]
    kinds = waste_of(preset, *load, tokens=200, **contiguous)
    parts = kinds["internal_fragmentation"] + kinds["external_fragmentation"] + kinds["reserved_unused"]
    assert parts == pytest.approx(kinds["waste_fraction"])
    assert all(0 <= share < 1 for share in kinds.values())
    if preset == "vllm":
        assert kinds["waste_fraction"] == kinds["internal_fragmentation"] > 0  # the last blocks


def test_a_static_batch_lies_in_rows_side_by_side() -> None:
    steps = play("static", ask(4, 2), ask(6, 5), ask(5, 3), tokens=30, max_num_seqs=3, **ARENA)
    assert [step["free_blocks"] for step in steps] == [0] * 5  # three rows of 6 + 5 - 1
    alone = play("static", ask(4, 2), ask(6, 5), ask(5, 3), tokens=29, max_num_seqs=3, **ARENA)
    assert batches(alone)[0] == "0:6 1:6"
