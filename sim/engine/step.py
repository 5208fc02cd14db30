"""What a scheduler decides for one step."""

from __future__ import annotations

from typing import NamedTuple

from sim.cost.shape import StepShape
from sim.engine.request import Request, Tick


class Step:
    """One step: its aggregates for the cost model, and what changed. Requests stand in vLLM's order.

    Attributes:
        chunks: tokens of every request that is scheduled outside the decode group.
        decodes: members of the decode group scheduled (one token each).
        admitted: (request, tokens found in the prefix cache, resumes after preemption).
        verified: (drafts, accepted) of every request outside the group that verifies some.
        accepted: output tokens beyond one for each that samples.
        first: requests whose first output token this step samples.
        late: requests that sample a token, but did not in the step before (preempted or starved): their gap is longer.
        interrupted: requests that would have sampled and do not: their next token will be late.
        finishing: requests whose last token this step samples.
    """

    __slots__ = (
        "accepted",
        "admitted",
        "chunks",
        "decodes",
        "finishing",
        "first",
        "interrupted",
        "late",
        "preempted",
        "shape",
        "verified",
    )

    def __init__(self) -> None:
        self.shape = StepShape()
        self.chunks: dict[Request, int] = {}
        self.decodes = 0
        self.verified: dict[Request, tuple[int, int]] = {}
        self.accepted = 0
        self.admitted: list[tuple[Request, int, bool]] = []
        self.preempted: list[Request] = []
        self.first: list[Request] = []
        self.late: list[Request] = []
        self.interrupted: list[Request] = []
        self.finishing: list[Request] = []

    @property
    def gaps(self) -> int:
        """Tokens whose gap to the token before is exactly this step's duration."""
        return self.shape.sampled_seqs - len(self.first) - len(self.late)


class InFlight(NamedTuple):
    """A step that runs: until when, and whose last token it samples."""

    end: Tick
    finishing: list[Request]
