"""Chained ids of fixed-size blocks turned into spans of shared text, and back."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.errors import InputError
from sim.workload import Ints, PrefixSpans, Workload


@dataclass(slots=True)
class HashChains:
    """Block ids of the requests read so far; equal id = equal text from the start up to the end of that block.

    Attributes:
        block_tokens: tokens of a block.
        outputs: whether the ids go on into the outputs; else the last one may stand for a part of a block that ends
            with the prompt.
    """

    block_tokens: int
    outputs: bool
    ids: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q", [0]))
    names: dict[str, int] = field(default_factory=dict)

    def add(self, ids: Any, where: str) -> None:
        """Append one request's list of ids: whole numbers or texts, the same kind throughout a file."""
        if not isinstance(ids, list):
            raise InputError(where, f"hash_ids must be a list, got {str(ids)[:40]!r}")
        try:
            numbers = array("q", ids)
        except (TypeError, OverflowError):
            numbers = array("q", [self._number_of(value, where) for value in ids])
        else:
            if numbers and self.names:
                raise InputError(where, "hash ids are partly texts, partly numbers", "use one kind")
        self.ids.extend(numbers)
        self.offsets.append(len(self.ids))

    def _number_of(self, value: Any, where: str) -> int:
        if not isinstance(value, str) or (self.ids and not self.names):
            raise InputError(where, f"hash id {str(value)[:40]!r} is not a 64-bit whole number", "or use texts for all")
        return self.names.setdefault(value, len(self.names))

    def spans(self, prompt_tokens: Ints, output_tokens: Ints, at: Callable[[int], str]) -> PrefixSpans | None:
        """The shared text as spans, consecutive blocks merged where the same requests hold them.

        A block that no other request holds is private text and needs no row. ``at`` names a request in errors.
        Returns None when nothing is shared.
        """
        offsets = np.asarray(self.offsets)
        limit = prompt_tokens + output_tokens if self.outputs else prompt_tokens
        blocks = np.diff(offsets)
        excess = np.flatnonzero(blocks > -(-limit // self.block_tokens))
        if len(excess):
            row = int(excess[0])
            problem = f"{blocks[row]} hash ids of {self.block_tokens} tokens for {limit[row]} tokens"
            raise InputError(at(row), problem, "check hash_block_size")
        if not len(self.ids):
            return None
        owner = np.repeat(np.arange(len(blocks)), blocks)
        place = np.arange(len(owner)) - offsets[owner]
        text = np.unique(np.asarray(self.ids), return_inverse=True)[1]
        _check_chained(np.asarray(self.ids), text, place, owner, at)
        return _merged(text, owner, np.minimum((place + 1) * self.block_tokens, limit[owner]), len(blocks))


def _check_chained(ids: Ints, text: Ints, place: Ints, owner: Ints, at: Callable[[int], str]) -> None:
    """Every id must have one predecessor: only then does it stand for the whole text before it."""
    before = np.where(place == 0, -1, np.roll(text, 1))
    predecessor = np.empty(text.max() + 1, dtype=np.int64)
    predecessor[text[::-1]] = before[::-1]
    wrong = np.flatnonzero(predecessor[text] != before)
    if len(wrong):
        row = int(wrong[0])
        problem = f"hash id {ids[row]} follows another id than where it first occurs"
        remedy = "ids must be chained: equal id = equal text from the start up to that block"
        raise InputError(at(int(owner[row])), problem, remedy)


def _merged(text: Ints, owner: Ints, end: Ints, requests: int) -> PrefixSpans | None:
    """Keep the last of each run of blocks that the same requests hold: in a tree, equal counts mean equal sets."""
    holders = np.bincount(text)[text]
    next_holders = np.append(holders[1:], 0)
    last = np.append(owner[1:] != owner[:-1], True)
    keep = (holders > 1) & (last | (next_holders != holders))
    if not keep.any():
        return None
    rows = np.bincount(owner[keep], minlength=requests)
    node = np.unique(text[keep], return_inverse=True)[1]
    return PrefixSpans(offsets=np.concatenate(([0], np.cumsum(rows))), node=node, end=end[keep])


def shared_block_ids(workload: Workload, block_tokens: int) -> tuple[Ints, Ints]:
    """(offsets, ids) of the full blocks of ``block_tokens`` tokens that some other request shares, prompt and output.

    Block i belongs to the text that holds its last token, so a block shared in part only is not shared. Ids are
    numbered in order of first occurrence; a request's unshared tail has none.
    """
    n = len(workload)
    if workload.prefixes is None:
        return np.zeros(n + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    spans = workload.prefixes
    total = workload.prompt_tokens + workload.output_tokens
    blocks = np.minimum(_shared_extent(spans, total), total) // block_tokens
    offsets = np.concatenate(([0], np.cumsum(blocks)))
    owner = np.repeat(np.arange(n), blocks)
    place = np.arange(len(owner)) - offsets[owner]
    node = node_at(spans, owner, (place + 1) * block_tokens - 1)
    key = (node - node.min(initial=0)) * (int(blocks.max(initial=0)) + 1) + place
    _, first, text = np.unique(key, return_index=True, return_inverse=True)
    shared = np.bincount(text, minlength=1)[text] > 1
    kept = np.bincount(owner[shared], minlength=n)
    order = np.empty(len(first), dtype=np.int64)
    order[np.argsort(first)] = np.arange(len(first))
    ids = np.unique(order[text][shared], return_inverse=True)[1]
    return np.concatenate(([0], np.cumsum(kept))), ids


def node_at(spans: PrefixSpans, request: Ints, position: Ints) -> Ints:
    """The text that token ``position`` of each ``request`` lies in, ~request where it is private."""
    stride = int(max(spans.end.max(initial=0), position.max(initial=0))) + 1
    rows = np.diff(spans.offsets)
    owner = np.repeat(np.arange(len(rows)), rows)
    row = np.searchsorted(owner * stride + spans.end, request * stride + position, side="right")
    inside = row < spans.offsets[request + 1]
    return np.where(inside, spans.node[np.minimum(row, len(spans.node) - 1)], ~request)


def _shared_extent(spans: PrefixSpans, total: Ints) -> Ints:
    """How far into each request a shared row, or another request's quote of it, reaches, tokens."""
    extent = np.zeros(len(total), dtype=np.int64)
    owner = np.repeat(np.arange(len(total)), np.diff(spans.offsets))
    np.maximum.at(extent, owner, spans.end)
    quoted = spans.node < 0
    np.maximum.at(extent, ~spans.node[quoted], spans.end[quoted])
    return extent
