"""Waiting requests: first come first served, or by priority. A preempted request has its own way back in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from collections import deque

from mypy_extensions import mypyc_attr

from sim.engine.request import Request


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingQueue(ABC):
    """What the scheduler asks of a queue.

    Attributes:
        tokens: sum of the tokens that its requests know, prompts and outputs so far.
    """

    tokens: int

    @abstractmethod
    def add(self, request: Request) -> None:
        """Join as a new arrival."""

    @abstractmethod
    def requeue(self, request: Request) -> None:
        """Rejoin after a preemption."""

    @abstractmethod
    def head(self) -> Request:
        """The next to be admitted; the queue must not be empty."""

    @abstractmethod
    def pop(self) -> Request:
        """Take the head out."""

    @abstractmethod
    def remove(self, request: Request) -> None:
        """Take out a request wherever it stands; nothing happens if it is not there."""

    @abstractmethod
    def __len__(self) -> int: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class FcfsQueue(WaitingQueue):
    """Order of arrival; a preempted request goes to the front."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque()
        self.tokens = 0

    def add(self, request: Request) -> None:
        """Join at the back; of those that arrive in the same instant, the smaller id stands first."""
        self.tokens += request.known
        later = []
        queue = self._requests
        while queue and queue[-1].queued == request.queued and queue[-1].id > request.id and not queue[-1].preemptions:
            later.append(queue.pop())
        queue.append(request)
        queue.extend(reversed(later))

    def requeue(self, request: Request) -> None:
        """Rejoin at the front."""
        self.tokens += request.known
        self._requests.appendleft(request)

    def head(self) -> Request:
        """The longest waiting."""
        return self._requests[0]

    def pop(self) -> Request:
        """Take the head out."""
        request = self._requests.popleft()
        self.tokens -= request.known
        return request

    def remove(self, request: Request) -> None:
        """Take a request out from anywhere."""
        if request in self._requests:
            self._requests.remove(request)
            self.tokens -= request.known

    def __len__(self) -> int:
        return len(self._requests)


def priority_key(request: Request) -> tuple[int, float, int]:
    """vLLM's order under the priority policy: smaller value first, then arrival, then id."""
    return request.priority, request.queued, request.id


class PriorityQueue(WaitingQueue):
    """Order of (priority, arrival, id); a preempted request goes to its place by the same key."""

    def __init__(self) -> None:
        self._requests: list[Request] = []  # last is next, so that taking it out is cheap
        self.tokens = 0

    def add(self, request: Request) -> None:
        """Join at the place that the key gives."""
        self.tokens += request.known
        insort(self._requests, request, key=_reversed_key)

    def requeue(self, request: Request) -> None:
        """Rejoin at the place that the key gives."""
        self.add(request)

    def head(self) -> Request:
        """The smallest key."""
        return self._requests[-1]

    def pop(self) -> Request:
        """Take the head out."""
        request = self._requests.pop()
        self.tokens -= request.known
        return request

    def remove(self, request: Request) -> None:
        """Take a request out from anywhere."""
        if request in self._requests:
            self._requests.remove(request)
            self.tokens -= request.known

    def __len__(self) -> int:
        return len(self._requests)


def _reversed_key(request: Request) -> tuple[int, float, int]:
    priority, queued, id = priority_key(request)
    return -priority, -queued, -id
