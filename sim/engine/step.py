"""What a scheduler decides for one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sim.cost.shape import StepShape
from sim.engine.request import Request, Tick


@dataclass(slots=True)
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

    shape: StepShape = field(default_factory=StepShape)
    chunks: dict[Request, int] = field(default_factory=dict)
    decodes: int = 0
    verified: dict[Request, tuple[int, int]] = field(default_factory=dict)
    accepted: int = 0
    admitted: list[tuple[Request, int, bool]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    first: list[Request] = field(default_factory=list)
    late: list[Request] = field(default_factory=list)
    interrupted: list[Request] = field(default_factory=list)
    finishing: list[Request] = field(default_factory=list)

    @property
    def gaps(self) -> int:
        """Tokens whose gap to the token before is exactly this step's duration."""
        return self.shape.sampled_seqs - len(self.first) - len(self.late)


class InFlight(NamedTuple):
    """A step that runs: until when, and whose last token it samples."""

    end: Tick
    finishing: list[Request]
