from __future__ import annotations

import math

import pytest

from hardware_profiles.grid import Anchors, Grid
from sim.errors import InputError


def grid() -> Grid:
    return Grid.parse({"axes": {"m": "1 4 16", "n": "1 100"}, "factor": "1 2 1 4 1 8"})


def test_nodes_give_their_factor() -> None:
    surface = grid().surface({})
    for m, (low, high) in {1: (1, 2), 4: (1, 4), 16: (1, 8)}.items():
        assert math.exp(surface.log(math.log2(m), 0.0)) == pytest.approx(low)
        assert math.exp(surface.log(math.log2(m), math.log2(100))) == pytest.approx(high)


def test_between_nodes_the_factor_is_geometric() -> None:
    fixed = grid().surface({"n": 100})
    assert math.exp(fixed.log(1.0)) == pytest.approx(math.sqrt(2 * 4))


def test_holding_an_axis_is_the_same_as_asking_there() -> None:
    for m, n in ((1, 3), (2.5, 10), (16, 99)):
        free = grid().surface({}).log(math.log2(m), math.log2(n))
        assert grid().surface({"n": n}).log(math.log2(m)) == pytest.approx(free)
        assert grid().surface({"m": m, "n": n}).log() == pytest.approx(free)


def test_outside_the_edge_holds() -> None:
    surface = grid().surface({"n": 10_000})
    assert surface.log(math.log2(1000)) == pytest.approx(math.log(8))
    assert surface.log(-5.0) == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("axes", "factor", "complaint"),
    [
        ({"m": "1 2"}, "1", "1 factors for a grid of 2"),
        ({"m": "2 1"}, "1 1", "ascending"),
        ({"m": "0 1"}, "1 1", "positive"),
        ({"m": "1 2"}, "1 -1", "positive"),
        ({"m": "1 two"}, "1 1", "expected numbers"),
    ],
)
def test_a_crooked_grid_is_refused(axes: dict[str, str], factor: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Grid.parse({"axes": axes, "factor": factor})


def test_an_anchor_holds_at_its_shape_and_fades_away_from_it() -> None:
    anchors = Anchors.parse({"shape": ["experts"], "along": "rows", "nodes": "1 16", "points": ["8 1.5 3", "64 1 1"]})
    here = anchors.surface({"experts": 8})
    assert math.exp(here.log(0.0)) == pytest.approx(1.5, rel=0.02)
    assert math.exp(here.log(4.0)) == pytest.approx(3.0, rel=0.03)
    assert math.exp(anchors.surface({"experts": 1024}).log(0.0)) == pytest.approx(1.0)
