"""Requests in one piece each: nothing overlaps, nothing is lost, and jumps change no record."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.conformance import workload_of
from sim.engine.config import EngineConfig
from sim.engine.kv.arena import Arena
from sim.engine.log import Line
from sim.engine.request import Request

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reference"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
from preset_configs import preset_config, random_preset_config
from random_scenarios import from_seed
from test_jump_equals_steps import KinkedTimer, arrays, assert_same_records, without_ties

CASES = [(preset, seed) for preset in ("vllm", "orca", "static") for seed in range(500_000, 500_060)]


def config_of(preset: str, rng: Random, document: dict[str, Any]) -> EngineConfig:
    """A policy over an arena that at least the longest reservation fits."""
    given = document["config"]
    rule = rng.choice([None, "max", "request", "pow2", "oracle"])
    longest = max(request["prompt_len"] + request["output_len"] for request in document["requests"])
    slots = max(given["num_gpu_blocks"] * given["block_size"], longest) + rng.choice([0, 5, 100])
    keys = {"kv_allocation": "contiguous", "kv_reservation": rule, "block_size": 1, "enable_prefix_caching": False}
    if preset == "vllm":
        more = {key: given[key] for key in ("max_num_seqs", "max_num_batched_tokens") if key in given}
        more |= {"watermark": rng.choice([0.0, 0.0, 0.05]), "async_scheduling": rng.random() < 0.5}
        config = preset_config("vllm", slots + 1, **keys, **more)
    else:
        config = random_preset_config(preset, rng, document)
        config = replace(
            config,
            num_gpu_blocks=slots + 1,
            block_size=1,
            kv_allocation="contiguous",
            knobs={**config.knobs, "kv_reservation": rule},
        )
    return replace(config, max_model_len=rng.choice([longest, slots]))


def played(preset: str, seed: int, on_line: Any = None, *, jump: bool = True) -> Fleet:
    document, rng = from_seed(seed), Random(seed)
    config = config_of(preset, rng, document)
    load = without_ties(workload_of(document["requests"], 1), seed)
    return Fleet(load, [config], KinkedTimer(rng), RoundRobin(), jump=jump, on_line=on_line)


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_jumps_change_no_record(preset: str, seed: int) -> None:
    jumped, stepped = (played(preset, seed, jump=jump) for jump in (True, False))
    jumped.run()
    stepped.run()
    assert_same_records(jumped, stepped)


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_pieces_and_holes_tile_the_arena(preset: str, seed: int) -> None:
    def check(line: Line) -> None:
        assert "preempted" not in line
        scheduler.pool.check([(request, request.reserved) for request in scheduler.running])

    fleet = played(preset, seed, check, jump=False)
    scheduler = fleet.replicas[0].scheduler
    assert isinstance(scheduler.pool, Arena)
    fleet.run()
    scheduler.pool.check([])
    assert scheduler.pool.free == scheduler.pool.usable_blocks


@pytest.mark.parametrize(("preset", "seed"), CASES)
def test_memory_is_tokens_and_three_kinds_of_waste(preset: str, seed: int) -> None:
    fleet = played(preset, seed)
    fleet.run()
    rows, usable = arrays(fleet.recorder.steps), fleet.replicas[0].scheduler.config.usable_blocks
    assert (rows["reserved_tokens"] >= 0).all()
    assert (rows["held_tokens"] + rows["reserved_tokens"] <= rows["used_blocks"]).all()
    assert (rows["used_blocks"] + rows["stranded_tokens"] <= usable).all()
    assert (rows["shared_tokens"] == 0).all()
    seats = fleet.replicas[0].scheduler.config.max_num_seqs
    assert (rows["stranded_tokens"] == 0)[rows["running"] == seats].all()


def test_the_cases_meet_fragmentation() -> None:
    met = 0
    for seed in range(500_000, 500_060):
        fleet = played("orca", seed)
        fleet.run()
        met += bool(np.asarray(fleet.recorder.steps.column("stranded_tokens")).any())
    assert met >= 10


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40)), max_size=80))
def test_first_fit_takes_the_lowest_hole(moves: list[tuple[bool, int]]) -> None:
    size = 100
    arena, slots, live = Arena(size, 1), [0] * size, []
    for number, (enter, length) in enumerate(moves, start=1):
        if enter or not live:
            places = [at for at in range(size - length + 1) if not any(slots[at : at + length])]
            assert arena.fits(length) == bool(places)
            assert arena.stranded(length) == (0 if places else slots.count(0))
            if not places:
                continue
            request = Request(number, length, 1)
            arena.place(request, length)
            arena.take(length)
            slots[places[0] : places[0] + length] = [number] * length
            live.append((request, length))
        else:
            request, held = live.pop(length % len(live))
            arena.release(request, held, 0)
            slots = [0 if owner == request.id else owner for owner in slots]
        arena.check(live)
        for request, held in live:
            assert slots[slice(*arena._pieces[request])] == [request.id] * held
        assert arena.free == slots.count(0)
