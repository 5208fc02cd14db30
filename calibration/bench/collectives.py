"""Collectives through torch.distributed: gloo between processes of this machine, nccl between its GPUs.

``bytes`` counts, as nccl-tests do, the whole buffer: each rank's input of an all-reduce, an all-to-all and a
reduce-scatter, each rank's output of an all-gather.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from calibration.bench.device import Device

FAMILIES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_SIZES: Final = {
    "cpu": tuple(1024 << (2 * i) for i in range(8)),  # 1 KiB to 16 MiB
    "cuda": tuple(1024 << i for i in range(19)),  # 1 KiB to 256 MiB
}
_REPEATS: Final = 15
_WARM_UP: Final = 3
_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class CollectiveTiming:
    """Median over repeats of the slowest rank's time."""

    family: str
    size_bytes: int
    ranks: int
    seconds: float
    fastest_s: float
    spread: float


def rank_counts(device: Device) -> list[int]:
    """2, 4, 8, ... up to the GPUs of the machine, or to the cores of a CPU (8 at most)."""
    most = device.torch.cuda.device_count() if device.kind == "cuda" else min(8, os.cpu_count() or 1)
    return [ranks for ranks in (2, 4, 8) if ranks <= most]


def time_collectives(device: Device, ranks: int) -> list[CollectiveTiming]:
    """All families and sizes over ``ranks`` new processes.

    Raises:
        RuntimeError: a rank failed; the message is its own.
    """
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory(prefix="servecast-") as folder:
        arguments = (ranks, folder, device.kind, _SIZES[device.kind])
        try:
            processes.spawn(_rank, args=arguments, nprocs=ranks, join=True)
        except processes.ProcessException as error:
            raise RuntimeError(f"collectives over {ranks} ranks: {str(error).strip().splitlines()[-1]}") from None
        rows = json.loads((Path(folder) / "timings.json").read_text())
    return [CollectiveTiming(ranks=ranks, **row) for row in rows]


def _rank(rank: int, ranks: int, folder: str, kind: str, sizes: tuple[int, ...]) -> None:
    """One process: takes part in every collective; the first one writes the times down."""
    from datetime import timedelta

    import torch
    import torch.distributed as distributed

    where = f"cuda:{rank}" if kind == "cuda" else "cpu"
    if kind == "cuda":
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=distributed.FileStore(str(Path(folder) / "store"), ranks),
        rank=rank,
        world_size=ranks,
        timeout=timedelta(seconds=_TIMEOUT_S),
    )
    rows = []
    for size in sizes:
        for family in FAMILIES:
            call = _call(torch, distributed, family, size, ranks, where)
            times = _times(torch, distributed, call, where)
            rows.append({"family": family, "size_bytes": size, **_summary(times)})
    if rank == 0:
        (Path(folder) / "timings.json").write_text(json.dumps(rows))
    distributed.barrier()
    distributed.destroy_process_group()


def _call(torch: Any, distributed: Any, family: str, size: int, ranks: int, where: str) -> Callable[[], object]:
    elements = max(ranks, size // 2 // ranks * ranks)
    whole = torch.ones(elements, dtype=torch.bfloat16, device=where)
    part = torch.ones(elements // ranks, dtype=torch.bfloat16, device=where)
    if family == "all_reduce":
        return lambda: distributed.all_reduce(whole)
    if family == "all_gather":
        gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)  # renamed in torch 2.13
        return lambda: gather(whole, part)
    if family == "reduce_scatter":
        scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)
        return lambda: scatter(part, whole)
    other = torch.empty_like(whole)
    return lambda: distributed.all_to_all_single(other, whole)


def _times(torch: Any, distributed: Any, call: Callable[[], object], where: str) -> Any:
    """(repeats,) seconds, of the slowest rank each."""
    taken = []
    for repeat in range(_WARM_UP + _REPEATS):
        distributed.barrier()
        _wait(torch, where)
        begin = time.perf_counter()
        call()
        _wait(torch, where)
        if repeat >= _WARM_UP:
            taken.append(time.perf_counter() - begin)
    slowest = torch.tensor(taken, dtype=torch.float64, device=where)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX)
    return slowest.cpu().numpy()


def _wait(torch: Any, where: str) -> None:
    if where != "cpu":
        torch.cuda.synchronize()


def _summary(times: Any) -> dict[str, float]:
    low, median, high = (float(value) for value in np.quantile(times, (0.25, 0.5, 0.75)))
    return {"seconds": median, "fastest_s": float(times.min()), "spread": (high - low) / median}
