from __future__ import annotations

import pytest

from sim.cost.routing import ExpertRouting
from sim.errors import InputError


def test_one_token_hits_top_k_experts() -> None:
    assert ExpertRouting.balanced(64).active(1, 8) == pytest.approx(8.0)


def test_many_tokens_hit_all_and_never_more() -> None:
    for routing in (ExpertRouting.balanced(16), ExpertRouting.power_law(16, 1.0)):
        hits = [routing.active(tokens, 2) for tokens in (1, 4, 16, 64, 4096)]
        assert hits == sorted(hits)
        assert hits[-1] == pytest.approx(16.0, abs=0.1)


def test_skew_hits_fewer_experts_and_loads_one_rank_more() -> None:
    even, skewed = ExpertRouting.balanced(64), ExpertRouting.power_law(64, 1.0)
    assert skewed.active(16, 4) < even.active(16, 4)
    assert skewed.busiest_rank(4096, 8) > even.busiest_rank(4096, 8) > 4096 / 8


def test_a_histogram_is_normalised() -> None:
    assert ExpertRouting.measured([1, 3]).shares == (0.75, 0.25)
    with pytest.raises(InputError):
        ExpertRouting.measured([0, 0])
    with pytest.raises(InputError):
        ExpertRouting.power_law(8, -1.0)
