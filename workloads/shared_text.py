"""Who shares which text, as `PrefixSpans`: prompts that begin alike, and turns that quote the turns before."""

from __future__ import annotations

from typing import Final

import numpy as np

from sim.errors import InputError
from sim.workload import Ints, PrefixSpans

#: Rows of shared text beyond this would not fit an ordinary machine.
MAX_ROWS: Final = 200_000_000


def opening_rows(
    prompt_tokens: Ints, group: Ints, groups: int, prefix_tokens: int, prompt: Ints | None
) -> tuple[Ints, Ints, Ints]:
    """Rows of prompts that begin with their group's text: (rows an opening, node, end), rows in order.

    Args:
        prompt_tokens: (m,) lengths of the opening prompts.
        group: (m,) which of the shared beginnings; node id = group.
        groups: how many there are.
        prefix_tokens: their length. A shorter prompt is the first tokens of that text and nothing else.
        prompt: (m,) which of the fixed prompts, node id = groups + prompt; None where the rest is private.
    """
    cut = np.minimum(prompt_tokens, prefix_tokens)
    if prompt is None:
        return np.ones(len(group), dtype=np.int64), group, cut
    longer = prompt_tokens > prefix_tokens
    keep = np.column_stack((np.ones_like(longer), longer)).ravel()
    node = np.column_stack((group, groups + prompt)).ravel()[keep]
    end = np.column_stack((cut, prompt_tokens)).ravel()[keep]
    return 1 + longer.astype(np.int64), node, end


def spans_from_rows(rows: Ints, node: Ints, end: Ints) -> PrefixSpans:
    """Spans of requests that own ``rows`` rows each."""
    return PrefixSpans(offsets=np.concatenate(([0], np.cumsum(rows))), node=node, end=end)


def session_spans(first: Ints, turn: Ints, total_tokens: Ints, opening: tuple[Ints, Ints, Ints] | None) -> PrefixSpans:
    """Spans of conversations whose requests follow each other in id order.

    Turn t holds the rows of its session's opening prompt, then one row for each earlier turn: its private text, up to
    the end of its output.

    Args:
        first: (sessions,) id of each session's first request.
        turn: (n,) 0 for the first.
        total_tokens: (n,) prompt + output tokens.
        opening: rows of the opening prompts as `opening_rows` gives them, or None where they share nothing.
    """
    n = len(turn)
    base = np.zeros(len(first), dtype=np.int64) if opening is None else opening[0]
    session = np.repeat(np.arange(len(first)), np.diff(np.append(first, n)))
    rows = base[session] + turn
    if rows.sum() > MAX_ROWS:
        raise InputError("sessions.turns", f"need {rows.sum():.3g} rows of shared text", "fewer turns or requests")
    offsets = np.concatenate(([0], np.cumsum(rows)))
    owner = np.repeat(np.arange(n), rows)
    place = np.arange(len(owner)) - offsets[owner]  # row number within the request
    of_base = base[session[owner]]
    quoted = first[session[owner]] + place - of_base  # id of the turn that a later row quotes
    node = ~quoted
    end = total_tokens[np.maximum(quoted, 0)]
    if opening is not None:
        base_offsets = np.concatenate(([0], np.cumsum(base)))
        in_base = place < of_base
        at = (base_offsets[session[owner]] + place)[in_base]
        node[in_base], end[in_base] = opening[1][at], opening[2][at]
    return PrefixSpans(offsets=offsets, node=node, end=end)
