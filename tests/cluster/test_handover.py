"""Prefill in one pool, decode in another: worked out by hand, and held against one event a step."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from preset_configs import preset_config

from sim.cluster.fleet import Fleet
from sim.cluster.handover import Handoff
from sim.cluster.pool import PoolPlan
from sim.cluster.router import LeastLoaded, RoundRobin
from sim.cost import LinearStepTimer
from sim.cost.joint import JointSteps
from sim.cost.joint_pipeline import JointPipeline
from sim.cost.pipeline import PipelineTimer, Share
from sim.engine.config import EngineConfig
from sim.engine.speculative_acceptance import DrawnAcceptance, SurvivalByPosition
from sim.engine.speculative_config import Speculation
from sim.workload import Workload

US = 1e-6
CONFIG = EngineConfig(num_gpu_blocks=101, max_num_seqs=8, max_num_batched_tokens=256, async_scheduling=False)
GB_PER_TOKEN = 1e3  # bytes; at 1e9 bytes a second a token takes a microsecond


def load(arrivals: list[float], prompt: Any = 100, output: Any = 4) -> Workload:
    n = len(arrivals)
    return Workload(np.array(arrivals), np.full(n, prompt), np.full(n, output))


def split(
    workload: Workload,
    *,
    prefills: int = 1,
    decodes: int = 1,
    decode: EngineConfig = CONFIG,
    prefill: EngineConfig = CONFIG,
    jump: bool = True,
    base_us: int = 1000,
    **more: Any,
) -> Fleet:
    timer = LinearStepTimer(base_us, 0, 0)
    plan = PoolPlan([decode] * decodes, timer, RoundRobin(), name="decode")
    handoff = Handoff(plan, **{"bytes_per_token": GB_PER_TOKEN, "bytes_per_s": 1e9, **more})
    fleet = Fleet(workload, [prefill] * prefills, timer, LeastLoaded(), handoff=handoff, tick_s=US, jump=jump)
    fleet.run()
    return fleet


def us(fleet: Fleet, name: str) -> list[int]:
    return [round(value / US) for value in fleet.recorder.requests.sorted_by("id").column(name)]


def column(fleet: Fleet, name: str) -> list[float]:
    return list(fleet.recorder.requests.sorted_by("id").column(name))


def test_a_request_prefills_travels_and_decodes() -> None:
    """1 ms of prefill, 100 us on the link, and three more tokens of 1 ms each."""
    fleet = split(load([0.0]))
    assert us(fleet, "scheduled_s") == [0]
    assert us(fleet, "first_token_s") == [1100]
    assert us(fleet, "finish_s") == [4100]
    assert column(fleet, "replica") == [1]


def test_an_answer_of_one_token_ends_where_it_was_prefilled() -> None:
    fleet = split(load([0.0], output=1))
    assert us(fleet, "finish_s") == [1000]
    assert column(fleet, "replica") == [0]


def test_the_host_of_the_decode_engine_works_before_the_first_step_of_those_that_join() -> None:
    """5 us for each of 100 tokens; it joins at 1.1 ms, and three tokens of 1 ms each follow."""
    fleet = split(load([0.0]), receive_s_per_token=5e-6)
    assert us(fleet, "first_token_s") == [1100]
    assert us(fleet, "finish_s") == [1100 + 500 + 3000]


@pytest.mark.parametrize(("work_us", "lost_us"), [(0, 0), (900, 0), (3000, 2000)])
def test_host_work_hides_behind_the_step_that_runs(work_us: int, lost_us: int) -> None:
    """With overlap the engine plans a step ahead: of the second request's work the first loses all but one step."""
    overlapped = replace(CONFIG, async_scheduling=True)

    def finish(receive_s_per_token: float) -> int:
        fleet = split(load([0.0, 5.05e-3], output=[60, 4]), decode=overlapped, receive_s_per_token=receive_s_per_token)
        return us(fleet, "finish_s")[0]

    assert finish(work_us / 100 * US) - finish(0.0) == pytest.approx(
        work_us + lost_us, abs=1
    )  # its own, and the other's


def test_two_transfers_share_the_link() -> None:
    """Both prefill in one step; 200 us for both caches together, side by side."""
    fleet = split(load([0.0, 0.0]))
    assert us(fleet, "first_token_s") == [1200, 1200]


def test_transfers_to_two_replicas_still_share_the_way_out() -> None:
    assert us(split(load([0.0, 0.0]), decodes=2), "first_token_s") == [1200, 1200]
    assert us(split(load([0.0, 0.0]), prefills=2, decodes=2), "first_token_s") == [1100, 1100]


