"""What the requests of a workload ask of an engine at the very least, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sim.workload import Floats, Workload
from workloads.describe import shareable_tokens


@dataclass(frozen=True, slots=True)
class Demand:
    """Lower bounds of the work of each request, in arrival order; all arrays are (n,).

    Attributes:
        arrival_s: at the client; NaN where a request waits for another.
        new_tokens: prompt tokens that must be computed: those that no cache could hold, at least one.
        cached_tokens: prompt tokens before them.
        output_tokens: at least 1.
        own_tokens: prompt tokens that no other request can share.
        chained: whether some request waits for another.
        in_order: whether the engine serves in order of arrival (no priorities).
    """

    arrival_s: Floats
    new_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    own_tokens: Floats
    chained: bool
    in_order: bool

    @classmethod
    def of(cls, workload: Workload, *, prefix_caching: bool) -> Demand:
        """The demand of ``workload``; with ``prefix_caching``, what was said before may cost nothing."""
        prompt = workload.prompt_tokens.astype(np.float64)
        shared = np.zeros(len(prompt))
        if prefix_caching and workload.prefixes is not None:
            shared = np.minimum(shareable_tokens(workload), prompt - 1).astype(np.float64)
        chained = workload.in_turn is not None or (workload.after is not None and bool((workload.after >= 0).any()))
        order = np.argsort(workload.arrival_s, kind="stable")
        return cls(
            arrival_s=workload.arrival_s[order],
            new_tokens=(prompt - shared)[order],
            cached_tokens=shared[order],
            output_tokens=workload.output_tokens.astype(np.float64)[order],
            own_tokens=np.zeros(len(prompt)) if workload.prefixes is not None else prompt[order],
            chained=chained,
            in_order=workload.priority is None,
        )

    def __len__(self) -> int:
        return len(self.output_tokens)
