"""Where the step time makes the engine a textbook queue, the mean wait is the textbook's.

One seat (``max_num_seqs`` 1) makes it a single server, first come first served: a request of P prompt and L output
tokens is served for exactly ``base * L + per_token * (P + L - 1) + per_seq * L``. With Poisson arrivals of rate r and
load u = r E[S], the mean wait is r E[S^2] / (2 (1 - u)) (Pollaczek and Khinchine). The measured mean must lie within a
99.9 % confidence interval from the means of 30 batches of consecutive requests (Student t, 29 degrees of freedom), and
that interval must be narrow enough to tell one queue from another: M/M/1 waits twice as long as M/D/1.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.cluster.fleet import Fleet
from sim.cluster.router import RoundRobin
from sim.cost.linear import LinearStepTimer
from sim.engine.config import EngineConfig
from sim.workload import Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BATCHES = 30
T_999 = 3.659  # two-sided 99.9 % quantile of Student's t with 29 degrees of freedom
NARROW = 0.2  # of the expected wait
WARM_UP = 2_000
TICK_S = 1e-6


def waits_s(arrival_s: Floats, prompt: Ints, output: Ints, timer: LinearStepTimer, *, seats: int, jump: bool) -> Floats:
    """Seconds from each arrival until it is first scheduled."""
    config = EngineConfig(
        num_gpu_blocks=100_000,
        max_num_seqs=seats,
        max_num_batched_tokens=1 << 20,
        max_model_len=1 << 20,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    workload = Workload(arrival_s, prompt, output)
    fleet = Fleet(workload, [config], timer, RoundRobin(), tick_s=TICK_S, jump=jump)
    fleet.run()
    table = fleet.recorder.requests.sorted_by("id")
    return np.asarray(table.column("scheduled_s")) - np.asarray(table.column("arrival_s"))


def poisson_s(rng: np.random.Generator, rate_per_s: float, count: int) -> Floats:
    """Arrival times of a Poisson process, seconds."""
    return np.cumsum(rng.exponential(1 / rate_per_s, count))


def assert_mean(values: Floats, expected: float) -> None:
    """The mean of correlated ``values`` agrees with theory."""
    kept = values[WARM_UP:]
    means = kept[: len(kept) // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half_width = T_999 * means.std(ddof=1) / math.sqrt(BATCHES)
    assert half_width < NARROW * expected
    assert abs(means.mean() - expected) < half_width


def pollaczek_khinchine_s(rate_per_s: float, mean_s: float, second_moment_s2: float) -> float:
    """Mean wait of M/G/1, first come first served."""
    return rate_per_s * second_moment_s2 / (2 * (1 - rate_per_s * mean_s))


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("load", [0.5, 0.8])
def test_equal_outputs_make_it_m_d_1(load: float, jump: bool) -> None:
    rng, count, output = np.random.default_rng(1), 60_000, 2
    service_s = 0.001 * output
    ones = np.ones(count, dtype=np.int64)
    timer = LinearStepTimer(base_us=1000, per_token_us=0, per_seq_us=0)
    arrival_s = poisson_s(rng, load / service_s, count)
    waits = waits_s(arrival_s, ones, ones * output, timer, seats=1, jump=jump)
    assert_mean(waits, pollaczek_khinchine_s(load / service_s, service_s, service_s**2))


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_geometric_outputs_make_it_almost_m_m_1(load: float) -> None:
    # geometric with mean m: E[L^2] = (2 - q) / q^2, q = 1/m; the M/M/1 wait is u / (1 - u) E[S], 2.5 % above at m = 20
    rng, count, mean = np.random.default_rng(2), 60_000, 20
    q = 1 / mean
    step_s = 0.001
    output = rng.geometric(q, count)
    rate = load / (mean * step_s)
    timer = LinearStepTimer(base_us=1000, per_token_us=0, per_seq_us=0)
    waits = waits_s(poisson_s(rng, rate, count), np.ones(count, np.int64), output, timer, seats=1, jump=True)
    expected = pollaczek_khinchine_s(rate, mean * step_s, (2 - q) / q**2 * step_s**2)
    assert_mean(waits, expected)
    assert expected == pytest.approx(load / (1 - load) * mean * step_s * (1 - q / 2))


def test_prompts_and_outputs_of_any_length_make_it_m_g_1() -> None:
    rng, count, load = np.random.default_rng(3), 60_000, 0.7
    base, token, seq = 500, 20, 30
    prompt, output = rng.integers(1, 401, count), rng.integers(1, 21, count)
    # S = token P + (base + token + seq) L - token, P uniform on 1..400, L uniform on 1..20
    per_output = base + token + seq
    mean_us = token * 200.5 + per_output * 10.5 - token
    variance_us2 = token**2 * (400**2 - 1) / 12 + per_output**2 * (20**2 - 1) / 12
    rate = load / (mean_us * 1e-6)
    waits = waits_s(poisson_s(rng, rate, count), prompt, output, LinearStepTimer(base, token, seq), seats=1, jump=True)
    expected = pollaczek_khinchine_s(rate, mean_us * 1e-6, (variance_us2 + mean_us**2) * 1e-12)
    assert_mean(waits, expected)


@pytest.mark.parametrize("jump", [False, True])
def test_with_seats_for_all_a_busy_engine_is_a_bus_stop(jump: bool) -> None:
    # A step leaves every 1000 us and takes whoever is there; about 40 requests run at any time, so it never stops.
    # Poisson arrivals see the residual of a constant interval: half of it, whatever the load.
    rng, count = np.random.default_rng(4), 30_000
    ones = np.ones(count, dtype=np.int64)
    timer = LinearStepTimer(base_us=1000, per_token_us=0, per_seq_us=0)
    waits = waits_s(poisson_s(rng, 2000.0, count), ones, ones * 20, timer, seats=10_000, jump=jump)
    assert_mean(waits, 0.0005)