def test_a_transfer_speeds_up_when_another_ends() -> None:
    """50 and 100 tokens: 100 us side by side, then the other 50 alone."""
    workload = Workload(np.zeros(2), np.array([50, 100]), np.full(2, 4))
    first, second = us(split(workload), "first_token_s")
    assert first == 1100
    assert second == 2000 + 100  # lands at 1150, in the middle of a step that ends at 2100


def test_blocks_are_given_and_caches_taken_in_between_steps() -> None:
    """Prefilled at 2,000, blocks as the step in flight ends at 2,100, landed at 2,200; the next step ends at 3,100."""
    fleet = split(load([0.0, 0.0005], output=[8, 4]))
    assert us(fleet, "first_token_s") == [1100, 3100]


def test_latency_comes_before_the_first_byte() -> None:
    assert us(split(load([0.0]), latency_s=0.0003), "first_token_s") == [1400]


def test_layers_are_sent_while_others_are_computed() -> None:
    """10 layers: nine tenths are through before the prefill ends, the last tenth takes 10 us."""
    assert us(split(load([0.0]), layerwise=True, layers=10), "first_token_s") == [1010]


def test_a_slow_link_is_busy_from_the_start_of_the_prefill() -> None:
    """100 tokens at 20 us each: 2,000 us from the start, prefill of 1,000 us hidden in them."""
    assert us(split(load([0.0]), layerwise=True, layers=10, bytes_per_s=5e7), "first_token_s") == [2000]


def test_the_decode_side_takes_blocks_before_the_transfer() -> None:
    """7 blocks each, 15 there: the third request waits until one of the first two has ended."""
    small = replace(CONFIG, num_gpu_blocks=16)
    fleet = split(load([0.0, 0.0, 0.0], output=4), decode=small)
    first = us(fleet, "first_token_s")
    assert first[:2] == [1200, 1200]
    assert us(fleet, "finish_s")[:2] == [4200, 4200]
    assert first[2] == 4300


def test_a_full_decode_pool_holds_up_prefill() -> None:
    """Caches that nobody has fetched fill the prefill engine: it has room for two prompts and cannot start a third."""
    small = replace(CONFIG, num_gpu_blocks=16)
    fleet = split(load([0.0] * 6, output=40), decode=small, prefill=small)
    scheduled = us(fleet, "scheduled_s")
    assert scheduled[:4] == [0, 0, 1200, 1200]
    assert scheduled[4] > 20_000
    assert all(status == 0 for status in column(fleet, "status"))


def test_what_the_decode_pool_can_never_hold_is_rejected_by_name() -> None:
    fleet = split(load([0.0], prompt=100, output=40), decode=replace(CONFIG, num_gpu_blocks=8))
    assert column(fleet, "status") == [1]
    assert fleet.recorder.reasons == ["prompt and output exceed the KV cache of the decode pool"]


def test_preempted_on_the_decode_side_is_recomputed_there() -> None:
    small = replace(CONFIG, num_gpu_blocks=16)
    fleet = split(load([0.0, 0.0], output=40), decode=small)
    assert sum(column(fleet, "preemptions")) > 0
    assert all(status == 0 for status in column(fleet, "status"))


def test_every_gap_between_tokens_is_counted_once() -> None:
    fleet = split(load([0.0003 * i for i in range(40)], prompt=90, output=9), prefills=2)
    steps = fleet.recorder.steps
    regular = np.asarray(steps.column("gaps")) * np.asarray(steps.column("steps"))
    assert regular.sum() + sum(fleet.recorder.gap_tokens) == 40 * 8
    gaps = (regular * np.asarray(steps.column("duration_s"))).sum()
    gaps += sum(g * n for g, n in zip(fleet.recorder.gaps_s, fleet.recorder.gap_tokens, strict=True))
    spans = sum(column(fleet, "finish_s")) - sum(column(fleet, "first_token_s"))
    assert gaps == pytest.approx(spans)


def test_drafts_begin_with_the_second_step_on_the_decode_side() -> None:
    """One token of seven comes with the cache, one of a step with nothing to verify, four and the last of two more."""
    acceptance = DrawnAcceptance(0, SurvivalByPosition.constant(1.0, 3))
    drafting = replace(CONFIG, speculation=Speculation(3, acceptance, 3, False, None))
    fleet = split(load([0.0], output=7), prefill=drafting, decode=drafting)
    assert us(fleet, "first_token_s") == [1100]
    assert us(fleet, "finish_s") == [1100 + 3 * 1000]
    steps = fleet.recorder.steps
    assert list(steps.column("draft_tokens")) == [0, 0, 3]
    assert list(steps.column("steps")) == [1, 1, 2]
    assert sum(steps.column("accepted_tokens")) == 3


