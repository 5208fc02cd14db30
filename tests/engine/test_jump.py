from __future__ import annotations

import pytest

from sim.cost.shape import StepShape
from sim.engine.jump import Jump


def jump(depth: int, increment: float = 0.0, steps: int = 10) -> Jump:
    return Jump(
        base=100.0,
        first=10.0,
        increment=increment,
        steps=steps,
        depth=depth,
        next_schedule=90.0,
        shape=StepShape(),
        waiting=0,
    )


def test_steps_end_where_their_durations_add_up() -> None:
    growing = jump(1, increment=2.0)
    durations = [10.0 + 2.0 * i for i in range(10)]
    assert [growing.end(i) for i in range(11)] == [100.0 + sum(durations[:i]) for i in range(11)]


@pytest.mark.parametrize(("now", "steps"), [(95, 0), (100, 0), (100.1, 1), (110, 1), (119, 2), (195, 10), (500, 10)])
def test_an_arrival_waits_for_the_step_in_flight(now: float, steps: int) -> None:
    run = jump(1)
    run.shorten(now)
    assert run.steps == steps


@pytest.mark.parametrize(("now", "steps"), [(89, 0), (90, 0), (90.1, 1), (100, 1), (100.1, 2), (119, 3), (500, 10)])
def test_an_arrival_waits_for_the_planned_step_too_when_scheduling_is_asynchronous(now: float, steps: int) -> None:
    run = jump(2)
    run.shorten(now)
    assert run.steps == steps


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("increment", [0.0, 0.3, 5.0])
def test_a_shortened_run_ends_before_the_first_schedule_that_sees_the_arrival(depth: int, increment: float) -> None:
    for tenth in range(900, 4000, 7):
        run = jump(depth, increment, steps=1000)
        now = tenth / 10
        run.shorten(now)
        assert run.wake >= now
        assert run.steps == 0 or run.scheduled(run.steps) < now


def test_a_step_sees_the_queue_of_its_own_instant() -> None:
    run = jump(1)
    run.arrivals += [105.0, 110.0, 131.0]
    assert [run.waiting_at(i) for i in (1, 2, 3, 4, 5)] == [0, 2, 2, 2, 3]
