"""The requests of a run as columns: what `workloads` produces and the engine consumes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PrefixSpans:
    """Which tokens of each request are shared with which other request, without the tokens.

    Request ``i`` owns rows ``offsets[i]:offsets[i + 1]``. Each row says: the tokens from the end of the row before
    (or 0) up to ``end`` lie in text ``node``. Nodes are *chained*: two requests that name the same node hold the same
    tokens from token 0 up to the smaller of their ends there. ``node >= 0`` is a text that any number of requests may
    share; ``node < 0`` is the private text of request ``~node`` (the request that wrote it and the later turns that
    quote it). Tokens past the last row, outputs included, are the private text of the request itself, node ``~i``.

    Attributes:
        offsets: (n + 1,) row range of each request.
        node: (rows,) chained text ids.
        end: (rows,) token position at which the row ends, strictly increasing within a request, counted from the start
            of the prompt; it may pass ``prompt_tokens`` where outputs are shared.
    """

    offsets: Ints
    node: Ints
    end: Ints

    def of(self, index: int) -> list[tuple[int, int]]:
        """The (node, end) rows of request ``index``."""
        low, high = int(self.offsets[index]), int(self.offsets[index + 1])
        return list(zip(self.node[low:high].tolist(), self.end[low:high].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in id order (id = index).

    Attributes:
        arrival_s: (n,) seconds from the start, non-decreasing over the requests that have one; NaN where the request
            waits for another (``after``).
        prompt_tokens: (n,) at least 1.
        output_tokens: (n,) at least 1; the request stops exactly there.
        priority: (n,) smaller is served first; None = all 0.
        after: (n,) id of the request that must finish first, -1 for none, always smaller than the own id; None = none.
        think_s: (n,) seconds between the finish of ``after`` and this arrival; None = 0.
        session_id: (n,) or None.
        prefixes: shared text, or None where every prompt is unique.
        in_turn: (k,) ids that wait for nobody in particular: they are sent in this order, one whenever a request ends
            and ``think_s`` of the one sent is over; None = none.
        warmup: requests 0 to ``warmup - 1`` only prepare the servers: they end before any other is sent, and no figure
            counts them. A later request without ``arrival_s``, ``after`` or turn is sent at that moment.
        notes: what a reader of the result should know (rows dropped, scaling), one sentence each.
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    priority: Ints | None = None
    after: Ints | None = None
    think_s: Floats | None = None
    session_id: Ints | None = None
    prefixes: PrefixSpans | None = None
    in_turn: Ints | None = None
    warmup: int = 0
    notes: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.prompt_tokens)
