"""How keys and values are held in the cache: bits, scales, full-precision windows and outliers, counted honestly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sim.errors import InputError, nearest
from sim.models.architecture import Architecture

_FIELD: Final = "engine.kv_cache_dtype"


@dataclass(frozen=True, slots=True)
class Element:
    """One side of the cache (keys or values).

    Attributes:
        name: as in ``engine.kv_cache_dtype``.
        bits: stored bits of an element, scales and zero points of its group included.
        bits_per_head: bits that each (token, KV head) adds: a scale of its own.
        outlier_fraction: part of the elements kept aside in full precision.
        residual_tokens: newest tokens of each sequence that stay in 16 bit.
        kernel_dtype: what the attention kernel reads: bf16 | fp8 | int8 | int4.
    """

    name: str
    bits: float
    bits_per_head: int = 0
    outlier_fraction: float = 0.0
    residual_tokens: int = 0
    kernel_dtype: str = "bf16"


def _grouped(name: str, bits: int, group: int, residual: int, kernel: str) -> Element:
    """KIVI (arXiv 2402.02750): groups of ``group`` with a 16-bit scale and zero point, newest tokens in 16 bit."""
    return Element(name, bits + 32 / group, residual_tokens=residual, kernel_dtype=kernel)


def _outliers(name: str, bits: int, kernel: str) -> Element:
    """KVQuant (arXiv 2401.18079): 1 % of the elements aside as a 16-bit value and a 32-bit index."""
    return Element(name, bits + 0.01 * (16 + 32), outlier_fraction=0.01, kernel_dtype=kernel)


_ELEMENTS: Final[Mapping[str, Element]] = {
    entry.name: entry
    for entry in (
        Element("fp32", 32.0, kernel_dtype="bf16"),
        Element("bf16", 16.0),
        Element("fp16", 16.0),
        Element("fp8", 8.0, kernel_dtype="fp8"),  # vLLM keeps one scale a layer: no bytes a token
        Element("fp8_per_token_head", 8.0, bits_per_head=32, kernel_dtype="fp8"),
        Element("int8", 8.0, bits_per_head=32, kernel_dtype="int8"),  # one fp32 scale a token and head
        Element("int4", 4 + 16 / 64 + 4 / 64, kernel_dtype="int4"),  # groups of 64, 16-bit scale, 4-bit zero point
        Element("nvfp4", 4 + 8 / 16, kernel_dtype="int4"),
        _grouped("kivi4", 4, 32, 128, "int4"),
        _grouped("kivi2", 2, 32, 128, "int4"),
        _outliers("kvquant4", 4, "int4"),
        _outliers("kvquant3", 3, "int4"),
        _outliers("kvquant2", 2, "int4"),
    )
}
_ALIASES: Final[Mapping[str, str]] = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
    "kivi": "kivi2",
    "kvquant": "kvquant3",
}


@dataclass(frozen=True, slots=True)
class KvFormat:
    """Format of the whole cache.

    Attributes:
        name: one word, or ``key/value`` where they differ.
        key, value: the two sides.
    """

    name: str
    key: Element
    value: Element

    @property
    def key_bits(self) -> float:
        """Bits of one key element, group scales and outliers included."""
        return self.key.bits

    @property
    def value_bits(self) -> float:
        """Bits of one value element, group scales and outliers included."""
        return self.value.bits

    @property
    def kernel_dtype(self) -> str:
        """What the attention kernel reads: the wider of the two sides."""
        order = ("bf16", "fp8", "int8", "int4")
        return min(self.key.kernel_dtype, self.value.kernel_dtype, key=order.index)

    @property
    def residual_tokens(self) -> int:
        """Newest tokens of a sequence that are held in 16 bit beside the quantised cache."""
        return max(self.key.residual_tokens, self.value.residual_tokens)


def kv_format_names() -> tuple[str, ...]:
    """Every value that ``engine.kv_cache_dtype`` takes."""
    return ("auto", *sorted({*_ELEMENTS, *_ALIASES}))


def resolve_kv_format(arch: Architecture, kv_cache_dtype: str | Mapping[str, Any]) -> KvFormat:
    """The cache format of ``arch`` under ``engine.kv_cache_dtype``.

    Args:
        arch: whose activation dtype ``auto`` follows.
        kv_cache_dtype: a name, or ``{key: name, value: name}``.

    Raises:
        InputError: an unknown name, or a mapping with other keys.
    """
    if isinstance(kv_cache_dtype, str):
        element = _element(arch, kv_cache_dtype, _FIELD)
        return KvFormat(element.name, element, element)
    if set(kv_cache_dtype) != {"key", "value"}:
        raise InputError(_FIELD, f"got {dict(kv_cache_dtype)!r}", "give one name, or {key: ..., value: ...}")
    key, value = (_element(arch, str(kv_cache_dtype[side]), f"{_FIELD}.{side}") for side in ("key", "value"))
    return KvFormat(key.name if key == value else f"{key.name}/{value.name}", key, value)


def _element(arch: Architecture, name: str, field: str) -> Element:
    lowered = name.strip().lower()
    if lowered == "auto":
        return _ELEMENTS["fp16" if arch.stored_dtype == "fp16" else "bf16"]
    found = _ELEMENTS.get(_ALIASES.get(lowered, lowered))
    if found is None:
        raise InputError(field, f"unknown format {name!r}", nearest(lowered, kv_format_names()))
    return found
