from __future__ import annotations

import numpy as np
import pytest

from sim.cost.table import Table, count_nodes


def test_a_table_is_exact_for_a_line_and_continues_it() -> None:
    table = Table.of(lambda count: 2.0 + 3.0 * count, count_nodes(64))
    for count in (1, 5, 63, 64, 1000):
        assert table(count) == pytest.approx(2.0 + 3.0 * count)


def test_nothing_takes_no_time() -> None:
    assert Table([1, 2], [5.0, 6.0])(0) == 0.0


def test_more_work_never_takes_less_time() -> None:
    table = Table([1, 2, 4, 8], [1.0, 3.0, 2.0, 4.0])
    values = [table(count) for count in range(1, 12)]
    assert values == sorted(values)


def test_a_piece_is_the_line_through_its_count() -> None:
    table = Table([1, 2, 4], [1.0, 2.0, 6.0])
    intercept, slope, end = table.piece(3)
    assert intercept + slope * 3 == table(3)
    assert end == float("inf")
    assert table.piece(1.5)[2] == 2


def test_many_counts_equal_one_by_one() -> None:
    table = Table.of(lambda count: count**0.7, count_nodes(300))
    counts = np.array([1, 2, 17, 18, 299, 512, 4096])
    assert table.many(counts).tolist() == [table(int(count)) for count in counts]


def test_tables_add_up() -> None:
    nodes = count_nodes(32)
    one, two = Table.of(float, nodes), Table.of(lambda count: 1.0 / count, nodes)
    assert (one + two)(7) == pytest.approx(one(7) + two(7))
    with pytest.raises(ValueError, match="different nodes"):
        one + Table([1, 2], [0.0, 0.0])
