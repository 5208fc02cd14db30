"""Who joins SGLang's next prefill batch, and in which order they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from sim.engine.kv.pool import Hit
from sim.engine.request import Request

if TYPE_CHECKING:
    from sim.engine.policies.sglang import SglangScheduler

FEW_ENOUGH: Final = 128  # a longer queue is not sorted by prefix
SHORT_PREFIX: Final = 32  # tokens: below, a request may wait for another one that computes the same text


class Admission:
    """Budgets of one prefill batch, in tokens (``PrefillAdder`` of schedule_policy.py).

    ``total`` is what must stay available for the output that running requests are reckoned to need; prefills use up
    ``input`` (``max_prefill_tokens``) and ``chunk`` (``chunked_prefill_size``).

    Attributes:
        chunks: tokens to compute of each request chosen so far.
        over: nobody else is tried.
        no_token: because memory ends, rather than a step's tokens.
    """

    CLIP: ClassVar[int] = 4096  # more output than this is not reckoned with (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)

    def __init__(self, scheduler: SglangScheduler, mixed_decodes: int, kept_blocks: int) -> None:
        config = scheduler.config
        self.scheduler = scheduler
        self.page = config.block_size
        self.chunks: dict[Request, int] = {}
        self.over = self.no_token = False
        self._input = scheduler.knobs.max_prefill_tokens - mixed_decodes
        self._chunk = config.max_num_batched_tokens - mixed_decodes if config.enable_chunked_prefill else 1 << 60
        self._kept = kept_blocks  # for decodes of this very step
        self._now = max(mixed_decodes, kept_blocks * self.page)  # tokens that this step takes
        self._later = self._now + self._reckoned()  # and those that are to come

    def _reckoned(self) -> float:
        scheduler, group = self.scheduler, self.scheduler.group
        left = 0
        for request in scheduler.running:
            if request.in_group and request.group is group:
                issued = request.output - (request.last_group_step - group.step)
                left += min(scheduler.may_output(request) - issued, self.CLIP)
        return left * scheduler.new_token_ratio

    @property
    def _available(self) -> int:
        return self.scheduler.pool.free * self.page

    def go_on(self, request: Request) -> None:
        """Continue a prompt that was cut into chunks."""
        rest = request.known - request.computed
        room = min(self._chunk, int(self._available - self._later))
        free = (self.scheduler.pool.free - self._kept) * self.page + -request.computed % self.page
        chunk = min(rest, room if room > 0 else self._chunk, free)
        if chunk > 0:
            self._charge(request, chunk, self._may_output(request) if chunk == rest else 0)
        self.over, self.no_token = chunk <= 0, False  # the next in the queue is looked at all the same

    def admits(self, request: Request, hit: Hit) -> bool:
        """Whether a waiting request with the cached prefix ``hit`` joins; if so, it is charged."""
        rest = request.known - request.computed
        pages = -(-rest // self.page) * self.page
        still = max(0, min(self.scheduler.may_output(request) - request.issued, self.CLIP))
        if rest + still + self.page >= self._available - hit.idle_blocks * self.page - self._later:
            self.over = self.no_token = True
            return False
        chunk = rest if pages <= self._chunk else self._chunk // self.page * self.page
        if (pages >= self._input and self.chunks) or chunk <= 0:
            self.over = True
            return False
        self._charge(request, chunk, self._may_output(request) if chunk == rest else 0, hit.idle_blocks)
        return True

    def _may_output(self, request: Request) -> int:
        return min(self.scheduler.may_output(request), self.CLIP)

    def _charge(self, request: Request, chunk: int, output: int, idle_blocks: int = 0) -> None:
        self.chunks[request] = chunk
        pages = -(-chunk // self.page) * self.page
        self._now += pages
        self._later += pages + output
        self._input -= pages
        self._chunk -= pages
        available = self._available - idle_blocks * self.page
        self.no_token = available - self._later <= 0 or available - self._now <= 0
        self.over = self.no_token or self._input <= 0 or self._chunk <= 0


def put_longest_prefix_first(scheduler: SglangScheduler) -> None:
    """Sort the queue by cached prefix, longest first; of requests that begin alike and find little, one goes first."""
    if len(scheduler.waiting) > FEW_ENOUGH:
        return
    page = scheduler.config.block_size
    keys: dict[Request, float] = {}
    seen: dict[int, int] = {}  # text -> the longest end of it among requests before
    for request in scheduler.waiting:
        cached = scheduler.lookup(request).blocks * page
        keys[request] = -cached
        if cached <= SHORT_PREFIX:
            if _common_prefix(request, seen) >= SHORT_PREFIX:
                keys[request] = float("inf")
            else:
                for text, end in _texts(request):
                    seen[text] = max(seen.get(text, 0), end)
    scheduler.waiting.sort(keys.__getitem__)


def _texts(request: Request) -> list[tuple[int, int]]:
    """(text, end token) rows of what is known of a request."""
    rows = [(text, min(end, request.known)) for text, end in request.spans or []]
    return [*rows, (~request.id, request.known)]


def _common_prefix(request: Request, seen: dict[int, int]) -> int:
    """Tokens that the request shares with one of those in ``seen``, from its first on."""
    common = 0
    for text, end in _texts(request):
        reach = min(end, seen.get(text, 0))
        common = max(common, reach)
        if reach < end:
            break
    return common
