"""Chained block ids become spans without changing who shares what."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.errors import InputError
from sim.workload import PrefixSpans, Workload
from workloads.traces.hash_chains import HashChains, node_at, shared_block_ids

#: Requests as paths in a tree: each choice picks a branch; equal beginnings are equal text.
PATHS = st.lists(st.lists(st.integers(0, 2), max_size=7), min_size=1, max_size=12)


def ids_of(paths: list[list[int]]) -> list[list[int]]:
    """Chained ids: one for each distinct beginning."""
    known: dict[tuple[int, ...], int] = {}
    return [[known.setdefault(tuple(path[: k + 1]), len(known)) for k in range(len(path))] for path in paths]


def spans_of(ids: list[list[int]], block: int, tail: int = 0) -> tuple[PrefixSpans | None, Workload]:
    chains = HashChains(block, outputs=True)
    for row in ids:
        chains.add(row, "here")
    n = len(ids)
    total = np.array([len(row) * block + tail for row in ids])
    prompt = np.maximum(total - 1, 1)
    output = np.maximum(total - prompt, 1)
    spans = chains.spans(prompt, output, str)
    return spans, Workload(np.zeros(n), prompt, output, prefixes=spans)


def common(one: list[int], other: list[int]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


@settings(max_examples=300, deadline=None)
@given(paths=PATHS, block=st.integers(1, 5))
def test_any_two_requests_share_exactly_as_many_blocks_as_before(paths: list[list[int]], block: int) -> None:
    ids = ids_of(paths)
    spans, _ = spans_of(ids, block, tail=2)
    for one in range(len(ids)):
        for other in range(one):
            expected = common(ids[one], ids[other])
            at = np.arange(min(len(ids[one]), len(ids[other])) * block + 1)
            if spans is None:
                assert expected == 0
                continue
            same = node_at(spans, np.full(len(at), one), at) == node_at(spans, np.full(len(at), other), at)
            assert common(same.tolist(), [True] * len(at)) == expected * block


@settings(max_examples=200, deadline=None)
@given(paths=PATHS)
def test_rows_are_as_few_as_the_branches(paths: list[list[int]]) -> None:
    ids = ids_of(paths)
    spans, _ = spans_of(ids, 4)
    holders: dict[int, frozenset[int]] = {}
    for request, row in enumerate(ids):
        for key in row:
            holders[key] = holders.get(key, frozenset()) | {request}
    for request, row in enumerate(ids):
        sets = [holders[key] for key in row if len(holders[key]) > 1]
        distinct = sum(1 for k, held in enumerate(sets) if k + 1 == len(sets) or sets[k + 1] != held)
        assert (0 if spans is None else len(spans.of(request))) == distinct


@settings(max_examples=200, deadline=None)
@given(paths=PATHS, block=st.integers(1, 4))
def test_ids_written_from_spans_share_as_the_ids_read(paths: list[list[int]], block: int) -> None:
    ids = ids_of(paths)
    _, workload = spans_of(ids, block)
    offsets, flat = shared_block_ids(workload, block)
    written = [flat[low:high].tolist() for low, high in pairwise(offsets)]
    for one in range(len(ids)):
        for other in range(one):
            assert common(written[one], written[other]) == common(ids[one], ids[other])


def test_a_long_prompt_shared_by_two_needs_one_row() -> None:
    shared = list(range(1000))
    spans, _ = spans_of([[*shared, 5000], [*shared, 6000], [7000]], 512)
    assert spans is not None
    assert [spans.of(request) for request in range(3)] == [[(0, 512_000)], [(0, 512_000)], []]


def test_smaller_blocks_of_an_engine_see_the_same_boundary() -> None:
    spans, workload = spans_of([[0, 1], [0, 2]], 32)
    offsets, flat = shared_block_ids(workload, 16)
    assert spans is not None
    assert np.diff(offsets).tolist() == [2, 2]
    assert flat.tolist() == [0, 1, 0, 1]


def test_a_block_shared_in_part_only_is_not_shared() -> None:
    _, workload = spans_of([[0, 1], [0, 2]], 24)
    offsets, _ = shared_block_ids(workload, 16)
    assert np.diff(offsets).tolist() == [1, 1]  # tokens 0-15; 16-31 cross the boundary at 24


def test_the_last_block_may_end_with_the_prompt() -> None:
    chains = HashChains(512, outputs=False)
    for _ in range(2):
        chains.add([7, 9], "here")
    spans = chains.spans(np.array([700, 700]), np.array([50, 60]), str)
    assert spans is not None
    assert spans.of(0) == [(0, 700)]


def test_texts_serve_as_ids() -> None:
    chains = HashChains(4, outputs=True)
    chains.add(["a", "b"], "here")
    chains.add(["a", "c"], "here")
    spans = chains.spans(np.array([8, 8]), np.array([1, 1]), str)
    assert spans is not None
    assert spans.of(1) == [(0, 4)]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0, 1], [2, 1]], "hash id 1 follows another id"),
        ([[0, 0]], "hash id 0 follows another id"),
        ([[0, 1], [1]], "must be chained"),
        ([[0, 1, 2, 3]], "4 hash ids of 4 tokens for 9 tokens"),
        ([[0], ["a"]], "'a' is not a 64-bit whole number"),
        ([["a"], [0]], "partly texts"),
        ([[1.5]], "'1.5' is not"),
        ([[None]], "'None' is not"),
        ([[2**70]], "is not a 64-bit whole number"),
        (["ab"], "must be a list"),
    ],
)
def test_ids_that_are_not_chained_ids_are_refused(rows: list[object], words: str) -> None:
    def read() -> None:
        chains = HashChains(4, outputs=True)
        for row in rows:
            chains.add(row, "here")
        chains.spans(np.full(len(rows), 8), np.full(len(rows), 1), str)

    with pytest.raises(InputError, match=words):
        read()
