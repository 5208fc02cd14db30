"""Where experts lie and what the busiest rank has to do."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from sim.assemble import served_by
from sim.cost import CostModel
from sim.cost.experts import PlacedRouting, in_order, placed, routing_of
from sim.cost.routing import ExpertRouting, largest_of
from sim.layout import Layout
from sim.models.loader import load_model
from sim.scenario import Scenario

MODEL = "deepseek-ai/DeepSeek-V3"
WORKLOAD = {
    "num_requests": 1,
    "arrivals": {"process": "constant", "rate_per_s": 1},
    "prompt_tokens": {"distribution": "constant", "value": 1},
    "output_tokens": {"distribution": "constant", "value": 1},
}


def layout(**more: Any) -> Layout:
    return Layout.parse({"data_parallel_size": 32, "enable_expert_parallel": True, **more})


def busiest(**more: Any) -> float:
    routing = routing_of(load_model(MODEL), layout(**more), 0.7)
    assert isinstance(routing, PlacedRouting)
    return routing.busiest_share * 32


def loads(held: list[list[float]]) -> list[float]:
    return [sum(rank) for rank in held]


def test_experts_dealt_by_number_load_ranks_by_what_they_hold() -> None:
    assert in_order([0.4, 0.3, 0.2, 0.1], 2) == [[0.4, 0.3], [0.2, 0.1]]
    assert in_order([0.5, 0.2, 0.2, 0.1, 0.0], 2) == [[0.5, 0.2, 0.2], [0.1, 0.0]]


def test_placement_by_load_with_copies() -> None:
    assert loads(placed([0.5, 0.25, 0.15, 0.1], 2, 0)) == pytest.approx([0.6, 0.4])
    # the popular one three times: 7/30 and 7/30, 7/30 and 1/10, and so on by load while a rank has a free slot
    assert loads(placed([0.7, 0.1, 0.1, 0.1], 2, 2)) == pytest.approx([17 / 30, 13 / 30])


def test_placement_fills_every_rank_with_as_many_copies() -> None:
    held = placed([1 / 6] * 6, 4, 2)
    assert [len(rank) for rank in held] == [2] * 4
    assert sum(loads(held)) == pytest.approx(1)
    assert max(loads(held)) <= 1 / 3 + 1e-12


def test_skewed_routers_overload_a_rank_and_the_load_balancer_levels_it() -> None:
    skewed = {"expert_load": {"distribution": "power_law", "exponent": 0.5}}
    even = {"expert_load": {"distribution": "balanced"}}
    assert busiest(**even) == pytest.approx(1)
    assert busiest(**skewed) > 1.5
    alone = busiest(**skewed, enable_eplb=True)
    assert 1.0 < alone < busiest(**skewed)  # the most popular expert is on one rank, whatever else is there
    assert busiest(**skewed, enable_eplb=True, num_redundant_experts=32) < 1.02


def test_a_counted_histogram_is_taken_expert_by_expert() -> None:
    counts = [1.0] * 256
    counts[0] = 257.0  # as much as all others of two layers
    assert busiest(expert_load={"distribution": "histogram", "counts": counts}) == pytest.approx((257 + 7) / 512 * 32)


def test_nothing_said_is_the_cost_model_s_own_assumption() -> None:
    assert routing_of(load_model(MODEL), layout(), 0.7) is None
    assert routing_of(load_model("meta-llama/Llama-3.1-8B"), Layout.parse({}), 0.7) is None


def test_the_busiest_rank_has_its_share_and_the_luck_of_the_draw() -> None:
    routing = PlacedRouting(ExpertRouting.balanced(4).shares, 2, 0.75)
    assert routing.busiest_rank(1e8, 2) == pytest.approx(0.75e8, rel=1e-3)
    assert routing.busiest_rank(100, 2) > 75
    assert routing.busiest_rank(100, 4) == ExpertRouting.balanced(4).busiest_rank(100, 4)  # asked of other ranks


def test_drift_loads_a_rank_however_large_the_batch() -> None:
    steady, drifting = PlacedRouting((0.25,) * 4, 4, 0.25), PlacedRouting((0.25,) * 4, 4, 0.25, spread=0.05)
    assert steady.busiest_load() == 1
    assert drifting.busiest_load() == pytest.approx(1 + 4 * largest_of(4) * 0.05)
    assert drifting.busiest_rank(1e9, 4) / 0.25e9 == pytest.approx(drifting.busiest_load(), rel=1e-3)
    assert drifting.busiest_rank(4, 4) < steady.busiest_rank(4, 4) + 4 * 0.25 * (drifting.busiest_load() - 1)


# DeepSeek-R1 on 32 ranks, a translation data set, means over layers and iterations of 1,024 rows a rank (TensorRT-LLM,
# docs/source/blogs/tech_blog, "Scaling Expert Parallelism", part 1, table 1): standard deviation of a rank's rows, and
# by how much the busiest exceeds the mean, with experts dealt by number and with 32 copies placed by load.
ROWS, BY_NUMBER, BY_LOAD = 1024, (491.6, 1.564), (52.0, 0.109)


def test_the_largest_of_normal_ranks_is_what_was_counted() -> None:
    deviation, excess = BY_LOAD
    assert largest_of(32) * deviation / ROWS == pytest.approx(excess, rel=0.05)


def test_the_popularity_of_deepseek_s_experts() -> None:
    """A power law of 0.6; which ranks the popular ones happen to lie on is chance."""
    deviation, excess = BY_NUMBER
    shares = ExpertRouting.power_law(256, 0.6).shares
    spread = math.sqrt(8 * statistics.pvariance(shares)) * 32  # eight experts a rank
    assert spread == pytest.approx(deviation / ROWS, rel=0.2)
    assert busiest(expert_load={"distribution": "power_law", "exponent": 0.6}) - 1 == pytest.approx(excess, rel=0.3)


def test_luck_and_a_little_drift_are_all_that_placement_by_load_leaves() -> None:
    load = {"distribution": "power_law", "exponent": 0.6, "drift": 0.1}
    routing = routing_of(load_model(MODEL), layout(expert_load=load, enable_eplb=True, num_redundant_experts=32), 0.7)
    assert routing is not None
    assert routing.busiest_rank(32 * ROWS, 32) / ROWS - 1 == pytest.approx(BY_LOAD[1], rel=0.1)


def test_balanced_experts_do_not_drift_unless_they_are_said_to() -> None:
    for load, busy in (({"distribution": "balanced"}, 1.0), ({"distribution": "balanced", "drift": 0.5}, 1.36)):
        routing = routing_of(load_model(MODEL), layout(expert_load=load), 0.7)
        assert routing is not None
        assert routing.busiest_load() == pytest.approx(busy, abs=0.01)


@pytest.mark.parametrize("backend", ["allgather_reducescatter", "deepep_high_throughput"])
def test_the_busiest_rank_decides(backend: str) -> None:
    def experts_s(load: dict[str, Any]) -> float:
        where = layout(all2all_backend=backend, **load)
        asked = {"model": MODEL, "hardware": "h200-sxm", "layout": where.model_dump(), "workload": WORKLOAD}
        served = served_by(Scenario.from_dict(asked))
        routing = routing_of(served.arch, where, 0.7)
        model = CostModel(
            served.arch, served.weights, served.kv, served.hardware, where, served.overheads, routing=routing
        )
        return model.routed_s(4096)

    even = experts_s({"expert_load": {"distribution": "balanced"}})
    skewed = experts_s({"expert_load": {"distribution": "power_law", "exponent": 0.5}})
    copies = {"enable_eplb": True, "num_redundant_experts": 32}
    levelled = experts_s({"expert_load": {"distribution": "power_law", "exponent": 0.5, "drift": 0.0}, **copies})
    drifting = experts_s({"expert_load": {"distribution": "power_law", "exponent": 0.5}, **copies})
    assert skewed > 1.3 * even
    assert levelled < 1.05 * even
    assert levelled < drifting < skewed
