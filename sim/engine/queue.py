"""Waiting requests: first come first served, or by priority. A preempted request has its own way back in."""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import Protocol

from sim.engine.request import Request


class WaitingQueue(Protocol):
    """What the scheduler asks of a queue."""

    def add(self, request: Request) -> None:
        """Join as a new arrival."""

    def requeue(self, request: Request) -> None:
        """Rejoin after a preemption."""

    def head(self) -> Request:
        """The next to be admitted; the queue must not be empty."""
        ...

    def pop(self) -> Request:
        """Take the head out."""
        ...

    def remove(self, request: Request) -> None:
        """Take out a request wherever it stands; nothing happens if it is not there."""

    def __len__(self) -> int: ...


class FcfsQueue:
    """Order of arrival; a preempted request goes to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()

    def add(self, request: Request) -> None:
        """Join at the back; of those that arrive in the same instant, the smaller id stands first."""
        later = []
        queue = self._requests
        while queue and queue[-1].queued == request.queued and queue[-1].id > request.id and not queue[-1].preemptions:
            later.append(queue.pop())
        queue.append(request)
        queue.extend(reversed(later))

    def requeue(self, request: Request) -> None:
        """Rejoin at the front."""
        self._requests.appendleft(request)

    def head(self) -> Request:
        """The longest waiting."""
        return self._requests[0]

    def pop(self) -> Request:
        """Take the head out."""
        return self._requests.popleft()

    def remove(self, request: Request) -> None:
        """Take a request out from anywhere."""
        if request in self._requests:
            self._requests.remove(request)

    def __len__(self) -> int:
        return len(self._requests)


def priority_key(request: Request) -> tuple[int, float, int]:
    """vLLM's order under the priority policy: smaller value first, then arrival, then id."""
    return request.priority, request.queued, request.id


class PriorityQueue:
    """Order of (priority, arrival, id); a preempted request goes to its place by the same key."""

    def __init__(self) -> None:
        self._requests: list[Request] = []  # last is next, so that taking it out is cheap

    def add(self, request: Request) -> None:
        """Join at the place that the key gives."""
        insort(self._requests, request, key=_reversed_key)

    requeue = add

    def head(self) -> Request:
        """The smallest key."""
        return self._requests[-1]

    def pop(self) -> Request:
        """Take the head out."""
        return self._requests.pop()

    def remove(self, request: Request) -> None:
        """Take a request out from anywhere."""
        if request in self._requests:
            self._requests.remove(request)

    def __len__(self) -> int:
        return len(self._requests)


def _reversed_key(request: Request) -> tuple[int, float, int]:
    priority, queued, id = priority_key(request)
    return -priority, -queued, -id
