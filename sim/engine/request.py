"""A request inside an engine: state only. It knows no queue and no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.engine.lockstep import Lockstep

Tick = float  # seconds, or whole microseconds under `engine.step_time`


class Entry:
    """Cached blocks that a request holds: a piece of the pool's index, and the block before which its part ends."""

    __slots__ = ("end", "piece")

    def __init__(self, piece: Any, end: int) -> None:
        self.piece = piece
        self.end = end


class Request:
    """State of one request.

    While the request is in the decode group, ``computed`` and ``issued`` are implied by the group's step count and the
    attributes here are stale; `DecodeGroup.leave` brings them up to date.

    Attributes:
        computed: tokens whose KV is in the cache, those of the step being scheduled included.
        issued: output tokens sampled or in flight.
        rank: place in the running order, given at each admission.
        group: the decode group it is in, or was in last.
        spans: rows (node, end) of shared text, ends in tokens; see `sim.workload.PrefixSpans`.
        keeps_kv: its blocks outlast its last token, until another engine has them.
        table: prefix cache only: entries that cover the cached blocks from 0.
        cached_blocks: blocks of the table, at its last update.
        drafts: speculative decoding: drafts to verify in the next step, 0 before the first token of an admission.
        verified: verify steps done.
        full: blocks that held known tokens only when it was last scheduled in the group.
        stream: tokens given out by the first v verify steps (an array); course: the same, as the group goes through it.
        group_base: computed tokens less what ``course`` counts.
        behind: blocks given back because the attention window has left them behind.
        reserved: tokens whose blocks it holds already, computed or not; 0 where blocks are taken as tokens come.
    """

    __slots__ = (
        "admitted",
        "arrival",
        "attempts",
        "behind",
        "cached_blocks",
        "cached_tokens",
        "computed",
        "course",
        "drafts",
        "draining",
        "finish",
        "first_token",
        "full",
        "group",
        "group_base",
        "group_offset",
        "id",
        "in_group",
        "issued",
        "join_step",
        "keeps_kv",
        "last_group_step",
        "last_token",
        "output",
        "preemptions",
        "prefill_replica",
        "priority",
        "prompt",
        "queued",
        "rank",
        "replica",
        "reserved",
        "resume_cached_tokens",
        "session",
        "spans",
        "stream",
        "table",
        "verified",
        "window_step",
    )

    def __init__(
        self,
        id: int,
        prompt: int,
        output: int,
        *,
        arrival: Tick = 0.0,
        priority: int = 0,
        session: int = -1,
        spans: list[tuple[int, int]] | None = None,
    ) -> None:
        self.id = id
        self.prompt = prompt
        self.output = output
        self.arrival: Tick = arrival
        self.queued: Tick = arrival
        self.priority = priority
        self.session = session
        self.spans = spans
        self.replica = 0
        self.prefill_replica = -1
        self.attempts = 1
        self.computed = 0
        self.issued = 0
        self.rank = -1
        self.in_group = False
        self.group: Lockstep | None = None
        self.draining = False
        self.keeps_kv = False
        self.group_offset = 0
        self.last_group_step = 0
        self.join_step = -1
        self.window_step = -1
        self.table: list[Entry] = []
        self.cached_blocks = 0
        self.reserved = self.behind = 0
        self.drafts = self.verified = self.full = self.group_base = 0
        self.stream: Any = None
        self.course: Any = None
        self.admitted: Tick = -1.0
        self.first_token: Tick = -1.0
        self.last_token: Tick = -1.0
        self.finish: Tick = -1.0
        self.preemptions = 0
        self.cached_tokens = 0
        self.resume_cached_tokens = 0

    @property
    def known(self) -> int:
        """Tokens that exist: the prompt and the outputs so far."""
        return self.prompt + self.issued

    def __repr__(self) -> str:
        return f"Request({self.id}, {self.prompt}+{self.output}, computed={self.computed}, issued={self.issued})"
