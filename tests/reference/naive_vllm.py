"""The judge: vLLM's V1 scheduler written down in the most obvious way, one step and one block at a time.

Every request and every block is an object, every list is a list, every time a whole microsecond. Nothing here is meant
to be fast. It reads an oracle input (see the README of the oracle files) and returns the step lines and request lines
in the oracle's packed form. It shares no code with the engine. Besides the recordings it was held once against the
scheduler of vLLM 0.32.0 itself, driven step by step through seeds 0 to 5999 of `random_scenarios.from_seed` and, with
drafts, 0 to 2999: equal in every field.
"""

from __future__ import annotations

from dataclasses import dataclass

from naive_scheduler import Batch, NaiveScheduler, Share
from naive_state import Line, Request


class NoProgress(RuntimeError):
    """The scenario does not end: too many steps, or requests wait and nothing can ever be scheduled."""


def simulate(document: Line, max_steps: int = 1_000_000) -> tuple[list[Line], list[Line]]:
    """Step lines and request lines of an oracle input document.

    Raises:
        NoProgress: after ``max_steps`` steps, or when requests wait that can never be scheduled.
    """
    run = NaiveRun(document, max_steps)
    run.run()
    return run.lines, [request.line() for request in run.requests]


@dataclass(eq=False)
class Step:
    """A step in flight: its decision, its line so far, and when it ends."""

    batch: Batch
    line: Line
    end_us: int


