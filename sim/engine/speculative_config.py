"""What the scheduler must know of speculative decoding."""

from __future__ import annotations

from dataclasses import dataclass

from sim.engine.request import Request
from sim.engine.speculative_acceptance import Acceptance, Stream


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafts of an engine, as vLLM V1 schedules them.

    Attributes:
        num_speculative_tokens: drafts verified in a step of a request.
        acceptance: how many of them each step accepts.
        lookahead_tokens: slots that every allocation adds for drafters that have a KV cache (EAGLE, MTP, draft model).
        drops_last_hit: a prefix hit loses its last block, whose hidden states the head needs (EAGLE, MTP).
        disable_by_batch_size: a step that begins with this many running requests, or more, drafts nothing; None: never.
    """

    num_speculative_tokens: int
    acceptance: Acceptance
    lookahead_tokens: int = 0
    drops_last_hit: bool = False
    disable_by_batch_size: int | None = None

    def stream_of(self, request: Request, steps: int) -> Stream:
        """Tokens given out by the first v verify steps of ``request``, for v up to ``steps`` at least."""
        stream: Stream | None = request.stream
        if stream is None or len(stream) <= steps:
            stream = request.stream = self.acceptance.stream(request.id, steps)
        return stream
