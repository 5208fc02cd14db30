"""Static batching, the naive baseline: a batch is formed, and runs until its slowest member ends.

As servers did it in front of FasterTransformer or a plain ``generate`` call: prompts are padded to the longest, every
row of the batch is computed and cached in every step whether its own answer is complete or not, and seats and memory
come free when the whole batch is done. Tokens count as they come; an answer is complete, for its client, with the
batch. A batch starts when it is full, or when the longest waiting has waited ``max_queue_delay_s`` (Triton's dynamic
batcher: ``max_queue_delay_microseconds``, 0 by default).
"""

from __future__ import annotations

from sim.cost.shape import StepShape
from sim.engine.config import EngineConfig
from sim.engine.kv.pool import NO_HIT
from sim.engine.policies.reserving import ReservingScheduler
from sim.engine.request import Request, Tick
from sim.engine.step import Step


class StaticScheduler(ReservingScheduler):
    """One batch after the other."""

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self._delay: Tick = config.knobs["max_queue_delay_s"] / tick_s
        self._done = 0  # rows of the batch whose answer is complete and that are computed all the same
        self._length = 0  # tokens cached in every row, padding included
        self._longest = 0  # what every row may reach
        self._last = 0  # what every row has cached when the slowest ends

    def schedule(self) -> Step | None:
        """Decide the next step; None if there is nothing to do yet."""
        step = Step()
        if self.running:
            self.decode_all(step)
            return step
        batch = self._form()
        if batch:
            self._prefill(step, batch)
        return step if batch else None

    def add(self, request: Request) -> bool:
        """Queue an arrival; it matters only to the batch after this one."""
        self.waiting.add(request)
        return False

    def patience(self) -> Tick:
        """When the longest waiting has waited long enough."""
        return self.waiting.head().queued + self._delay

    def reservation(self, request: Request) -> int:
        """All rows of a batch are equally long."""
        return self._longest

    def final(self, request: Request) -> int:
        """Every row is computed until the slowest ends."""
        return self._last

    # -- forming a batch ----------------------------------------------------------------------------------------------

    def _form(self) -> list[Request]:
        """Requests from the head of the queue that fit together, padded to the longest of them."""
        batch: list[Request] = []
        full = len(self.waiting) >= self.config.max_num_seqs
        if not self.waiting or not (full or self.now >= self.patience()):
            return batch
        prompt = output = 0
        while self.waiting and len(batch) < self.config.max_num_seqs:
            request = self.waiting.head()
            prompt, output = max(prompt, request.prompt), max(output, self.output_room(request))
            rows = len(batch) + 1
            room = self.pool.fits(self.blocks(self.row(prompt, output)) * rows)
            if batch and not (room and prompt * rows <= self.config.max_num_batched_tokens):
                break
            batch.append(self.waiting.pop())
        return batch

    def _prefill(self, step: Step, batch: list[Request]) -> None:
        prompt = max(request.prompt for request in batch)
        self._longest = self.row(prompt, max(map(self.output_room, batch)))
        self._last = prompt + max(request.output for request in batch) - 1
        self._done, self._length = 0, prompt
        for request in batch:
            self.join(step, request, NO_HIT)
            self.pool.take(self.held_blocks(request))
            request.computed = step.chunks[request] = prompt
            request.issued = 1
            step.first.append(request)
            step.shape.add_prefill(prompt, 0, self.group.window)
            step.shape.sampled_seqs += 1
            if request.output > 1:
                self.group.join(request)
            else:
                self._done += 1
        if not self.group.size:
            step.finishing = self._close()
        self.blocked = True

    # -- running it ---------------------------------------------------------------------------------------------------

    def decode_shape(self) -> StepShape:
        """Every row of the batch, those that are done included."""
        shape = super().decode_shape()
        attended, window = self._length + 1, self.group.window
        shape.decode_seqs += self._done
        shape.decode_context += self._done * attended
        shape.decode_context_windowed += self._done * (attended if window is None else min(attended, window))
        return shape

    def growing_windowed(self) -> int:
        """All rows are equally long."""
        growing = self.group.below_window
        return growing + self._done if growing else 0

    def cached_tokens(self) -> int:
        """Padding, and what is computed for rows that are done, is cached like the rest."""
        return len(self.running) * self._length

    def known_tokens(self, unsettled: int) -> int:
        """All rows are as long as the longest, those that are done included."""
        return len(self.running) * (self._length + unsettled + 1)

    def stranded_blocks(self) -> int:
        """Nobody joins a batch that runs, whatever is free."""
        return 0

    def _move_group(self, steps: int) -> int:
        """All rows grow by a token a step."""
        self._length += steps
        return super()._move_group(steps)

    def _end_decodes(self) -> list[Request]:
        """Rows that are done stay until the last one is."""
        self._done += len(self.group.ended())
        return [] if self.group.size else self._close()

    def _close(self) -> list[Request]:
        for request in self.running:
            request.computed = self._length
            self._drain(request)
        return list(self.running)
