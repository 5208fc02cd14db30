from __future__ import annotations

from sim.engine.queue import FcfsQueue, PriorityQueue
from sim.engine.request import Request


def request(id: int, arrival: int = 0, priority: int = 0) -> Request:
    return Request(id, 1, 1, arrival=arrival, priority=priority)


def drain(queue: FcfsQueue | PriorityQueue) -> list[int]:
    return [queue.pop().id for _ in range(len(queue))]


def test_fcfs_keeps_arrival_order_and_sends_the_preempted_to_the_front() -> None:
    queue = FcfsQueue()
    queue.add(request(0, 1))
    queue.add(request(1, 2))
    back = request(7, 0)
    back.preemptions = 1
    queue.requeue(back)
    assert drain(queue) == [7, 0, 1]


def test_arrivals_of_one_instant_stand_by_id() -> None:
    queue = FcfsQueue()
    for id in (3, 1, 2):
        queue.add(request(id, 5))
    assert drain(queue) == [1, 2, 3]


def test_priority_orders_by_priority_then_arrival_then_id() -> None:
    queue = PriorityQueue()
    for id, arrival, priority in ((0, 5, 1), (1, 9, 0), (2, 3, 1), (3, 3, 1)):
        queue.add(request(id, arrival, priority))
    assert drain(queue) == [1, 2, 3, 0]


def test_a_request_can_leave_from_the_middle() -> None:
    queue = PriorityQueue()
    requests = [request(id, id) for id in range(3)]
    for each in requests:
        queue.add(each)
    queue.remove(requests[1])
    assert drain(queue) == [0, 2]
