"""Prefill and decode attention, full heads and MLA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from calibration.bench import operators
from calibration.bench.case import Case, random_copies, rotating
from calibration.bench.device import Device
from calibration.bench.timing import Call
from sim.cost.operators import kv_heads_of
from sim.models.architecture import Architecture

MLA_RANK: Final = 512  # the geometry of DeepSeek-V2 and V3, the one that tables and profiles know
MLA_ROPE: Final = 64
MLA_NOPE: Final = 128
MLA_V: Final = 128


@dataclass(frozen=True, slots=True, order=True)
class Heads:
    """Head geometry on one rank; ``latent`` is MLA, whose KV heads and head dimension are fixed by its kind."""

    heads: int
    kv_heads: int
    head_dim: int
    latent: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """Batches, contexts and prompt lengths to time."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    prompts: tuple[int, ...]
    prompt_batches: tuple[int, ...]


SIZES: Final = {
    "cpu": Sizes((1, 2, 4, 8, 16), (16, 64, 128, 256, 512, 1024, 2048), (8, 16, 32, 64, 128, 256, 512, 1024), (1, 4)),
    "cuda": Sizes(
        (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
        (64, 256, 1024, 2048, 4096, 8192, 16384, 32768),
        (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
        (1, 4, 16),
    ),
}
DEFAULT_HEADS: Final = (Heads(16, 4, 64), Heads(32, 8, 128), Heads(8, 8, 128), Heads(16, 1, 192, latent=True))


def heads_of(arch: Architecture, tensor_parallel_size: int) -> list[Heads]:
    """The geometries of a model's attention layers on one rank."""
    found = set()
    for run in arch.layers:
        a = run.attention
        if a is None or a.kind == "linear":
            continue
        heads = a.num_heads // tensor_parallel_size
        latent = a.kind == "mla"
        found.add(Heads(heads, 1 if latent else kv_heads_of(a, tensor_parallel_size), a.head_dim, latent))
    return sorted(found)


def attention_cases(device: Device, geometry: Heads) -> tuple[list[Case], list[Case]]:
    """(decode, prefill) cases of one head geometry."""
    sizes = SIZES[device.kind]
    decode, prefill = (_mla_decode, _mla_prefill) if geometry.latent else (_decode, _prefill)
    return (
        [decode(geometry, batch, context) for batch in sizes.batches for context in sizes.contexts],
        [prefill(geometry, batch, new) for batch in sizes.prompt_batches for new in sizes.prompts],
    )


def _columns(geometry: Heads, batch: int, **length: int) -> dict[str, float]:
    """MLA rows name their heads alone."""
    if geometry.latent:
        return {"batch": batch, "heads": geometry.heads, **length}
    return {
        "batch": batch,
        "heads": geometry.heads,
        "kv_heads": geometry.kv_heads,
        "head_dim": geometry.head_dim,
        **length,
    }


def _decode(geometry: Heads, batch: int, context: int) -> Case:
    """One new token of each of ``batch`` sequences; on a CPU one after the other, as ragged batches run there."""
    h, g, d = geometry.heads, geometry.kv_heads, geometry.head_dim

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        (query,) = random_copies(device, 1, batch, h, d)
        keys, values = (random_copies(device, copies, batch, g, context, d) for _ in range(2))
        caches = list(zip(keys, values, strict=True))
        if device.kind == "cuda":
            return rotating(caches, lambda kv: operators.decode_attention_batched(torch, query, *kv))

        def one_by_one(kv: tuple[Any, Any]) -> Any:
            keys, values = kv
            return torch.stack([operators.decode_attention(torch, query[i], keys[i], values[i]) for i in range(batch)])

        return rotating(caches, one_by_one)

    moved = 4.0 * batch * context * g * d
    return Case("decode_attention", "bf16", _columns(geometry, batch, context=context), moved, make, moved * h / g)


def _prefill(geometry: Heads, batch: int, new: int) -> Case:
    """``batch`` whole prompts of ``new`` tokens; on a CPU one after the other."""
    h, g, d = geometry.heads, geometry.kv_heads, geometry.head_dim

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        (query,) = random_copies(device, 1, batch, h, new, d)
        keys, values = (random_copies(device, copies, batch, g, new, d) for _ in range(2))
        caches = list(zip(keys, values, strict=True))

        def one_by_one(kv: tuple[Any, Any]) -> Any:
            return [operators.prefill_attention(torch, query[i], kv[0][i], kv[1][i]) for i in range(batch)]

        def together(kv: tuple[Any, Any]) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(query, *kv, is_causal=True, enable_gqa=g != h)

        return rotating(caches, together if device.kind == "cuda" else one_by_one)

    flops = 4.0 * batch * h * d * new * (new + 1) / 2
    columns = _columns(geometry, batch, new=new)
    return Case("prefill_attention", "bf16", columns, 4.0 * batch * new * g * d, make, flops)


def _mla_decode(geometry: Heads, batch: int, context: int) -> Case:
    """Attention in the latent space, sequence by sequence."""
    h, width = geometry.heads, MLA_RANK + MLA_ROPE
    scale = (MLA_NOPE + MLA_ROPE) ** -0.5

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        (query,) = random_copies(device, 1, batch, h, width)
        caches = random_copies(device, copies, batch, context, width)

        def one_by_one(latent: Any) -> Any:
            return [
                operators.latent_decode_attention(torch, query[i], latent[i], MLA_RANK, scale) for i in range(batch)
            ]

        def together(latent: Any) -> Any:
            rows = latent[:, None]
            out = torch.nn.functional.scaled_dot_product_attention(query[:, None], rows, rows, scale=scale)
            return out[:, 0, :, :MLA_RANK]

        return rotating(caches, together if device.kind == "cuda" else one_by_one)

    moved = 2.0 * batch * context * width
    flops = 2.0 * batch * context * h * (width + MLA_RANK)
    return Case("mla_decode", "bf16", _columns(geometry, batch, context=context), moved, make, flops)


def _mla_prefill(geometry: Heads, batch: int, new: int) -> Case:
    """Attention over expanded keys and values, prompt by prompt."""
    h, qk = geometry.heads, MLA_NOPE + MLA_ROPE

    def make(device: Device, copies: int) -> Call:
        torch = device.torch
        (query,) = random_copies(device, 1, batch, h, new, qk)
        keys, values = (random_copies(device, copies, batch, h, new, dim) for dim in (qk, MLA_V))
        caches = list(zip(keys, values, strict=True))
        return rotating(
            caches,
            lambda kv: [operators.prefill_attention(torch, query[i], kv[0][i], kv[1][i]) for i in range(batch)],
        )

    flops = 2.0 * batch * h * (qk + MLA_V) * new * (new + 1) / 2
    moved = 2.0 * batch * new * h * (qk + MLA_V)
    return Case("mla_prefill", "bf16", _columns(geometry, batch, new=new), moved, make, flops)
