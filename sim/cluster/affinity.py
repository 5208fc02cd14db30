"""Routers that send text where it is cached, by their own record of what they sent where."""

from __future__ import annotations

from collections.abc import Sequence

from sim.cluster.reports import Reports
from sim.engine.replica import Replica
from sim.engine.request import Request


def texts(request: Request) -> list[tuple[int, int]]:
    """(text, end) rows of a request, its own private text last; none where no request of the run shares any.

    See `sim.workload.PrefixSpans`.
    """
    if request.spans is None:
        return []
    end = request.prompt + request.output
    return request.spans if request.spans and request.spans[-1][1] >= end else [*request.spans, (~request.id, end)]


class PrefixAffinity:
    """A prompt goes where its longest known beginning went first, however loaded that replica is.

    A prompt with an unknown beginning goes to the smallest load; of equals, to the one that got fewest of them.
    """

    def __init__(self, reports: Reports | None = None) -> None:
        self.reports = reports or Reports()
        self._owner: dict[int, int] = {}  # text -> index of the replica
        self._owned: dict[int, int] = {}  # index -> prompts with an unknown beginning

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """The owner of the longest known beginning."""
        rows = texts(request)
        position = self._home(rows, replicas)
        if position is None:
            position = min(range(len(replicas)), key=lambda i: self._key(replicas[i]))
            index = replicas[position].index
            self._owned[index] = self._owned.get(index, 0) + 1
        for text, _ in rows:
            self._owner.setdefault(text, replicas[position].index)
        return position

    def forget(self, replica: Replica) -> None:
        """What ``replica`` owned has no owner any more."""
        self._owner = {text: index for text, index in self._owner.items() if index != replica.index}
        self._owned.pop(replica.index, None)

    def _home(self, rows: list[tuple[int, int]], replicas: Sequence[Replica]) -> int | None:
        for text, _ in reversed(rows):
            owner = self._owner.get(text)
            if owner is not None:
                return next((i for i, replica in enumerate(replicas) if replica.index == owner), None)
        return None

    def _key(self, replica: Replica) -> tuple[float, int]:
        return self.reports.of(replica), self._owned.get(replica.index, 0)


class CacheAware:
    """The replica that was sent most of the prompt's beginning, unless it is overloaded.

    A replica is passed over while its load exceeds ``load_cap`` times the mean *and* the smallest load by more than
    ``load_slack``; of equals the smallest load wins, then the one that was sent the fewest prompts.
    SGLang's router too has a relative and an absolute bound; the first
    alone is consistent hashing with bounded loads (arXiv 1608.01350). The record never expires: text that a replica has
    evicted meanwhile is still counted.
    """

    def __init__(self, load_cap: float = 1.5, load_slack: float = 16.0, reports: Reports | None = None) -> None:
        self.reports = reports or Reports()
        self._cap = load_cap
        self._slack = load_slack
        self._sent: dict[int, dict[int, int]] = {}  # text -> {index: tokens from the start}
        self._prompts: dict[int, int] = {}  # index -> prompts sent there

    def choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        """Longest match among those not overloaded."""
        rows = texts(request)
        loads = [self.reports.of(replica) for replica in replicas]
        bound = max(self._cap * sum(loads) / len(loads), min(loads) + self._slack)
        match = self._matches(rows)
        allowed = [i for i, load in enumerate(loads) if load <= bound]
        sent = self._prompts

        def merit(position: int) -> tuple[int, float, int]:
            index = replicas[position].index
            return match.get(index, 0), -loads[position], -sent.get(index, 0)

        position = max(allowed, key=merit)
        index = replicas[position].index
        sent[index] = sent.get(index, 0) + 1
        self._record(rows, index)
        return position

    def forget(self, replica: Replica) -> None:
        """Nothing of what ``replica`` was sent is cached any more."""
        for sent in self._sent.values():
            sent.pop(replica.index, None)

    def _matches(self, rows: list[tuple[int, int]]) -> dict[int, int]:
        """{replica: tokens of the beginning that it was sent}."""
        match: dict[int, int] = {}
        begin = 0
        for text, end in rows:
            sent = self._sent.get(text)
            if not sent:
                break
            for index, until in sent.items():
                if match.get(index, 0) == begin:
                    match[index] = min(end, until)
            begin = end
        return match

    def _record(self, rows: list[tuple[int, int]], index: int) -> None:
        for text, end in rows:
            sent = self._sent.setdefault(text, {})
            sent[index] = max(sent.get(index, 0), end)
