"""Where points are computed: processes of this machine, or a Dask or Ray cluster through joblib."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

from sim.errors import InputError, nearest

Item = TypeVar("Item")
Out = TypeVar("Out")
Numbered = Iterator[tuple[int, Out]]

EXECUTORS: Final = ("local", "dask", "ray")
FUTILE_ROUNDS: Final = 2


class Executor(Protocol):
    """Runs a function on many items. A context manager: leaving it gives back whatever was started."""

    def stream(self, function: Callable[[Item], Out], items: Sequence[tuple[int, Item]]) -> Numbered[Out]:
        """(number, result) of each (number, item), as they finish. Raises where a worker is lost."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def executor_of(name: str, *, workers: int | None = None, address: str | None = None) -> Executor:
    """The executor called ``name``.

    Args:
        name: local, dask or ray.
        workers: how many at once; None = the processors that this process may use, or all of the cluster.
        address: of a running cluster's scheduler; None = a cluster of this machine, for as long as needed.

    Raises:
        InputError: an unknown name, an address for local, no worker, or a package that is not installed.
    """
    if name not in EXECUTORS:
        raise InputError("--executor", f"unknown executor '{name}'", nearest(name, EXECUTORS))
    if workers is not None and workers < 1:
        raise InputError("--workers", f"must be at least 1, got {workers}")
    if name == "local":
        if address is not None:
            raise InputError("--address", f"{address!r} given for local processes", "add --executor dask or ray")
        count = workers or available_processors()
        return InProcess() if count == 1 else LocalProcesses(count)
    if name == "dask":
        from sim.planner.dask_cluster import DaskCluster

        return DaskCluster(workers, address)
    from sim.planner.clusters import RayCluster

    return RayCluster(workers, address)


def available_processors() -> int:
    """Processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def each_once(
    executor: Executor,
    function: Callable[[Item], Out],
    items: Sequence[Item],
    on_lost: Callable[[Item, Exception], Out],
) -> Numbered[Out]:
    """(index, result) of every item exactly once, in the order in which they finish.

    ``function`` must not raise, so an exception means that a worker, not an item, is gone: what it had in hand is done
    again. After `FUTILE_ROUNDS` rounds in which nothing finished, the items left are tried one by one, and what fails
    as often once more is given up with ``on_lost``.
    """
    left = dict(enumerate(items))
    futile = 0
    while left:
        alone = futile >= FUTILE_ROUNDS
        batch = list(left.items())[:1] if alone else list(left.items())
        before = len(left)
        error: Exception = RuntimeError("the executor returned no result")
        try:
            for index, result in executor.stream(function, batch):
                if left.pop(index, None) is not None:
                    yield index, result
        except InputError:
            raise
        except Exception as gone:
            error = gone
        if len(left) < before:
            futile = FUTILE_ROUNDS if alone else 0
        elif futile >= 2 * FUTILE_ROUNDS:
            index, item = batch[0]
            del left[index]
            futile = 0
            yield index, on_lost(item, error)
        else:
            futile += 1


class _Context:
    """The two ends of a context; subclasses say how to let go."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(at_once=kind is not None)

    def close(self, *, at_once: bool) -> None:
        """Give back what was started; ``at_once`` does not wait for work in hand."""


class InProcess(_Context):
    """No worker at all: one item after the other, here."""

    def stream(self, function: Callable[[Item], Out], items: Sequence[tuple[int, Item]]) -> Numbered[Out]:
        """In order."""
        return ((number, function(item)) for number, item in items)


class LocalProcesses(_Context):
    """Processes of this machine, started when first needed and kept for the next round."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._others: set[Any] = set()

    def stream(self, function: Callable[[Item], Out], items: Sequence[tuple[int, Item]]) -> Numbered[Out]:
        """As they finish. Raises `BrokenProcessPool` where a worker dies; the next call starts new ones."""
        pool = self._started()
        try:
            with _without_the_script():
                futures = {pool.submit(function, item): number for number, item in items}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            self.close(at_once=True)
            raise

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            methods = multiprocessing.get_all_start_methods()
            context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
            if context.get_start_method() == "forkserver":
                context.set_forkserver_preload(["sim.planner.measuring", "sim.run"])
            self._others = set(multiprocessing.active_children())
            self._pool = ProcessPoolExecutor(self._workers, context, initializer=_leave_interrupts_to_the_parent)
        return self._pool

    def close(self, *, at_once: bool) -> None:
        """Stop the processes."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        if at_once:
            for child in set(multiprocessing.active_children()) - self._others:
                child.terminate()
        pool.shutdown(wait=not at_once, cancel_futures=True)


@contextmanager
def _without_the_script() -> Iterator[None]:
    """Workers that start within do not run the caller's script again, as Python's would.

    They need nothing of it but schedulers of its own (`sim.engine.policies.add_policy`). A script that has some is run
    by every worker, and must do its work under ``if __name__ == "__main__"``.
    """
    from sim.engine.policies import POLICIES

    script = sys.modules["__main__"]
    if all(policy.__module__.startswith("sim.") for policy in POLICIES.values()):
        sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
