"""Memory-bound kernels, and copies between host and device."""

from __future__ import annotations

from typing import Final

from calibration.bench import operators
from calibration.bench.case import Case, random_copies, rotating
from calibration.bench.device import Device
from calibration.bench.timing import Call

_WIDTH: Final = 1024
_ROWS: Final = {
    "cpu": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 16384),
    "cuda": (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144),
}
_COPY_BYTES: Final = tuple(4096 << (2 * i) for i in range(9))  # 4 KiB to 256 MiB


def elementwise_cases(device: Device) -> list[Case]:
    """RMS norms and gated activations over growing numbers of rows."""
    return [case for rows in _ROWS[device.kind] for case in (_norm(rows), _activation(rows))]


def copy_cases(device: Device) -> list[Case]:
    """Pinned host memory to the device and back; none on a CPU, which has no other memory."""
    if device.kind == "cpu":
        return []
    return [_copy(size, family) for size in _COPY_BYTES for family in ("host_to_device", "device_to_host")]


def _norm(rows: int) -> Case:
    """Reads and writes rows x width 16-bit elements."""

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        weight = torch.ones(_WIDTH, dtype=torch.bfloat16, device=device.where)
        return rotating(random_copies(device, copies, rows, _WIDTH), lambda x: operators.rms_norm(torch, x, weight))

    moved = 4.0 * rows * _WIDTH
    return Case("elementwise", "any", {"bytes": moved}, moved, make)


def _activation(rows: int) -> Case:
    """Reads two halves and writes one."""

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        return rotating(random_copies(device, copies, rows, 2 * _WIDTH), lambda x: operators.silu_and_mul(torch, x))

    moved = 6.0 * rows * _WIDTH
    return Case("elementwise", "any", {"bytes": moved}, moved, make)


def _copy(size: int, family: str) -> Case:
    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(size, dtype=torch.uint8, device=device.where)
        source, target = (host, there) if family == "host_to_device" else (there, host)
        return lambda: target.copy_(source, non_blocking=True)

    return Case(family, "any", {"bytes": size}, float(size), make)
