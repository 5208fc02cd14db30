"""Orca and static batching by hand; steps take 100 us."""

from __future__ import annotations

import numpy as np
import pytest
from policy_story import play
from preset_configs import preset_config
from story import ask, batches, column

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import workload_of
from sim.cost.linear import LinearStepTimer


def test_orca_lets_requests_join_and_leave_after_every_step() -> None:
    steps = play("orca", ask(4, 3), ask(6, 2), ask(5, 2), ask(3, 2, at=150), tokens=100, max_num_seqs=2)
    assert batches(steps) == [
        "0:4 1:6",  # whole prompts
        "0 1",  # 1 ends
        "0 2:5",  # selective batching: a decode and a prompt in one step; 0 ends
        "2 3:3",
        "3",
    ]


def test_orca_reserves_the_whole_request() -> None:
    # Slots for 20 tokens. 0 reserves 4 + 8 - 1 = 11, 1 wants 5 + 5 - 1 = 9, 2 finds none although 6 are unused.
    steps = play("orca", ask(4, 8), ask(5, 5), ask(3, 1), tokens=20)
    assert batches(steps) == ["0:4 1:5", "0 1", "0 1", "0 1", "0 1", "0 2:3", "0", "0"]
    assert [step["free_blocks"] for step in steps] == [0, 0, 0, 0, 0, 6, 9, 9]


def test_a_static_batch_runs_until_its_slowest_member_ends() -> None:
    steps = play("static", ask(4, 2), ask(6, 5), ask(5, 3), ask(3, 2, at=50), tokens=100, max_num_seqs=3)
    assert batches(steps) == [
        "0:6 1:6 2:6",  # padded to the longest prompt
        "0 1 2",  # 0 has its last token
        "1 2",
        "1",
        "1",
        "3:3",  # waited for the whole batch
        "3",
    ]
    assert column(steps, "finished") == [None, None, None, None, [0, 1, 2], None, [3]]
    assert [step["free_blocks"] for step in steps] == [70, 70, 70, 70, 70, 96, 96]  # 3 rows of 6 + 5 - 1


def test_a_static_batch_waits_for_others_until_its_delay_is_over() -> None:
    load = [ask(4, 2), ask(4, 2, at=350), ask(4, 2, at=5000), ask(4, 2, at=5100), ask(4, 2, at=5200)]
    steps = play("static", *load, tokens=100, max_num_seqs=2, max_queue_delay_s=400e-6)
    assert batches(steps) == ["0:4 1:4", "0 1", "2:4 3:4", "2 3", "4:4", "4"]
    assert [step["t_us"] for step in steps] == [350, 450, 5100, 5200, 5600, 5700]  # full, full, 400 after its arrival


def test_rows_that_are_done_are_computed_all_the_same() -> None:
    config = preset_config("static", 1001)
    load = workload_of([ask(4, 2), ask(6, 5), ask(5, 3)], 1)
    fleet = Fleet(load, [config], LinearStepTimer(100, 0, 0), RoundRobin(), tick_s=1e-6)
    fleet.run()
    table = {name: np.asarray(fleet.recorder.steps.column(name)) for name in fleet.recorder.steps.names}
    assert table["prefill_tokens"].sum() == 3 * 6
    assert (table["decode_seqs"] * table["steps"]).sum() == 3 * 4  # three rows, four steps
    assert (table["sampled_seqs"] * table["steps"]).sum() == 2 + 5 + 3
    contexts = [c + i * 3 for c, n in zip(table["decode_context"], table["steps"], strict=True) for i in range(n)]
    assert contexts[1:] == [3 * 7, 3 * 8, 3 * 9, 3 * 10]
    assert (table["held_tokens"] == 3 * np.array([6, 7, 8, 9])).all()
    finish = fleet.recorder.requests.column("finish_s")
    assert list(finish) == pytest.approx([500e-6] * 3)
