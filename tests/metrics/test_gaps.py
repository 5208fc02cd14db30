from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import metrics_gaps
from sim.metrics_gaps import WeightedRuns

LEVELS = (0.0, 0.01, 0.5, 0.9, 0.95, 0.99, 1.0)
RUN = st.tuples(
    st.sampled_from([0.01, 0.02, 0.3]) | st.floats(1e-4, 10),
    st.sampled_from([0.0, 0.01]) | st.floats(0, 1e-3),
    st.integers(1, 40),
    st.integers(0, 5),
)


def runs_of(rows: list[tuple[float, float, int, int]], single: list[float]) -> WeightedRuns:
    table = np.array(rows, dtype=np.float64).reshape(-1, 4)
    integers = table[:, 2:].astype(np.int64)
    return WeightedRuns.of(table[:, 0], table[:, 1], integers[:, 0], integers[:, 1], np.array(single, dtype=np.float64))


def expanded(rows: list[tuple[float, float, int, int]], single: list[float]) -> np.ndarray:
    values = [first + i * step for first, step, n, weight in rows for i in range(n) for _ in range(weight)]
    return np.array(values + single)


@pytest.mark.parametrize("limit", [metrics_gaps.EXPAND_LIMIT, 3], ids=["sorted", "selected"])
@given(st.lists(RUN, max_size=12), st.lists(st.floats(1e-4, 10), max_size=8))
@settings(max_examples=200, deadline=None)
def test_quantiles_are_numpys_on_the_expanded_sample(
    limit: int, rows: list[tuple[float, float, int, int]], single: list[float]
) -> None:
    sample = expanded(rows, single)
    runs = runs_of(rows, single)
    assert runs.count == len(sample)
    if not len(sample):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics_gaps, "EXPAND_LIMIT", limit)
        assert runs.quantiles(LEVELS) == np.quantile(sample, LEVELS).tolist()


@given(st.lists(RUN, max_size=12), st.lists(st.floats(1e-4, 10), min_size=1, max_size=8))
def test_moments_are_those_of_the_expanded_sample(
    rows: list[tuple[float, float, int, int]], single: list[float]
) -> None:
    sample = expanded(rows, single)
    mean, std, low, high = runs_of(rows, single).moments()
    assert mean == pytest.approx(sample.mean(), rel=1e-12)
    assert std == pytest.approx(sample.std(), rel=1e-9, abs=1e-9)
    assert (low, high) == (sample.min(), sample.max())
