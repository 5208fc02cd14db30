"""What the clusters behind joblib have in common, and Ray. Imported only when asked for: the packages are optional."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar
from urllib.parse import urlsplit

from sim.errors import InputError

Item = TypeVar("Item")
Out = TypeVar("Out")
Call = tuple[Callable[[Any], Any], int, Any]  # function, number, item

_ANSWER_S: Final = 5.0  # within which a scheduler must take a connection
_ROUND: Final = 4  # items a worker between two looks at results, where a backend cannot stream them


class Cluster:
    """A joblib backend, and what must be closed when it is no longer needed."""

    name: str
    packages: tuple[str, ...]
    ports: ClassVar[Mapping[str, int]]  # where nothing else is said, by scheme

    def __init__(self, workers: int | None, address: str | None) -> None:
        missing = [package for package in self.packages if find_spec(package) is None]
        if missing:
            raise InputError(
                "--executor", f"{self.name} needs {' and '.join(missing)}", "pip install 'servecast[cluster]'"
            )
        self.workers = workers
        self.address = address
        self.closing = ExitStack()
        self._running = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the cluster; one that was started here ends."""
        self._running = False
        self.closing.close()

    def stream(self, function: Callable[[Item], Out], items: Sequence[tuple[int, Item]]) -> Iterator[tuple[int, Out]]:
        """As they finish, or by rounds. Raises what the cluster raises where it loses a worker."""
        if not self._running:
            if self.address is not None:
                check_address(self.address, self.ports)
            try:
                self.start()
            except (OSError, TimeoutError, ConnectionError, RuntimeError) as error:
                where = self.address or "on this machine"
                raise InputError("--executor", f"no {self.name} cluster {where}: {error}", "check --address") from None
            self._running = True
        yield from self.results([(function, number, item) for number, item in items])

    def start(self) -> None:
        """Connect, or start a cluster of this machine."""
        raise NotImplementedError

    def results(self, calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
        """(number, result) of each call."""
        raise NotImplementedError


def check_address(address: str, ports: Mapping[str, int]) -> None:
    """Raise `InputError` unless somebody listens at ``address``: the packages themselves go on trying for minutes.

    What names no host (``auto``, ``local``) or goes by other means than sockets is left to them.

    Args:
        address: ``scheme://host:port``, without the scheme or without the port.
        ports: the usual port of each scheme; of none under "".
    """
    scheme, _, place = address.rpartition("://")
    if scheme not in ports or place in ("auto", "local"):
        return
    remedy = "give it as host:port, and see that the cluster runs and can be reached from here"
    try:
        parts = urlsplit(f"//{place}")
        host, port = parts.hostname, parts.port or ports[scheme]
    except ValueError as error:
        raise InputError("--address", f"cannot read {address!r}: {error}", remedy) from None
    if host is None:
        raise InputError("--address", f"{address!r} names no host", remedy)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_S).close()
    except OSError as error:
        raise InputError("--address", f"nothing answers at {host}:{port} ({error})", remedy) from None


def run_parallel(backend: Any, workers: int | None, calls: Sequence[Call], return_as: str) -> Any:
    """Results of ``calls`` under a joblib backend (a name or an object)."""
    joblib: Any = import_module("joblib")
    with joblib.parallel_config(backend=backend):
        run = joblib.Parallel(n_jobs=workers or -1, batch_size=1, return_as=return_as)
        return run(joblib.delayed(_numbered)(*call) for call in calls)


def _numbered(function: Callable[[Any], Any], number: int, item: Any) -> tuple[int, Any]:
    return number, function(item)


class RayCluster(Cluster):
    """A Ray cluster by its address, or one of this machine. Its backend returns lists, so work goes out in rounds."""

    name = "ray"
    packages = ("joblib", "ray")
    ports: ClassVar = {"": 6379, "ray": 10001}

    def start(self) -> None:
        """``ray.init``, unless this process is connected already."""
        self._pool = ExitStack()
        self._run: Any = None
        ray: Any = import_module("ray")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
        if self.address is not None:
            options["address"] = self.address
        else:
            options |= {"num_cpus": self.workers, "include_dashboard": False}
        if not ray.is_initialized():
            ray.init(**options)
            self.closing.callback(ray.shutdown)
        import_module("ray.util.joblib").register_ray()
        self.closing.callback(self._let_go)

    def results(self, calls: Sequence[Call]) -> Iterator[tuple[int, Any]]:
        """By rounds, in order. The actors stay from call to call; where one is lost, the next call starts new ones."""
        ray: Any = import_module("ray")
        joblib: Any = import_module("joblib")
        size = _ROUND * (self.workers or max(1, int(ray.cluster_resources().get("CPU", 1))))
        try:
            if self._run is None:
                with joblib.parallel_config(backend=self.name):
                    self._run = joblib.Parallel(n_jobs=self.workers or -1, batch_size=1)
                self._pool.enter_context(self._run)
            for start in range(0, len(calls), size):
                yield from self._run(joblib.delayed(_numbered)(*call) for call in calls[start : start + size])
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        self._run = None
        self._pool.close()
