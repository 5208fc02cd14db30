"""Beam search as vLLM V1 does it: its client asks for one token of every beam at a time, and keeps the best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from sim.errors import InputError
from sim.workload import Ints, PrefixSpans, Workload
from workloads.samples import closed_rows
from workloads.shared_text import MAX_ROWS, spans_from_rows
from workloads.spec import MAX_REQUESTS
from workloads.streams import Aspect, stream

#: Beams that fork at each token. Assumed: with it two to six beams save what Kwon et al. report for Alpaca.
FORK_RATE: Final = 0.05

Rows = list[tuple[int, int]]  # (node, end)


def with_beams(workload: Workload, width: int, fork_rate: float, seed: int) -> Workload:
    """Each request as the requests of a beam search that gives an answer of its length.

    The first token is one request. For every later token each of ``width`` beams is a request whose prompt is all that
    the beam has said, and asks for one token; the requests of a token wait for those of the token before
    (vllm/entrypoints/llm.py, `LLM.beam_search`). A beam goes on from itself, or, with probability ``fork_rate``, from a
    beam picked at random, whose text it then shares. Needs requests that wait for nobody.
    """
    lengths = workload.output_tokens
    counts = 1 + width * (lengths - 1)
    total = int(counts.sum())
    if total > MAX_REQUESTS:
        raise InputError("beam_width", f"{width} beams make {total:,} requests", f"stay below {MAX_REQUESTS:,}")
    first = np.cumsum(counts) - counts
    place = np.arange(total) - np.repeat(first, counts)
    step = -(-place // width)  # 0 for the first request, then `width` times 1, 2, ...
    arrival_s = np.full(total, np.nan)
    arrival_s[first] = workload.arrival_s
    waits_for = np.where(place > 0, np.repeat(first, counts) + (step - 1) * width, -1)
    told = f"Each of the {len(lengths):,} prompts is searched with {width} beams, a request for each token of each."
    return Workload(
        arrival_s=arrival_s,
        prompt_tokens=np.repeat(workload.prompt_tokens, counts) + step,
        output_tokens=np.ones(total, np.int64),
        after=waits_for,
        session_id=np.repeat(np.arange(len(lengths)), counts),
        prefixes=_spans(workload, width, fork_rate, seed),
        notes=(*workload.notes, told),
    )


def _spans(workload: Workload, width: int, fork_rate: float, seed: int) -> PrefixSpans:
    """The text of every beam at every token."""
    rng = stream(seed, Aspect.BEAMS)
    rows, node, end = closed_rows(workload.prefixes, workload.prompt_tokens)
    free = int(node.max()) + 1
    counts: list[int] = []
    nodes: list[int] = []
    ends: list[int] = []
    offsets = np.concatenate(([0], np.cumsum(rows)))
    for index, (prompt, length) in enumerate(zip(workload.prompt_tokens, workload.output_tokens, strict=True)):
        low, high = offsets[index], offsets[index + 1]
        opening = list(zip(node[low:high].tolist(), end[low:high].tolist(), strict=True))
        parents = _parents(int(length), width, fork_rate, rng)
        for text in _texts(opening, int(prompt), parents, free):
            counts.append(len(text))
            nodes += [each for each, _ in text]
            ends += [each for _, each in text]
        free = max(free, max(nodes) + 1)
        if len(nodes) > MAX_ROWS:
            raise InputError("beam_width", f"{len(nodes):.3g} rows of shared text and more", "fewer beams or prompts")
    return spans_from_rows(np.array(counts), np.array(nodes), np.array(ends))


def _parents(length: int, width: int, fork_rate: float, rng: np.random.Generator) -> Ints:
    """(length - 1, width) the beam that each beam goes on from, at the second token, the third, ..."""
    shape = (length - 1, width)
    forks = rng.random(shape) < fork_rate
    return np.where(forks, rng.integers(0, width, shape), np.arange(width))


def _texts(opening: Rows, prompt: int, parents: Ints, free: int) -> Iterator[Rows]:
    """The text of each request of one search; nodes from ``free`` on are new.

    The first of several beams that go on from one keeps its node, the others branch off.
    """
    yield opening
    beams = [opening] * parents.shape[1]
    for token, of in enumerate(parents.tolist()):
        taken: set[int] = set()
        found = []
        for parent in of:
            text, end = beams[parent], prompt + token + 1
            if token and parent not in taken:
                found.append([*text[:-1], (text[-1][0], end)])
            else:
                found.append([*text, (free, end)])
                free += 1
            taken.add(parent)
        beams = found
        yield from beams
