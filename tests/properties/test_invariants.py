"""What must hold in every run, whatever the scheduler decides."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from engine_run import request_rows, run_fleet
from oracle_format import Line
from random_scenarios import from_seed

from sim.cluster.fleet import Fleet
from sim.conformance import run_oracle
from sim.engine.vllm import VllmScheduler

SEEDS = pytest.mark.parametrize("seed", range(5000, 5040))


def held_blocks(scheduler: VllmScheduler) -> list[tuple[object, int]]:
    """Each running request and the blocks that its computed tokens fill."""
    size, group = scheduler.config.block_size, scheduler.group
    computed = {r: r.group_offset + group.step if r.in_group else r.computed for r in scheduler.running}
    return [(request, -(-tokens // size)) for request, tokens in computed.items()]


@SEEDS
def test_no_block_is_lost_or_owned_twice_at_any_step(seed: int) -> None:
    checks = 0

    def check(fleet: Fleet) -> None:
        nonlocal checks
        checks += 1
        for replica in fleet.replicas:
            replica.scheduler.pool.check(held_blocks(replica.scheduler))

    fleet = run_fleet(from_seed(seed), jump=False, watch=check)
    assert checks >= fleet.engine_steps
    pool = fleet.replicas[0].scheduler.pool
    pool.check([])
    assert pool.free == pool.usable_blocks


@SEEDS
def test_blocks_come_back_after_jumps_too(seed: int) -> None:
    pool = run_fleet(from_seed(seed), jump=True).replicas[0].scheduler.pool
    pool.check([])
    assert pool.free == pool.usable_blocks


@SEEDS
def test_every_request_ends_once_with_exactly_its_output_length(seed: int) -> None:
    document = from_seed(seed)
    steps, requests = run_oracle(document, exact=False)
    served = {line["id"]: line for line in requests if "rejected" not in line}
    assert len(requests) == len(document["requests"])
    assert Counter(i for step in steps for i in step.get("finished", [])) == Counter(served.keys())
    assert Counter(i for step in steps for i in step.get("first", [])) == Counter(served.keys())
    for index, line in served.items():
        assert line["output_tokens"] == document["requests"][index]["output_len"]
    table = run_fleet(document, jump=True).recorder.steps
    sampled = sum(s * n for s, n in zip(table.column("sampled_seqs"), table.column("steps"), strict=True))
    assert sampled == sum(line["output_tokens"] for line in served.values())


@SEEDS
def test_every_token_is_computed_once_unless_cached_or_preempted(seed: int) -> None:
    document = from_seed(seed)
    steps, requests = run_oracle(document, exact=False)
    computed: Counter[int] = Counter()
    for step in steps:
        ids = step.get("ids", [])
        computed.update(dict(zip(ids, step.get("ntok", [1] * len(ids)), strict=True)))
    for line in requests:
        if "rejected" in line:
            assert line["id"] not in computed
            continue
        asked = document["requests"][line["id"]]
        needed = asked["prompt_len"] + asked["output_len"] - 1 - line["cached_tokens"]
        if line["preemptions"] == 0:
            assert computed[line["id"]] == needed
        else:
            assert computed[line["id"]] + line["resume_cached_tokens"] >= needed


@SEEDS
def test_no_request_is_served_before_it_arrives(seed: int) -> None:
    document = from_seed(seed)
    rows = request_rows(run_fleet(document, jump=True))
    finish = {row["id"]: row["finish_us"] for row in rows}
    for row in rows:
        asked = document["requests"][row["id"]]
        assert row["arrival_us"] <= row["admitted_us"] < row["first_token_us"] <= row["finish_us"]
        if asked.get("after") in finish:
            assert row["arrival_us"] == finish[asked["after"]] + asked.get("think_us", 0)
        elif "arrival_us" in asked:
            assert row["arrival_us"] == asked["arrival_us"]


@SEEDS
def test_the_engine_never_idles_while_a_request_is_there(seed: int) -> None:
    document = from_seed(seed)
    document["config"]["async_scheduling"] = False
    steps, _ = run_oracle(document, exact=False)
    for step, following in pairwise(steps):
        if step["waiting"] + step["running"] > len(step.get("finished", [])):
            assert following["t_us"] == step["t_us"] + step["dt_us"]


@SEEDS
def test_limits_hold_in_every_step(seed: int) -> None:
    document = from_seed(seed)
    config = document["config"]
    steps, _ = run_oracle(document, exact=False)
    for step in steps:
        check_limits(step, config)


def check_limits(step: Line, config: Line) -> None:
    """Budget, seats and blocks of one step."""
    ids = step.get("ids", [])
    assert len(set(ids)) == len(ids) <= step["running"] <= config["max_num_seqs"]
    assert sum(step.get("ntok", [1] * len(ids))) <= config["max_num_batched_tokens"]
    assert 0 <= step["free_blocks"] < config["num_gpu_blocks"]
