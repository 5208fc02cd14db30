"""KV caches that an engine gets from another one, and those that it keeps until another one has them."""

from __future__ import annotations

from collections.abc import Callable

from sim.engine.request import Request, Tick
from sim.engine.scheduler import Scheduler


class Inbox:
    """Requests whose prompt is computed elsewhere, on their way into the batch of ``scheduler``.

    A request waits until blocks for its whole prompt and a seat are free, holds them while its cache is under way, and
    joins the decode group at the first schedule after the cache has landed. Requests of this engine that were preempted
    come first. What happens between two schedules takes effect at the next one.

    Attributes:
        waiting: those without blocks, in the scheduler's own order.
        coming: those whose cache is under way.
        fresh: something happened that no schedule has seen.
        host_work: ticks that the engine's host works on so many prompt tokens of requests that join; no step that is
            scheduled from then on computes before it is through. None: none.
    """

    def __init__(self, scheduler: Scheduler, on_room: Callable[[Request, int], None]) -> None:
        self.waiting = scheduler.make_queue()
        self.coming = scheduler.coming
        self.fresh = False
        self.host_work: Callable[[int], Tick] | None = None
        self._scheduler = scheduler
        self._on_room = on_room
        self._landed: list[Request] = []
        self._freed: list[Request] = []
        self._withdrawn: list[Request] = []

    def __len__(self) -> int:
        return len(self.waiting) + len(self.coming)

    @property
    def pending(self) -> bool:
        """Whether a transfer will give this engine something to do."""
        return bool(self.coming or self._scheduler.kept)

    def lost(self) -> list[Request]:
        """This engine failed: those that no transfer knows of any more, and those without blocks."""
        lost = self._landed
        while self.waiting:
            lost.append(self.waiting.pop())
        return lost

    def expect(self, request: Request) -> None:
        """Queue a request; ``on_room(request, tokens)`` says when its blocks are taken and what is to be sent."""
        self.waiting.add(request)
        self.fresh = True

    def land(self, request: Request) -> None:
        """The cache of a coming request is complete."""
        self._landed.append(request)
        self.fresh = True

    def free(self, request: Request) -> None:
        """Another engine has the cache of a request that this one has prefilled."""
        self._freed.append(request)
        self.fresh = True

    def withdraw(self, request: Request) -> None:
        """Nothing will come for a request that waits here or is coming."""
        if request in self.coming:
            self._withdrawn.append(request)
        else:
            self.waiting.remove(request)
        self.fresh = True

    def settle(self) -> list[Request]:
        """Take in what happened since the last schedule; return the requests that joined the batch."""
        joined, self._landed = self._landed, []
        freed, self._freed = self._freed, []
        withdrawn, self._withdrawn = self._withdrawn, []
        for request in freed:
            self._release(request)
        for request in withdrawn:
            del self.coming[request]
            self._scheduler.pool.release(request, self._scheduler.blocks(request.prompt), request.cached_blocks)
            self._scheduler.blocked = not self._scheduler.waiting
        for request in joined:
            self._take_over(request)
        return joined

    def _release(self, request: Request) -> None:
        scheduler = self._scheduler
        if request in scheduler.kept:
            del scheduler.kept[request]
            full = scheduler.full_blocks(request, lag=0)
            scheduler.pool.release(request, scheduler.held_blocks(request), full)
            scheduler.blocked = not scheduler.waiting

    def _take_over(self, request: Request) -> None:
        del self.coming[request]
        request.computed, request.issued = request.prompt, 1
        scheduler = self._scheduler
        scheduler.enter(request)
        scheduler.pool.cache(request, request.computed // scheduler.config.block_size)
        scheduler.begin_decoding(request)

    def reserve(self) -> None:
        """Give blocks to those that wait, in order, as far as they go."""
        self.fresh = False
        scheduler = self._scheduler
        config, pool = scheduler.config, scheduler.pool
        while self.waiting and not scheduler.waiting:
            seats = config.max_num_seqs - len(scheduler.running) - len(self.coming)
            request = self.waiting.head()
            hit = pool.lookup(request, request.prompt // config.block_size)
            need = scheduler.blocks(request.prompt) - hit.blocks
            spare = config.watermark_blocks if scheduler.running or self.coming else 0
            if seats <= 0 or need + hit.idle_blocks + spare > pool.free:
                return
            self.waiting.pop()
            self.coming[request] = None
            pool.claim(request, hit)
            pool.take(need)
            self._on_room(request, request.prompt - hit.blocks * config.block_size)
