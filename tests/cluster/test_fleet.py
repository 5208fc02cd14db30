from __future__ import annotations

import time

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.cluster.fleet import ClientPath, Fleet
from sim.cluster.router import LeastLoaded, RoundRobin, Router
from sim.cost import LinearStepTimer
from sim.engine.config import EngineConfig
from sim.engine.stall import SimulationStalledError
from sim.workload import Workload

TICK_S = 1e-6
CONFIG = EngineConfig(num_gpu_blocks=101, max_num_seqs=4, max_num_batched_tokens=256, async_scheduling=False)


def workload(arrivals: list[float], prompt: int = 16, output: int = 4, **more: object) -> Workload:
    n = len(arrivals)
    return Workload(np.array(arrivals), np.full(n, prompt), np.full(n, output), **more)  # type: ignore[arg-type]


def fleet(
    load: Workload, replicas: int = 1, router: Router | None = None, config: EngineConfig = CONFIG, **more: object
) -> Fleet:
    timer = LinearStepTimer(1000, 0, 0)
    built = Fleet(load, [config] * replicas, timer, router or RoundRobin(), tick_s=TICK_S, **more)  # type: ignore[arg-type]
    built.run()
    return built


def column(run: Fleet, name: str) -> list[float]:
    return list(run.recorder.requests.sorted_by("id").column(name))


def test_round_robin_takes_replicas_in_turn() -> None:
    run = fleet(workload([0.0, 0.1, 0.2, 0.3, 0.4]), replicas=3)
    assert column(run, "replica") == [0, 1, 2, 0, 1]


def test_least_loaded_avoids_the_busy_replica() -> None:
    run = fleet(workload([0.0, 0.0005, 0.001, 0.1]), replicas=2, router=LeastLoaded())
    assert column(run, "replica") == [0, 1, 0, 0]


def test_replicas_equal_single_runs_of_the_split_arrivals() -> None:
    arrivals = [0.001 * i for i in range(40)]
    both = fleet(workload(arrivals), replicas=2)
    even = fleet(workload(arrivals[::2]))
    assert column(both, "finish_s")[::2] == column(even, "finish_s")


def test_the_client_path_shifts_arrivals_and_answers() -> None:
    plain = fleet(workload([0.0, 0.5]))
    shifted = fleet(workload([0.0, 0.5]), path=ClientPath(to_queue_s=0.007, first_token_s=0.001, last_token_s=0.003))
    assert column(shifted, "queued_s") == pytest.approx([0.007, 0.507])
    assert column(shifted, "first_token_s") == pytest.approx([t + 0.008 for t in column(plain, "first_token_s")])
    assert column(shifted, "finish_s") == pytest.approx([t + 0.010 for t in column(plain, "finish_s")])


def test_a_follower_arrives_after_its_turn_and_its_thinking() -> None:
    load = workload([0.0, np.nan], after=np.array([-1, 0]), think_s=np.array([0.0, 0.25]))
    run = fleet(load)
    assert column(run, "arrival_s")[1] == pytest.approx(column(run, "finish_s")[0] + 0.25)


def test_what_can_never_fit_is_rejected_with_a_reason_and_its_followers_go_on() -> None:
    load = Workload(
        np.array([0.0, np.nan, 0.0]),
        np.array([5000, 16, 1700]),
        np.array([4, 4, 4]),
        after=np.array([-1, 0, -1]),
        think_s=np.zeros(3),
    )
    run = fleet(load)
    assert column(run, "status") == [1, 0, 1]
    reasons = [run.recorder.reasons[int(i)] if i >= 0 else "" for i in column(run, "reason")]
    assert reasons == ["prompt and output exceed max_model_len", "", "prompt and output exceed the KV cache"]


def test_a_long_chain_of_refused_followers_does_not_recurse() -> None:
    n = 5000
    load = Workload(
        np.array([0.0] + [np.nan] * (n - 1)),
        np.full(n, 9000),
        np.full(n, 1),
        after=np.arange(-1, n - 1),
        think_s=np.zeros(n),
    )
    assert set(column(fleet(load), "status")) == {1}


def test_a_run_that_cannot_move_says_why() -> None:
    config = EngineConfig(num_gpu_blocks=101, max_num_seqs=4, max_num_batched_tokens=64, enable_chunked_prefill=False)
    with pytest.raises(SimulationStalledError, match=r"requests wait and none runs.*100 of 100 blocks free"):
        fleet(workload([0.0], prompt=100), config=config)


def test_progress_reaches_the_caller() -> None:
    seen: list[float] = []
    fleet(workload([0.0] * 600), progress=seen.append)
    assert seen == [256 / 600, 512 / 600]


@pytest.mark.parametrize("router", ["round_robin", "cache_aware"])
def test_a_large_fleet_is_cheap(router: str) -> None:
    """64 replicas at 6 CPU-seconds for 10,000 requests at the most: 100,000 in a minute."""
    asked = Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": {"replicas": 64},
            "engine": {"max_model_len": 8192},
            "cluster": {"router": router},
            "workload": {
                "num_requests": 10_000,
                "arrivals": {"process": "poisson", "rate_per_s": 700},
                "prompt_tokens": {"distribution": "lognormal", "mean": 500, "cv": 0.8, "min": 300, "max": 4000},
                "output_tokens": {"distribution": "lognormal", "mean": 200, "cv": 0.8, "min": 1, "max": 2000},
                "prefixes": {"groups": 100, "prefix_tokens": 256},
            },
        }
    )
    begin = time.process_time()
    assert simulate(asked).summary.requests.completed == 10_000
    assert time.process_time() - begin < 6
