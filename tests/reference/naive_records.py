"""What the judge saw in each step, in the terms of the record schema: sums over the batch, blocks, tokens, gaps."""

from __future__ import annotations

from itertools import pairwise

from naive_scheduler import Batch, Share
from naive_state import Line, Request
from naive_vllm import NaiveRun

Facts = dict[str, int]


def attended(new: int, before: int, window: int) -> int:
    """Keys that ``new`` tokens after ``before`` others look at, each at most ``window``."""
    return sum(min(before + k, window) for k in range(1, new + 1))


class ObservedRun(NaiveRun):
    """A run of the judge that keeps the facts of each step and the time of each token."""

    def __init__(self, document: Line, max_steps: int, window: int) -> None:
        super().__init__(document, max_steps)
        self.window = window
        self.facts: list[Facts] = []
        self.token_us: list[list[int]] = [[] for _ in self.requests]

    def launch(self, batch: Batch) -> None:
        """Note the step as it is scheduled."""
        super().launch(batch)
        line = self.lines[-1]
        parts = [(share.tokens, request.computed - share.tokens) for request, share in batch.shares.items()]
        self.facts.append(
            {
                "step": line["step"],
                "start_us": self.busy_until_us - line["dt_us"],
                "duration_us": line["dt_us"],
                "seqs": len(parts),
                "tokens": sum(new for new, _ in parts),
                "pairs": sum(attended(new, before, 1 << 60) for new, before in parts),
                "pairs_windowed": sum(attended(new, before, self.window) for new, before in parts),
                "sampled_seqs": sum(share.samples for share in batch.shares.values()),
                "running": line["running"],
                "waiting": line["waiting"],
                "used_blocks": self.scheduler.usable_blocks - line["free_blocks"],
                "held_tokens": self.held_tokens(),
                "preempted": len(line["preempted"]),
            }
        )

    def held_tokens(self) -> int:
        """Tokens in the blocks that requests hold, a shared block counted once."""
        block_size = self.scheduler.block_size
        filled: dict[int, int] = {}
        for request in self.scheduler.running:
            for place, block in enumerate(request.blocks):
                filled[block.index] = min(block_size, request.computed - place * block_size)
        return sum(filled.values())

    def deliver(self, request: Request, share: Share) -> None:
        """Note the time of each token."""
        super().deliver(request, share)
        self.token_us[request.id].append(self.now_us)

    def gaps_us(self) -> list[int]:
        """All gaps between consecutive tokens of a request, sorted."""
        return sorted(b - a for times in self.token_us for a, b in pairwise(times))
