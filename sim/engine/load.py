"""How loaded a replica is, as routers measure it: requests, tokens or KV blocks, running and waiting together.

Requests whose cache comes from another replica wait here from the moment they are sent to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sim.engine.replica import Replica


def requests(replica: Replica) -> float:
    """Requests running and waiting."""
    scheduler = replica.scheduler
    expected = len(replica.inbox) if replica.inbox is not None else 0
    return len(scheduler.running) + len(scheduler.waiting) + len(scheduler.fetching) + expected


def tokens(replica: Replica) -> float:
    """Tokens of those requests: prompts, and outputs so far."""
    scheduler = replica.scheduler
    known = scheduler.waiting.tokens + scheduler.known_tokens(replica.unsettled_steps)
    if replica.inbox is not None:
        known += replica.inbox.waiting.tokens + sum(request.known for request in scheduler.coming)
    return known + sum(request.known for request in scheduler.fetching)


def kv(replica: Replica) -> float:
    """Share of the KV blocks that running requests hold and waiting ones will ask for; may pass 1."""
    scheduler = replica.scheduler
    pool = scheduler.pool
    held = pool.usable_blocks - pool.free + scheduler.blocks_within(replica.unsettled_steps)
    waiting = scheduler.waiting.tokens + (replica.inbox.waiting.tokens if replica.inbox is not None else 0)
    return (held + waiting / pool.block_size) / pool.usable_blocks


METRICS: Final[dict[str, Callable[[Replica], float]]] = {"requests": requests, "tokens": tokens, "kv": kv}
