"""Dask as an executor."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from importlib import import_module
from typing import Any, ClassVar, Final

from sim.errors import InputError
from sim.planner.clusters import Call, Cluster, run_parallel

_LOOK_S: Final = 2.0
_WITHOUT_WORKERS_S: Final = 20.0


class NoWorkersError(RuntimeError):
    """The cluster has had no worker for a while."""


class DaskCluster(Cluster):
    """A Dask scheduler by its address, or one of this machine."""

    name = "dask"
    packages = ("joblib", "distributed")
    ports: ClassVar = {"": 8786, "tcp": 8786, "tls": 8786, "ws": 8786, "wss": 8786}

    def start(self) -> None:
        """Connect. A cluster of this machine gives a point up with its first worker: it is tried again from here."""
        from sim.planner.executors import available_processors

        distributed: Any = import_module("distributed")
        where: Any = self.address
        if where is None:
            settings = {"distributed.scheduler.allowed-failures": 0}
            with import_module("dask").config.set(settings):
                workers = self.workers or available_processors()
                where = self.closing.enter_context(
                    distributed.LocalCluster(
                        n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=logging.CRITICAL
                    )
                )
        self._client = self.closing.enter_context(distributed.Client(where, set_as_default=True))

    def results(self, calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
        """As they finish."""
        backend = _backend()
        over = threading.Event()
        guard = threading.Thread(target=_guard, args=(self._client, backend, over), daemon=True)
        guard.start()
        try:
            yield from run_parallel(backend, self.workers, calls, "generator_unordered")
        except (NoWorkersError, TimeoutError) as error:
            if self.address is not None:
                remedy = "start workers and run the same command again: finished points are kept"
                raise InputError("--address", f"{self.address} has no workers left", remedy) from error
            self.close()  # the next round starts a new one
            raise
        finally:
            over.set()


def _guard(client: Any, backend: Any, over: threading.Event) -> None:
    """Give up the open points of ``backend`` once the cluster has been without workers for a while."""
    without_s = 0.0
    while not over.wait(_LOOK_S):
        with suppress(Exception):
            without_s = 0.0 if client.ncores() else without_s + _LOOK_S
        if without_s >= _WITHOUT_WORKERS_S:
            for future in list(backend.open):
                with suppress(InvalidStateError):
                    future.set_exception(NoWorkersError("no worker is left"))


def _backend() -> Any:
    """joblib's backend for Dask with two holes closed.

    As it is, it waits for ever for a point that Dask has given up, and where a single worker is left it does the work
    in this process. ``open`` holds the futures that have no result yet.
    """
    original: Any = import_module("joblib._dask").DaskDistributedBackend

    class Backend(original):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.open: set[Future[Any]] = set()

        def effective_n_jobs(self, n_jobs: int) -> int:
            there: int = super().effective_n_jobs(n_jobs)
            return max(2, there)

        def submit(self, func: Any, callback: Callable[[Any], Any] | None = None) -> Any:
            def over(finished: Future[Any]) -> None:
                self.open.discard(finished)
                if callback is not None and (error := finished.exception()) is not None:
                    callback(error)

            future = super().submit(func, callback)
            self.open.add(future)
            future.add_done_callback(over)
            return future

    return Backend()
