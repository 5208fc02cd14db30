"""Weight formats: bits as stored, what stays as it is, and which kernels compute with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from sim.errors import InputError, nearest
from sim.models.architecture import Architecture

COMPONENTS: Final = (
    "embedding",
    "lm_head",
    "norm",
    "router",
    "vision",
    "attention",
    "dense_mlp",
    "shared_experts",
    "experts",
)
# What no checkpoint of these formats quantises.
_ALWAYS_KEPT: Final = frozenset({"embedding", "lm_head", "norm", "router", "vision"})
_DTYPE_BITS: Final[Mapping[str, int]] = {"bf16": 16, "fp16": 16, "fp32": 32}


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How weights are held and multiplied.

    Attributes:
        name: as in ``engine.quantization``.
        bits_per_weight: stored bits of one quantised weight, group scales and zero points included.
        compute_dtype: precision of the multiplication: bf16 | fp16 | fp8 | int8 | nvfp4 | mxfp4.
        gemm_family: name of the kernel family the cost model looks up.
        unquantized: the `COMPONENTS` that stay in ``base_dtype``.
        base_dtype: bf16 | fp16 | fp32.
        bits_per_output_channel: one scale (and zero point) for a row of the weight matrix.
    """

    name: str
    bits_per_weight: float
    compute_dtype: str
    gemm_family: str
    unquantized: frozenset[str] = _ALWAYS_KEPT
    base_dtype: str = "bf16"
    bits_per_output_channel: int = 0

    @property
    def base_bits(self) -> int:
        """Bits of one element of what stays unquantised."""
        return _DTYPE_BITS[self.base_dtype]

    def bits(self, component: str) -> float:
        """Stored bits of one weight of ``component`` (one of `COMPONENTS`)."""
        return self.base_bits if component in self.unquantized else self.bits_per_weight

    def channel_bits(self, component: str) -> int:
        """Stored bits that ``component`` adds for one output channel."""
        return 0 if component in self.unquantized else self.bits_per_output_channel


def _int4(name: str, group: int, zero_point_bits: int = 4) -> WeightFormat:
    """4-bit weights, a 16-bit scale and a zero point a group (GPTQ arXiv 2210.17323, AWQ arXiv 2306.00978)."""
    return WeightFormat(name, 4 + (16 + zero_point_bits) / group, "bf16", "w4a16")


_FORMATS: Final[Mapping[str, WeightFormat]] = {
    entry.name: entry
    for entry in (
        WeightFormat("fp8", 8.0, "fp8", "fp8"),  # one scale a tensor
        WeightFormat("fp8_channel", 8.0, "fp8", "fp8", bits_per_output_channel=32),
        WeightFormat("fp8_block", 8 + 32 / (128 * 128), "fp8", "fp8_block"),  # DeepSeek-V3, arXiv 2412.19437
        WeightFormat("int8", 8.0, "int8", "int8", bits_per_output_channel=32),  # W8A8, SmoothQuant arXiv 2211.10438
        WeightFormat("int8_bnb", 8.0, "bf16", "w8a16", bits_per_output_channel=32),  # LLM.int8()
        WeightFormat("w8a16", 8.0, "bf16", "w8a16", bits_per_output_channel=16),
        WeightFormat("gptq_int8", 8 + 24 / 128, "bf16", "w8a16"),
        *(_int4("awq" if group == 128 else f"awq_g{group}", group) for group in (32, 64, 128)),
        *(_int4("gptq" if group == 128 else f"gptq_g{group}", group) for group in (32, 64, 128)),
        *(_int4("w4a16" if group == 128 else f"w4a16_g{group}", group, 0) for group in (32, 64, 128)),
        WeightFormat("nf4", 4 + 32 / 64, "bf16", "nf4"),  # an fp32 scale for 64 weights, QLoRA arXiv 2305.14314
        WeightFormat("nf4_double", 4 + 8 / 64 + 32 / (64 * 256), "bf16", "nf4"),  # scales quantised once more
        WeightFormat("mxfp4", 4 + 8 / 32, "mxfp4", "mxfp4"),  # E8M0 scale for 32 weights, OCP MX 1.0
        WeightFormat("nvfp4", 4 + 8 / 16, "nvfp4", "nvfp4"),  # E4M3 scale for 16 weights
    )
}
_ALIASES: Final[Mapping[str, str]] = {
    "w8a8": "int8",
    "w8a8_int8": "int8",
    "smoothquant": "int8",
    "fp8_e4m3": "fp8",
    "w8a8_fp8": "fp8_channel",
    "int4": "w4a16",
    "w4a16_awq": "awq",
    "awq_marlin": "awq",
    "gptq_marlin": "gptq",
    "bitsandbytes": "nf4",
    "bnb": "nf4",
    "fp4": "nvfp4",
}
_UNQUANTIZED: Final[Mapping[str, str]] = {
    "bf16": "bf16",
    "bfloat16": "bf16",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "none": "bf16",
}


def quantization_names() -> tuple[str, ...]:
    """Every value that ``engine.quantization`` takes."""
    return tuple(sorted({*_FORMATS, *_ALIASES, *_UNQUANTIZED}))


def resolve_weight_format(arch: Architecture, quantization: str | None) -> WeightFormat:
    """The weight format of ``arch`` under ``engine.quantization``.

    Args:
        arch: whose checkpoint may be quantised already.
        quantization: None = as stored; ``bf16`` or ``fp16`` = not quantised; or a name of the table.

    Raises:
        InputError: an unknown name.
    """
    base = "bf16" if arch.stored_dtype == "fp32" else arch.stored_dtype
    if quantization is None:
        if arch.stored_quantization is None:
            return _plain(base)
        stored = _lookup(arch.stored_quantization, "model.quantization_config")
        kept = stored.unquantized | set(arch.stored_unquantized)
        return replace(stored, unquantized=kept, base_dtype=base)
    name = quantization.strip().lower()
    if name in _UNQUANTIZED:
        return _plain(base if name == "none" else _UNQUANTIZED[name])
    return replace(_lookup(name, "engine.quantization"), base_dtype=base)


def _plain(dtype: str) -> WeightFormat:
    """16-bit weights; fp16 runs on the same tensor-core rate as bf16 and shares its kernels."""
    return WeightFormat(dtype, 16.0, dtype, "bf16", frozenset(COMPONENTS), dtype)


def _lookup(name: str, field: str) -> WeightFormat:
    found = _FORMATS.get(_ALIASES.get(name, name))
    if found is None:
        raise InputError(field, f"unknown weight format {name!r}", nearest(name, quantization_names()))
    return found
