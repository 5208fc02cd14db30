"""Orca: iteration-level scheduling with selective batching.

Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, section 4 and
algorithm 1: after every iteration finished requests leave and waiting ones join, first come first served, as long as
the batch has a seat and the slots for their longest possible length. A prompt is computed in one iteration together
with the decodes of the others. That attention runs request by request in Orca is not modelled.

Over pipeline stages as many batches are under way as there are stages (section 4.2); seats are those of one batch.
"""

from __future__ import annotations

from sim.engine.kv.pool import NO_HIT
from sim.engine.policies.reserving import ReservingScheduler
from sim.engine.request import Request
from sim.engine.step import Step


class OrcaScheduler(ReservingScheduler):
    """Decodes of all running requests and whole prompts of new ones in one step."""

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do."""
        step = Step()
        self.decode_all(step)
        self._select(step)
        if not step.decodes and not step.chunks:
            return None
        step.finishing.sort(key=lambda request: request.rank)
        return step

    @property
    def seats(self) -> int:
        """Requests that may run at one time: in every batch under way as many as in one."""
        return self.config.max_num_seqs * self.config.pipeline_stages

    def add(self, request: Request) -> bool:
        """Queue an arrival; over pipeline stages another batch may have a seat for it."""
        self.waiting.add(request)
        if len(self.running) < self.seats and self.waiting.head() is request:
            self.blocked = False
            return True
        return False

    def _select(self, step: Step) -> None:
        """Admit from the head of the queue until seats, slots or the activations' room end."""
        left = self.config.max_num_batched_tokens
        while self.waiting and step.decodes + len(step.chunks) < self.config.max_num_seqs:
            request = self.waiting.head()
            if not self.pool.fits(self.blocks(self.whole(request))):
                break
            if request.prompt > left:
                self.blocked = False
                return
            self.start(step, request, request.prompt, NO_HIT)
            left -= request.prompt
        self.blocked = True