class NaiveRun:
    """The loop around the scheduler: arrivals, step times, outputs."""

    def __init__(self, document: Line, max_steps: int) -> None:
        self.scheduler = NaiveScheduler(document.get("config", {}))
        self.latency: Line = document["latency"]
        self.requests = [Request(index, line) for index, line in enumerate(document["requests"])]
        self.to_come = [request for request in self.requests if request.after is None]
        self.max_steps = max_steps
        self.depth = 2 if self.scheduler.asynchronous else 1
        self.now_us = 0
        self.busy_until_us = 0
        self.step_number = 0
        self.in_flight: list[Step] = []
        self.lines: list[Line] = []

    def run(self) -> None:
        """Until every request is done."""
        while True:
            self.join()
            batch = self.scheduler.schedule()
            if batch.shares or batch.preempted:
                self.launch(batch)
                if len(self.in_flight) == self.depth:
                    self.land()
            elif self.in_flight:
                self.land()
            elif self.to_come:
                self.skip()
            elif self.scheduler.waiting or self.scheduler.running:
                raise NoProgress(f"nothing can be scheduled at {self.now_us} us")
            else:
                return

    # -- arrivals

    def due(self, request: Request) -> bool:
        """Whether the request has arrived by now."""
        if request.arrival_step is not None:
            return request.arrival_step <= self.step_number
        return request.arrival_us <= self.now_us

    def join(self) -> None:
        """All requests that have arrived join the queue, in order of arrival, then index."""
        while due := [request for request in self.to_come if self.due(request)]:
            for request in due:
                if request.arrival_step is not None:
                    request.arrival_us = self.now_us
            request = min(due, key=lambda request: (request.arrival_us, request.id))
            self.to_come.remove(request)
            request.rejected = self.reason_to_reject(request)
            if request.rejected:
                self.release_dependants(request, request.arrival_us)
            else:
                self.scheduler.enqueue(request)

    def reason_to_reject(self, request: Request) -> str:
        """Why the request could never finish, or nothing."""
        total = request.prompt + request.output_len
        if total > self.scheduler.max_model_len:
            return "max_model_len"
        if self.scheduler.blocks_for(total - 1) > self.scheduler.usable_blocks:
            return "num_gpu_blocks"
        return ""

    def release_dependants(self, request: Request, when_us: int) -> None:
        """Requests that waited for this one to end get their arrival time."""
        for other in self.requests:
            if other.after == request.id:
                other.arrival_us = when_us + other.think_us
                self.to_come.append(other)

    def skip(self) -> None:
        """Nothing to do: on to the next arrival."""
        timed = [request.arrival_us for request in self.to_come if request.arrival_step is None]
        if timed:
            self.now_us = max(self.now_us, min(timed))
        else:
            self.step_number = min(request.arrival_step or 0 for request in self.to_come)

    # -- steps

    def launch(self, batch: Batch) -> None:
        """The step begins to run as soon as the one before it is done."""
        if len(self.lines) == self.max_steps:
            raise NoProgress(f"not done after {self.max_steps} steps")
        scheduler = self.scheduler
        tokens = [share.tokens for share in batch.shares.values()]
        start_us = max(self.now_us, self.busy_until_us)
        duration_us = self.duration_us(sum(tokens), len(tokens))
        for request in batch.shares:
            if request.admitted_us is None:
                request.admitted_us = self.now_us
        for index, hit_tokens, resumed in batch.admitted:
            request = self.requests[index]
            if resumed:
                request.resume_cached_tokens += hit_tokens
            else:
                request.cached_tokens = hit_tokens
        line: Line = {"step": self.step_number, "t_us": self.now_us, "dt_us": duration_us}
        line["ids"] = [request.id for request in batch.shares]
        line["ntok"] = tokens
        line["running"] = len(scheduler.running)
        line["waiting"] = len(scheduler.waiting)
        line["admitted"] = batch.admitted
        line["preempted"] = [request.id for request in batch.preempted]
        line["free_blocks"] = len(scheduler.pool.free)
        if scheduler.caching:
            line["cached_blocks"] = len(scheduler.pool.cache)
        if scheduler.asynchronous:
            line["exec_start_us"] = start_us
        self.lines.append(line)
        self.step_number += 1
        self.busy_until_us = start_us + duration_us
        self.in_flight.append(Step(batch, line, self.busy_until_us))

    def duration_us(self, tokens: int, sequences: int) -> int:
        """The linear step time; 0 for a step without tokens."""
        if not tokens:
            return 0
        latency = self.latency
        return int(latency["base_us"] + latency["per_token_us"] * tokens + latency["per_seq_us"] * sequences)

    def land(self) -> None:
        """The oldest step in flight ends: its outputs come out, in batch order."""
        step = self.in_flight.pop(0)
        self.now_us = step.end_us
        first: list[int] = []
        finished: list[int] = []
        spec: list[list[int]] = []
        for request, share in step.batch.shares.items():
            if not share.samples:
                continue
            if share.drafts:
                spec.append([request.id, share.drafts, self.accepted(request, share)])
            self.deliver(request, share)
            if request.first_token_us is None:
                request.first_token_us = self.now_us
                first.append(request.id)
            if request.finish_us is not None:
                finished.append(request.id)
                self.release_dependants(request, self.now_us)
        step.line["first"] = first
        step.line["finished"] = finished
        step.line["free_blocks_end"] = len(self.scheduler.pool.free)
        if self.scheduler.spec_tokens:
            step.line["spec"] = spec
        self.scheduler.pool.check()
        pack(step.line)

    def accepted(self, request: Request, share: Share) -> int:
        """Draft tokens accepted, by the oracle's rule."""
        guess = (3 * request.id + 5 * request.verified) % (self.scheduler.spec_tokens + 1)
        return min(guess, share.drafts)

    def deliver(self, request: Request, share: Share) -> None:
        """The tokens that a request sampled in a step; the request may have been preempted in the meantime."""
        scheduler = self.scheduler
        accepted = 0
        if share.drafts:
            accepted = self.accepted(request, share)
            request.verified += 1
        stale = share.preemptions != request.preemptions
        request.outputs = min(request.outputs + accepted + 1, request.output_len)
        if not stale:
            request.computed -= share.drafts - accepted
            if scheduler.asynchronous:
                request.placeholders -= 1
                scheduler.cache_up_to(request, request.computed - request.placeholders)
        if request.outputs < request.output_len:
            request.drafts = scheduler.spec_tokens
            return
        request.finish_us = self.now_us
        if stale:
            scheduler.waiting.remove(request)
        else:
            scheduler.running.remove(request)
            scheduler.pool.release(request.blocks)
            request.blocks = []


def pack(line: Line) -> None:
    """Leave out what the oracle leaves out: empty lists, token counts that are all 1, an unchanged free count."""
    if all(tokens == 1 for tokens in line["ntok"]):
        del line["ntok"]
    if line["free_blocks_end"] == line["free_blocks"]:
        del line["free_blocks_end"]
    for key in [key for key, value in line.items() if value == []]:
        del line[key]
