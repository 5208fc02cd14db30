"""The replicas of a pool in the order of their numbers, whenever they start, without sorting them each time."""

from __future__ import annotations

from typing import Any

from sim.cluster.pool import Pool, PoolPlan


class Numbered:
    """An engine that counts how often anybody looks at its number."""

    looks = 0

    def __init__(self, index: int) -> None:
        self._index = index
        self.steps = self.unsettled_steps = 0

    @property
    def index(self) -> int:
        Numbered.looks += 1
        return self._index


class Anywhere:
    def forget(self, replica: Any) -> None: ...


def pool_of(count: int, ranks: int = 1) -> Pool:
    def build(plan: PoolPlan, first: int, config: Any) -> list[Any]:
        return [Numbered(first + rank) for rank in range(plan.ranks)]

    configs: Any = [None] * count
    anything: Any = Anywhere()
    return Pool(PoolPlan(configs, anything, anything, ranks=ranks), 0, build)


def test_a_replica_that_comes_back_takes_its_old_place() -> None:
    pool = pool_of(5, ranks=2)
    pool.stop(1)
    pool.stop(3)
    assert [engine.index for engine in pool.open] == [0, 1, 4, 5, 8, 9]
    pool.start(3)
    assert [engine.index for engine in pool.open] == [0, 1, 4, 5, 6, 7, 8, 9]
    pool.start(1)
    assert [engine.index for engine in pool.open] == list(range(10))


def test_many_replicas_are_put_in_order_without_sorting_them_again_and_again() -> None:
    Numbered.looks = 0
    pool_of(10_000)
    assert Numbered.looks < 10_000 * 15
