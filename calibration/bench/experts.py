"""The routed experts of a mixture-of-experts layer: batched products over the experts that are hit, evenly."""

from __future__ import annotations

from typing import Final

from calibration.bench import operators
from calibration.bench.case import Case, random_copies, rotating
from calibration.bench.device import Device
from calibration.bench.timing import Call
from sim.models.architecture import Architecture, Mlp

_TOKENS: Final = {"cpu": (1, 4, 16, 64, 256), "cuda": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)}


def expert_cases(device: Device, arch: Architecture, tensor_parallel_size: int) -> list[Case]:
    """Every mixture-of-experts layer of a model on one rank, over growing numbers of tokens; none for dense models."""
    layers = {run.mlp for run in arch.layers if run.mlp is not None and run.mlp.num_experts}
    ordered = sorted(layers, key=lambda mlp: (mlp.num_experts, mlp.intermediate_size))
    return [
        _case(mlp, arch.hidden_size, -(-mlp.intermediate_size // tensor_parallel_size), tokens)
        for mlp in ordered
        for tokens in _TOKENS[device.kind]
    ]


def _case(mlp: Mlp, hidden: int, width: int, tokens: int) -> Case:
    """Balanced routing: min(experts, tokens x top_k) experts get the same number of rows each."""
    pairs = tokens * mlp.experts_per_token
    active = min(mlp.num_experts, pairs)
    each, up = -(-pairs // active), 2 if mlp.gated else 1
    matrix_bytes = 2.0 * hidden * width * (up + 1)

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        (x,) = random_copies(device, 1, active, each, hidden)
        first = random_copies(device, copies, active, hidden, up * width)
        second = random_copies(device, copies, active, width, hidden)

        def products(weights: tuple[object, object]) -> object:
            inner = torch.bmm(x, weights[0])
            inner = operators.silu_and_mul(torch, inner) if up == 2 else torch.nn.functional.silu(inner)
            return torch.bmm(inner, weights[1])

        return rotating(list(zip(first, second, strict=True)), products)

    columns: dict[str, float] = {
        "rows": active * each,
        "active": active,
        "experts": mlp.num_experts,
        "hidden": hidden,
        "width": width,
        "projections": up + 1,
    }
    flops = 2.0 * active * each * hidden * width * (up + 1)
    return Case(
        "experts", "bf16", {name: float(value) for name, value in columns.items()}, active * matrix_bytes, make, flops
    )
