"""Waiting queues of engines that look past the head, or that send a preempted request elsewhere than to the front."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from sim.engine.queue import FcfsQueue
from sim.engine.request import Request


class OpenQueue(FcfsQueue):
    """Order of arrival; can be walked through and put into another order. A preempted request goes to the end."""

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def requeue(self, request: Request) -> None:
        """Rejoin at the end."""
        self.tokens += request.known
        self._requests.append(request)

    def sort(self, key: Callable[[Request], float]) -> None:
        """Put into the order of ``key``, equals as they stand."""
        self._requests = deque(sorted(self._requests, key=key))


class ArrivalQueue(OpenQueue):
    """Order of arrival; a preempted request goes back to its place."""

    def requeue(self, request: Request) -> None:
        """Rejoin before those that arrived later."""
        self.tokens += request.known
        place = 0
        for place, other in enumerate(self._requests):  # noqa: B007 (the place is what is looked for)
            if (other.queued, other.id) > (request.queued, request.id):
                break
        else:
            place = len(self._requests)
        self._requests.insert(place, request)
