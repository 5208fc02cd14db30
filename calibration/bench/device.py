"""The device under test: what torch calls it, what it is, and which software measures it."""

from __future__ import annotations

import os
import platform
import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from calibration.bench.timing import Call, Clock, HostClock
from sim.errors import InputError, nearest

Kind = Literal["cpu", "cuda"]
KINDS: Final = ("cpu", "cuda")
_FALLBACK_CACHE_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class Device:
    """One device, open.

    Attributes:
        torch: the module, imported.
        kind: ``cpu`` or ``cuda``.
        where: for torch's ``device=``.
        name: of the product.
        clock: how its calls are timed.
        cache_bytes: of its last-level cache; inputs rotate through more than that.
        memory_bytes: that a benchmark may use.
        facts: versions and properties, for the table's metadata.
        fp8: whether it multiplies fp8 matrices.
    """

    torch: Any
    kind: Kind
    where: str
    name: str
    clock: Clock
    cache_bytes: int
    memory_bytes: int
    facts: dict[str, str] = field(default_factory=dict)
    fp8: bool = False


def require_torch() -> Any:
    """The torch module. Raises `InputError` naming the extra where it is not installed."""
    try:
        import torch
    except ImportError:
        raise InputError("torch", "is not installed", "pip install 'servecast[calibrate]'") from None
    return torch


def open_device(kind: str, threads: int | None = None, *, cpu_time: bool = False) -> Device:
    """Open a device for measuring.

    Args:
        kind: ``cpu`` or ``cuda`` (the current CUDA device).
        threads: for the CPU; None = as torch chooses.
        cpu_time: time the CPU by what one thread used of a core instead of by the wall clock.

    Raises:
        InputError: no torch, an unknown kind, or no CUDA device.
    """
    if kind not in KINDS:
        raise InputError("--device", f"unknown device {kind!r}", nearest(kind, KINDS))
    torch = require_torch()
    if kind == "cuda":
        return _cuda(torch)
    if cpu_time and threads != 1:
        raise InputError("--clock", "CPU time counts all threads together", "give --threads 1 too")
    if threads is not None:
        torch.set_num_threads(threads)
    return _cpu(torch, cpu_time)


def _cpu(torch: Any, cpu_time: bool) -> Device:
    cache = _last_level_cache_bytes()
    facts = {
        **_software(torch),
        "threads": str(torch.get_num_threads()),
        "clock": "CPU time of one thread" if cpu_time else "wall",
        "cores": str(os.cpu_count()),
        "cache_bytes": str(cache),
        "capability": str(torch.backends.cpu.get_cpu_capability()),
    }
    clock = HostClock(time.process_time if cpu_time else time.perf_counter)
    return Device(torch, "cpu", "cpu", cpu_name(), clock, cache, _free_bytes() // 4, facts)


def _cuda(torch: Any) -> Device:
    if not torch.cuda.is_available():
        raise InputError("--device", "torch sees no CUDA device", "run on a machine with one, or use --device cpu")
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    facts = {
        **_software(torch),
        "cuda": str(torch.version.cuda),
        "memory_bytes": str(properties.total_memory),
        "multiprocessors": str(properties.multi_processor_count),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "cache_bytes": str(properties.L2_cache_size),
    }
    free = int(torch.cuda.mem_get_info()[0])
    fp8 = (properties.major, properties.minor) >= (8, 9)
    clock = CudaClock(torch)
    return Device(torch, "cuda", "cuda", properties.name, clock, properties.L2_cache_size, free // 2, facts, fp8)


class CudaClock:
    """Times on the GPU's own clock.

    The calls are captured in a CUDA graph and replayed, as engines do with their decode steps: a short kernel is not
    timed by how long Python takes to launch it.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._captured: tuple[Call, int, Any] | None = None

    def seconds(self, call: Call, calls: int) -> float:
        """Time between two events around one replay."""
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph = self._graph(call, calls)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def _graph(self, call: Call, calls: int) -> Any:
        if self._captured is not None and self._captured[:2] == (call, calls):
            return self._captured[2]
        cuda = self._torch.cuda
        aside = cuda.Stream()
        aside.wait_stream(cuda.current_stream())
        with cuda.stream(aside):  # libraries set themselves up outside the capture
            call()
        cuda.current_stream().wait_stream(aside)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(calls):
                call()
        self._captured = (call, calls, graph)
        graph.replay()
        return graph


def _software(torch: Any) -> dict[str, str]:
    return {"torch": str(torch.__version__), "python": platform.python_version(), "platform": platform.platform()}


def cpu_name() -> str:
    """Product name of the CPU."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def _last_level_cache_bytes() -> int:
    """Largest cache of the first core."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1], 1)
        sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=_FALLBACK_CACHE_BYTES)


def _free_bytes() -> int:
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return int(found.group(1)) << 10 if found else 4 << 30
