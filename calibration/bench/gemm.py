"""Matrix products: a grid, and the exact shapes of a model's layers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from calibration.bench.case import Case, random_copies, rotating
from calibration.bench.device import Device
from calibration.bench.timing import Call
from sim.cost.kinds import Gemm
from sim.cost.operators import Ranks, layer_operators, outer_operators
from sim.models.architecture import Architecture
from sim.models.quantization import WeightFormat

_WEIGHT_BYTES: Final = {"bf16": 2, "fp8": 1}
GRID_M: Final = {
    "cpu": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "cuda": (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 4096, 8192),
}
GRID_NK: Final = {
    "cpu": ((256, 256), (256, 1024), (1024, 256), (1024, 1024), (1024, 4096), (4096, 1024), (4096, 4096)),
    "cuda": tuple((n, k) for n in (1024, 2048, 4096, 8192, 16384, 28672) for k in (1024, 4096, 8192, 14336)),
}


def gemm_cases(device: Device, dtypes: Iterable[str], shapes: Iterable[tuple[int, int]]) -> list[Case]:
    """All m of the grid for every (n, k)."""
    return [gemm_case(dtype, m, n, k) for dtype in dtypes for n, k in shapes for m in GRID_M[device.kind]]


def gemm_case(dtype: str, m: int, n: int, k: int) -> Case:
    """(m, k) x (k, n) with cold weights."""
    moved = float(n * k * _WEIGHT_BYTES[dtype])
    make = _bf16(m, n, k) if dtype == "bf16" else _fp8(m, n, k)
    return Case("gemm", dtype, {"m": m, "n": n, "k": k}, moved, make, 2.0 * m * n * k)


def model_shapes(arch: Architecture, weights: WeightFormat, tensor_parallel_size: int) -> list[tuple[int, int]]:
    """The (n, k) of every matrix product that the cost model counts for one rank, largest first."""
    ranks = Ranks(tensor_parallel_size, 1, False)
    found = {
        (operator.n, operator.k)
        for run in arch.layers
        for operator in layer_operators(arch, run, weights, ranks)
        if isinstance(operator, Gemm) and operator.batch == 1
    }
    found |= {
        (operator.n, operator.k)
        for operator in outer_operators(arch, weights, tensor_parallel_size)
        if isinstance(operator, Gemm)
    }
    return sorted(found, key=lambda shape: (-shape[0] * shape[1], shape))


def _bf16(m: int, n: int, k: int) -> Any:
    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        weights, (x,) = random_copies(device, copies, n, k), random_copies(device, 1, m, k)
        return rotating(weights, lambda weight: torch.nn.functional.linear(x, weight))

    return make


def _fp8(m: int, n: int, k: int) -> Any:
    """One scale a tensor; the input is quantised beforehand."""

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        eight, one = torch.float8_e4m3fn, torch.ones((), device=device.where)
        x = random_copies(device, 1, m, k)[0].to(eight)
        weights = [weight.to(eight).t() for weight in random_copies(device, copies, n, k)]
        return rotating(
            weights,
            lambda weight: torch._scaled_mm(x, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
        )

    return make
