"""SGLang over pipeline stages: as many micro-batches as stages take turns.

The rules are those of SGLang 0.5 (python/sglang/srt/managers/scheduler_pp_mixin.py, event_loop_pp). Each micro-batch
has its share of the seats (pp_max_micro_batch_size), and running requests, fullness and retraction of its own; queue,
tree, ratio and the prompt that is cut into chunks are common. A request stays in the micro-batch that completed its
prompt. Apart from the source: a micro-batch without requests is never full.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from sim.engine.config import EngineConfig
from sim.engine.policies.sglang import SglangScheduler
from sim.engine.request import Request


class MicroBatch(NamedTuple):
    """What is remembered of a batch while it is in the pipeline, and how many steps had been scheduled by then."""

    full: bool
    ended: int
    prefilled: bool
    mixed: bool
    steps: int


class StagedSglangScheduler(SglangScheduler):
    """The policy of SGLang with pipeline stages. The state of `SglangScheduler` is that of one micro-batch."""

    def __init__(self, config: EngineConfig, window: int | None = None, tick_s: float = 1.0) -> None:
        super().__init__(config, window, tick_s)
        self._away: deque[MicroBatch] = deque()
        self._taken_in = 0  # steps whose output is in

    @property
    def running_requests(self) -> int:
        """Requests of this micro-batch past their prefill, those that ended in it and were not yet filtered out too."""
        return self.group.size + self.ended

    @property
    def seats(self) -> int:
        """Requests that may be past their prefill in one micro-batch at one time."""
        return max(1, self.config.max_num_seqs // self.config.pipeline_stages)

    def send_off(self) -> None:
        """The micro-batch at hand enters the pipeline; the next is one without requests."""
        super().send_off()
        self._away.append(MicroBatch(self.full, self.ended, self._prefilled, self._mixed, self._number))
        self.full, self.ended, self._prefilled, self._mixed = False, 0, False, False

    def bring_back(self) -> None:
        """The oldest micro-batch in the pipeline is through."""
        super().bring_back()
        self.full, self.ended, self._prefilled, self._mixed, self._taken_in = self._away.popleft()

    def _last_known(self) -> int:
        return self._taken_in - 1

    def add(self, request: Request) -> bool:
        """Queue an arrival; another micro-batch may take what this one cannot."""
        super().add(request)
        return True

    def steps_ahead(self, limit: int) -> int:
        """Decode-only steps that certainly come next: nobody waits, whom another micro-batch could take."""
        return 0 if self.waiting else super().steps_ahead(limit)