@pytest.mark.parametrize("seed", range(150))
def test_jumps_change_no_record(seed: int) -> None:
    runs = [random_run(seed, jump) for jump in (True, False)]
    for name in runs[0].recorder.requests.names:
        jumped, stepped = (np.asarray(column(run, name)) for run in runs)
        np.testing.assert_allclose(jumped, stepped, rtol=1e-9, err_msg=name)
    assert runs[0].engine_steps == runs[1].engine_steps
    assert runs[0].events <= runs[1].events
    for run in runs:
        for replica in run.replicas:
            assert replica.scheduler.pool.free == replica.scheduler.pool.usable_blocks


def of_preset(preset: str, page: int, config: EngineConfig) -> EngineConfig:
    keys = {name: getattr(config, name) for name in ("max_num_seqs", "max_num_batched_tokens", "enable_prefix_caching")}
    blocks = config.num_gpu_blocks * config.block_size // page
    return preset_config(preset, blocks, block_size=page, async_scheduling=config.async_scheduling, **keys)


def random_run(seed: int, jump: bool) -> Fleet:
    rng = Random(seed)
    n = rng.randint(5, 60)
    arrivals = np.cumsum([rng.expovariate(1 / rng.choice([1e-4, 1e-3, 5e-3])) for _ in range(n)])
    workload = Workload(
        arrivals,
        np.array([rng.randint(1, 200) for _ in range(n)]),
        np.array([rng.choice([1, 2, rng.randint(1, 80)]) for _ in range(n)]),
        session_id=np.arange(n),
    )
    blocks = rng.choice([20, 30, 60, 200])
    configs = [
        EngineConfig(
            num_gpu_blocks=blocks,
            max_num_seqs=rng.choice([2, 4, 16]),
            max_num_batched_tokens=rng.choice([64, 300]),
            enable_prefix_caching=rng.random() < 0.5,
            async_scheduling=rng.random() < 0.5,
            watermark=rng.choice([0.0, 0.1]),
        )
        for _ in range(2)
    ]
    if rng.random() < 0.3:
        preset, page = rng.choice([("sglang", 1), ("sglang", 16), ("tensorrt-llm", 16)])
        configs = [of_preset(preset, page, config) for config in configs]
    elif rng.random() < 0.4:
        drafts = rng.choice([1, 3])
        acceptance = DrawnAcceptance(seed, SurvivalByPosition.constant(rng.uniform(0.1, 0.9), drafts))
        spec = Speculation(drafts, acceptance, rng.choice([0, drafts]), rng.random() < 0.5, None)
        configs = [replace(config, async_scheduling=False, speculation=spec) for config in configs]
    ranks, stages = rng.choice([1, 1, 2]), rng.choice([1, 1, 1, 2, 3])
    whole = LinearStepTimer(rng.choice([100, 1000]), rng.choice([0, 3]), rng.choice([0, 7]))
    timer: Any = whole if ranks == 1 else JointSteps(whole)
    if stages > 1:
        share, hops = Share(whole, stages), [lambda tokens: 5] * (stages - 1)
        timer = PipelineTimer([share] * stages, (0, 0), hops)
        if ranks > 1:
            timer = JointPipeline([JointSteps(share)] * stages, (0, 0), hops, dummies_block=rng.random() < 0.5)
        configs = [replace(config, async_scheduling=False, pipeline_stages=stages) for config in configs]
    plan = PoolPlan(
        [configs[1]] * rng.choice([1, 2]),
        timer,
        rng.choice([RoundRobin, LeastLoaded])(),
        name="decode",
        ranks=ranks,
        together=ranks > 1,
    )
    handoff = Handoff(
        plan,
        GB_PER_TOKEN,
        rng.choice([1e7, 1e9, 1e12]),
        latency_s=rng.choice([0.0, 0.0005]),
        layers=rng.choice([1, 8]),
        receive_s_per_token=0.0 if stages > 1 else rng.choice([0.0, 3e-6, 4e-5]),
        layerwise=rng.random() < 0.5,
    )
    fleet = Fleet(
        workload,
        [configs[0]] * rng.choice([1, 2]),
        timer,
        RoundRobin(),
        handoff=handoff,
        ranks=ranks,
        together=ranks > 1,
        tick_s=US,
        jump=jump,
    )
    fleet.run()
    return fleet
