"""Each policy by itself, on replicas that are nothing but numbers, and in a fleet."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.cluster.affinity import CacheAware, PrefixAffinity
from sim.cluster.reports import Reports
from sim.cluster.router import LeastLoaded, PowerOfTwo, Random, RoundRobin, Router, SessionSticky
from sim.engine.request import Request


class Told(Reports):
    """Reports of loads that the test sets."""

    def __init__(self, *loads: float) -> None:
        super().__init__()
        self.loads = dict(enumerate(loads))

    def of(self, replica: Any) -> float:
        return self.loads.get(replica.index, 0.0)


def replicas(*indices: int) -> Any:
    return [SimpleNamespace(index=index) for index in indices]


def ask(id: int = 0, spans: list[tuple[int, int]] | None = None, session: int = -1) -> Request:
    return Request(id, 100, 10, spans=spans, session=session)


def route(router: Router, requests: list[Request], count: int) -> list[int]:
    return [router.choose(request, replicas(*range(count))) for request in requests]


def test_round_robin_goes_around() -> None:
    assert route(RoundRobin(), [ask()] * 5, 3) == [0, 1, 2, 0, 1]


def test_random_draws_all_replicas_equally_and_the_same_way_again() -> None:
    chosen = route(Random(7), [ask()] * 4000, 4)
    assert chosen == route(Random(7), [ask()] * 4000, 4)
    assert all(900 < count < 1100 for count in Counter(chosen).values())


def test_power_of_two_never_takes_the_fullest_and_favours_the_emptiest() -> None:
    chosen = Counter(route(PowerOfTwo(3, Told(5, 1, 3, 9)), [ask()] * 600, 4))
    assert chosen[3] == 0
    assert chosen[1] > chosen[2] > chosen[0]


def test_a_session_stays_where_it_began_until_that_replica_is_gone() -> None:
    reports = Told(0, 1)
    router = SessionSticky(reports)
    assert route(router, [ask(session=4)], 2) == [0]
    reports.loads = {0: 50.0, 1: 0.0}
    assert route(router, [ask(session=4), ask(session=5), ask()], 2) == [0, 1, 1]
    assert router.choose(ask(session=4), replicas(1)) == 0


def test_affinity_follows_the_longest_known_beginning() -> None:
    router = PrefixAffinity(Told(0, 0, 0))
    first = route(router, [ask(0, [(100, 50)]), ask(1, [(101, 50)]), ask(2, [(100, 50)])], 3)
    assert first == [0, 1, 0]
    assert route(router, [ask(3, [(101, 50), (~1, 110)])], 3) == [1]


def test_affinity_spreads_unknown_beginnings_over_equal_loads() -> None:
    assert route(PrefixAffinity(Told()), [ask(i, [(i, 50)]) for i in range(6)], 3) == [0, 1, 2, 0, 1, 2]


def test_cache_aware_passes_an_overloaded_replica_and_remembers_the_second_copy() -> None:
    reports = Told(0, 0, 0)
    router = CacheAware(load_cap=1.5, load_slack=4, reports=reports)
    text = [(100, 50)]
    assert route(router, [ask(0, text), ask(1, text)], 3) == [0, 0]
    reports.loads = {0: 9.0, 1: 2.0, 2: 3.0}
    assert route(router, [ask(2, text)], 3) == [1]
    reports.loads = {0: 9.0, 1: 3.0, 2: 2.0}
    assert route(router, [ask(3, text)], 3) == [1]


def test_cache_aware_prefers_the_longer_match() -> None:
    router = CacheAware(reports=Told())
    route(router, [ask(0, [(100, 32)])], 2)
    router._record([(100, 32), (200, 96)], 1)
    assert route(router, [ask(5, [(100, 32), (200, 96)])], 2) == [1]


def test_what_a_lost_replica_had_cached_is_forgotten() -> None:
    for router in (PrefixAffinity(Told()), CacheAware(reports=Told())):
        text = [(100, 50)]
        assert route(router, [ask(0, text)], 2) == [0]
        router.forget(replicas(0)[0])
        assert router.choose(ask(1, text), replicas(1, 2)) == 0
        assert router.choose(ask(2, text), replicas(0, 1, 2)) == 1


def test_stale_reports_are_what_was_last_told() -> None:
    reports = Reports(stale=True)
    scheduler = SimpleNamespace(running={}, waiting=[1, 2], fetching=())
    replica: Any = SimpleNamespace(index=3, scheduler=scheduler, inbox=None)
    assert reports.of(replica) == 0
    reports.take([replica])
    scheduler.waiting.append(3)
    assert reports.of(replica) == 2
    assert LeastLoaded(reports).choose(ask(), [replica]) == 0


# -- in a fleet


def scenario(router: str, rate: float, *, groups: int = 10, blocks: int = 1200, **cluster: Any) -> Scenario:
    """10 prefixes of 3,000 tokens, 8 replicas whose caches hold two or three of them."""
    return Scenario.from_dict(
        {
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": {"replicas": 8},
            "engine": {"max_model_len": 8192, "num_gpu_blocks_override": blocks},
            "cluster": {"router": router, **cluster},
            "workload": {
                "num_requests": 1200,
                "arrivals": {"process": "poisson", "rate_per_s": rate},
                "prompt_tokens": {"distribution": "constant", "value": 3200},
                "output_tokens": {"distribution": "constant", "value": 100},
                "prefixes": {"groups": groups, "prefix_tokens": 3000, "prompts_per_group": 10},
            },
        }
    )


def test_affinity_beats_round_robin_on_first_tokens() -> None:
    turns = simulate(scenario("round_robin", 40.0)).summary
    kept = simulate(scenario("prefix_affinity", 40.0)).summary
    assert kept.kv.prefix_hit_rate is not None
    assert turns.kv.prefix_hit_rate is not None
    assert kept.kv.prefix_hit_rate > 2 * turns.kv.prefix_hit_rate
    assert kept.ttft_s.mean is not None
    assert turns.ttft_s.mean is not None
    assert kept.ttft_s.mean < 0.5 * turns.ttft_s.mean


def test_the_cap_prevents_a_hot_spot() -> None:
    """Half of all prompts begin alike: affinity drowns the one replica that owns them, the cap spreads them."""
    hot = simulate(scenario("prefix_affinity", 200.0, groups=2, blocks=6000))
    spread = simulate(scenario("cache_aware", 200.0, groups=2, blocks=6000))
    assert len(np.unique(hot.requests["replica"])) == 2
    assert len(np.unique(spread.requests["replica"])) >= 4
    assert spread.summary.ttft_s.p99 is not None
    assert hot.summary.ttft_s.p99 is not None
    assert spread.summary.ttft_s.p99 < hot.summary.ttft_s.p99 / 10


def test_stale_loads_make_arrivals_herd() -> None:
    fresh = simulate(scenario("least_loaded", 40.0))
    stale = simulate(scenario("least_loaded", 40.0, router_staleness_s=1.0))
    assert stale.summary.ttft_s.p99 is not None
    assert fresh.summary.ttft_s.p99 is not None
    assert stale.summary.ttft_s.p99 > 2 * fresh.summary.ttft_s.p99


@pytest.mark.parametrize("load", ["requests", "tokens", "kv"])
@pytest.mark.parametrize("router", ["least_loaded", "power_of_two", "cache_aware", "random", "session_sticky"])
def test_routers_see_the_same_in_the_middle_of_a_jump(router: str, load: str) -> None:
    asked = scenario(router, 30.0, router_load=load, router_staleness_s=0.3 if load == "kv" else 0.0)
    asked = asked.with_overrides(["workload.num_requests=300"])
    jumped, stepped = simulate(asked), simulate(asked, exact=True)
    assert jumped.requests["replica"].tolist() == stepped.requests["replica"].tolist()
    np.testing.assert_allclose(jumped.requests["finish_s"], stepped.requests["finish_s"], rtol=1e-9)
