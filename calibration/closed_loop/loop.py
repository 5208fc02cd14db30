"""The loop: the simulator's scheduler decides, the decoder computes, a wall clock counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calibration.closed_loop.decoder import Chunk, Decoder
from calibration.engine_runs.log import EngineRun
from sim.engine.config import EngineConfig
from sim.engine.request import Request
from sim.engine.step import Step
from sim.engine.vllm import VllmScheduler
from sim.workload import Workload

PROMPT_TOKEN = 7


@dataclass(slots=True)
class _Sequence:
    """What the loop itself keeps of a request."""

    request: Request
    arrival_s: float
    slot: int = -1
    computed: int = 0
    tokens: list[int] = field(default_factory=list)
    queued_s: float = 0.0
    first_s: float = 0.0
    finish_s: float = 0.0


class WallClock:
    """Seconds since it was made; waits by sleeping."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()

    def now(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._begin

    def wait_until(self, second: float) -> None:
        """Return no earlier than then."""
        time.sleep(max(0.0, second - self.now()))


class CoreClock:
    """Seconds that this process had a core, and the waits that it skipped: as if nothing else ran on the machine.

    Right for one thread only.
    """

    def __init__(self) -> None:
        self._begin = time.process_time()
        self._skipped = 0.0

    def now(self) -> float:
        """Seconds so far."""
        return time.process_time() - self._begin + self._skipped

    def wait_until(self, second: float) -> None:
        """Skip to then."""
        self._skipped += max(0.0, second - self.now())


class ClosedLoop:
    """Serves one workload in real time.

    Args:
        decoder: with a slot for each of ``config.max_num_seqs`` sequences.
        config: of the scheduler.
        workload: requests with arrival times.
        clock: makes the clock that the run starts with.
    """

    def __init__(
        self,
        decoder: Decoder,
        config: EngineConfig,
        workload: Workload,
        clock: Callable[[], WallClock | CoreClock] = WallClock,
    ) -> None:
        self._decoder = decoder
        self._config = config
        self._scheduler = VllmScheduler(config)
        self._sequences = [self._sequence(workload, i) for i in range(len(workload))]
        self._pending = sorted(self._sequences, key=lambda sequence: (sequence.arrival_s, sequence.request.id))
        self._free_slots = list(range(config.max_num_seqs))
        self._steps: list[dict[str, Any]] = []
        self._new_clock = clock
        self._clock = clock()

    def run(self, name: str) -> EngineRun:
        """Serve everything; the log in the format of a real engine's run."""
        self._clock = self._new_clock()
        while self._pending or self._scheduler.running or self._scheduler.waiting:
            self._take_arrivals()
            members = [request for request in self._scheduler.running if request.in_group]
            step = self._scheduler.schedule()
            if step is None:
                self._clock.wait_until(self._pending[0].arrival_s)
                continue
            self._compute(step, members)
        return EngineRun.from_dict(name, self._document())

    # -- one step -----------------------------------------------------------------------------------------------------

    def _compute(self, step: Step, members: list[Request]) -> None:
        begin = self._clock.now()
        for request in step.preempted:
            self._evict(self._sequences[request.id])
        batch = self._batch(step, members)
        chunks = [self._chunk(sequence, tokens) for sequence, tokens in batch]
        sampled = iter(self._decoder.step(chunks))
        end = self._clock.now()
        self._log(begin, end, batch)
        for (sequence, tokens), chunk in zip(batch, chunks, strict=True):
            sequence.computed += tokens
            if chunk.samples:
                sequence.tokens.append(next(sampled))
                sequence.first_s = sequence.first_s or end
        self._scheduler.complete(step.finishing)
        for request in step.finishing:
            self._sequences[request.id].finish_s = end
            self._evict(self._sequences[request.id])

    def _batch(self, step: Step, members: list[Request]) -> list[tuple[_Sequence, int]]:
        """(sequence, tokens) in running order."""
        absent = set(step.interrupted)
        tokens = {request: 1 for request in members if request not in absent}
        tokens.update(step.chunks)
        return [(self._sequences[r.id], tokens[r]) for r in self._scheduler.running if r in tokens]

    def _chunk(self, sequence: _Sequence, tokens: int) -> Chunk:
        if sequence.slot < 0:
            sequence.slot = self._free_slots.pop()
        prompt = sequence.request.prompt
        known = [PROMPT_TOKEN] * prompt + sequence.tokens
        ids = known[sequence.computed : sequence.computed + tokens]
        return Chunk(sequence.slot, ids, sequence.computed, sequence.computed + tokens == len(known))

    def _evict(self, sequence: _Sequence) -> None:
        self._free_slots.append(sequence.slot)
        sequence.slot, sequence.computed = -1, 0

    # -- clock and records --------------------------------------------------------------------------------------------

    def _take_arrivals(self) -> None:
        now = self._clock.now()
        while self._pending and self._pending[0].arrival_s <= now:
            sequence = self._pending.pop(0)
            sequence.queued_s = now
            self._scheduler.add(sequence.request)

    def _sequence(self, workload: Workload, index: int) -> _Sequence:
        prompt, output = int(workload.prompt_tokens[index]), int(workload.output_tokens[index])
        return _Sequence(Request(index, prompt, output), float(workload.arrival_s[index]))

    def _log(self, begin: float, end: float, batch: list[tuple[_Sequence, int]]) -> None:
        self._steps.append(
            {
                "t_s": begin,
                "dt_s": end - begin,
                "ids": [sequence.request.id for sequence, _ in batch],
                "ntok": [tokens for _, tokens in batch],
                "ctx": [sequence.computed for sequence, _ in batch],
            }
        )

    def _document(self) -> dict[str, Any]:
        config = self._config
        names = ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "num_gpu_blocks")
        settings = {name: getattr(config, name) for name in names}
        requests = [
            {
                "id": sequence.request.id,
                "arrival_s": sequence.arrival_s,
                "prompt_len": sequence.request.prompt,
                "output_len": sequence.request.output,
                "ttft_s": sequence.first_s - sequence.arrival_s,
                "e2e_s": sequence.finish_s - sequence.arrival_s,
                "engine_arrival_s": sequence.queued_s,
            }
            for sequence in self._sequences
        ]
        meta = {"engine": {**settings, "enable_prefix_caching": False, "async_scheduling": False}}
        return {"meta": meta, "requests": requests, "steps": self._steps}
