"""One thing to time, and the inputs that rotate under it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, zip_longest
from typing import Any, Final, TypeVar

from calibration.bench.device import Device
from calibration.bench.timing import Call

Item = TypeVar("Item")
COLD: Final = 2  # inputs rotate through this many caches
MOST_COPIES: Final = 512


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table to be.

    Attributes:
        family: which law it follows.
        dtype: GEMM family, dtype of the cache, or ``any``.
        columns: the family's columns.
        cold_bytes: what one call reads that must not be in the cache, for one copy.
        make: allocates the inputs (that many copies of the cold ones) and returns the call.
        flops: of one call; 0 where memory alone counts.
    """

    family: str
    dtype: str
    columns: dict[str, float]
    cold_bytes: float
    make: Callable[[Device, int], Call] = field(repr=False)
    flops: float = 0.0

    def copies(self, device: Device) -> int:
        """How many copies of its cold input exceed the cache, within the memory that may be used."""
        wanted = 1 + int(COLD * device.cache_bytes / max(1.0, self.cold_bytes))
        fitting = int(device.memory_bytes / max(1.0, self.cold_bytes))
        return max(1, min(wanted, fitting, MOST_COPIES))

    def fits(self, device: Device) -> bool:
        """Whether at least two copies fit in memory."""
        return 2 * self.cold_bytes <= device.memory_bytes


def rotating(items: Sequence[Item], call: Callable[[Item], Any]) -> Call:
    """A call that takes the next item each time."""
    turn: Iterator[Item] = cycle(items)
    return lambda: call(next(turn))


def random_copies(device: Device, copies: int, *shape: int) -> list[Any]:
    """Random bf16 tensors of one content, each in memory of its own (drawing takes longer than copying)."""
    torch = device.torch
    first = torch.randn(*shape, dtype=torch.bfloat16, device=device.where)
    return [first, *(first.clone() for _ in range(copies - 1))]


def interleaved(families: Iterable[Sequence[Case]]) -> list[Case]:
    """One case of each family in turn, so that a cut anywhere leaves every family its part."""
    turns = zip_longest(*families)
    return [case for turn in turns for case in turn if case is not None]


def coarse_to_fine(cases: Sequence[Case]) -> list[Case]:
    """Bit-reversed order: ends and middles first."""
    bits = max(1, (len(cases) - 1).bit_length())
    order = sorted(range(1 << bits), key=lambda i: int(f"{i:0{bits}b}"[::-1], 2))
    return [cases[i] for i in order if i < len(cases)]
