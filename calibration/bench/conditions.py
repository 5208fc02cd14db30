"""Was the machine left alone while it was measured? A busy or throttled device is told, never measured in silence."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

OTHERS_SHARE: Final = 0.05  # of all cores' time used by other processes or taken by the hypervisor
DRIFT: Final = 0.10  # between the fastest and the slowest timing of one reference kernel
SETTLED: Final = 0.8  # of the timings that should have become stable
_GPU_FIELDS: Final = (
    "utilization.gpu",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "clocks_event_reasons.hw_slowdown",
    "clocks_event_reasons.sw_thermal_slowdown",
    "clocks_event_reasons.sw_power_cap",
)


@dataclass(frozen=True, slots=True)
class _CpuTimes:
    """Seconds since boot, summed over cores, and of this process with its descendants."""

    wall: float
    busy: float
    stolen: float
    own: float


@dataclass(slots=True)
class Conditions:
    """What a run saw of the machine's other work.

    Attributes:
        others_share: part of all cores' time that other processes used; None where the system does not tell.
        stolen_share: part that the hypervisor gave to others.
        drift: slowest over fastest timing of the reference kernel, minus 1.
        settled_share: part of the timings whose median became stable.
        gpu: fields of ``nvidia-smi`` at the end of the run, empty on a CPU.
    """

    others_share: float | None = None
    stolen_share: float | None = None
    drift: float = 0.0
    settled_share: float = 1.0
    gpu: dict[str, str] = field(default_factory=dict)

    def warnings(self) -> list[str]:
        """One sentence for each reason to measure again."""
        told = []
        if self.others_share is not None and self.others_share > OTHERS_SHARE:
            told.append(f"busy machine: other processes used {self.others_share:.0%} of the cores")
        if self.stolen_share is not None and self.stolen_share > OTHERS_SHARE:
            told.append(f"busy host: the hypervisor took {self.stolen_share:.0%} of the cores' time")
        if self.drift > DRIFT:
            told.append(f"busy or throttled device: the same kernel took up to {self.drift:.0%} longer during the run")
        if self.settled_share < SETTLED:
            told.append(f"noisy device: only {self.settled_share:.0%} of the medians became stable")
        told += [f"throttled device: {name.split('.')[-1]}" for name in self.gpu if self.gpu[name] == "Active"]
        return told


class Watch:
    """Takes note of the machine from its making to `conditions`.

    Args:
        index: of the GPU to watch; None = the CPU alone.
    """

    def __init__(self, index: int | None = None) -> None:
        self._index = index
        self._begin = _cpu_times()
        self._reference: list[float] = []
        self._stable: list[bool] = []

    def reference(self, seconds: float) -> None:
        """Note a timing of the reference kernel."""
        self._reference.append(seconds)

    def timing(self, stable: bool) -> None:
        """Note whether a median became stable."""
        self._stable.append(stable)

    def conditions(self) -> Conditions:
        """What was seen so far."""
        found = Conditions(gpu=_gpu_state(self._index) if self._index is not None else {})
        if self._reference:
            found.drift = max(self._reference) / min(self._reference) - 1
        if self._stable:
            found.settled_share = sum(self._stable) / len(self._stable)
        end = _cpu_times()
        if self._begin is not None and end is not None and end.wall > self._begin.wall:
            cores = (end.wall - self._begin.wall) * (os.cpu_count() or 1)
            others = (end.busy - self._begin.busy) - (end.own - self._begin.own)
            found.others_share = max(0.0, others / cores)
            found.stolen_share = max(0.0, (end.stolen - self._begin.stolen) / cores)
        return found


def _cpu_times() -> _CpuTimes | None:
    """From ``/proc/stat``; None where there is none."""
    try:
        words = Path("/proc/stat").read_text().splitlines()[0].split()
    except (OSError, IndexError):
        return None
    tick = 1.0 / os.sysconf("SC_CLK_TCK")
    user, nice, system, _idle, _wait, irq, soft, stolen = (float(word) * tick for word in words[1:9])
    own = os.times()
    used = own.user + own.system + own.children_user + own.children_system + _descendants_s(os.getpid(), tick)
    return _CpuTimes(time.perf_counter(), user + nice + system + irq + soft, stolen, used)


def _descendants_s(ancestor: int, tick: float) -> float:
    """CPU seconds of the living descendants of a process, and of the children that those have waited for."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        process = int(stat.parent.name)
        parents[process] = int(words[1])
        seconds[process] = tick * sum(int(word) for word in words[11:15])
    family = {ancestor}
    while True:
        more = {process for process, parent in parents.items() if parent in family} - family
        if not more:
            return sum(seconds[process] for process in family - {ancestor})
        family |= more


def _gpu_state(index: int) -> dict[str, str]:
    """Utilisation, clocks, temperature and throttle reasons of one GPU; empty without ``nvidia-smi``."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, f"--id={index}", f"--query-gpu={','.join(_GPU_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        out = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(_GPU_FIELDS, (word.strip() for word in out.strip().split(",")), strict=False))
