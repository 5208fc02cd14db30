"""How KV memory is given out: what follows from `kv_allocation`, and what it cannot go with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sim.errors import InputError
from sim.scenario.presets import family

if TYPE_CHECKING:
    from sim.scenario.engine import EngineSpec

_CONTIGUOUS: Final = ("vllm", "orca", "static")


def allocation_defaults(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of the preset that change with what the document gives: blocks of one token are no pages."""
    if "kv_allocation" in given:
        return {} if given["kv_allocation"] == "paged" else {"block_size": 1}
    size = given.get("block_size", defaults["block_size"])
    return {"kv_allocation": "token" if size == 1 else "paged"}


def check_allocation(engine: EngineSpec) -> None:
    """Raise `InputError` for keys that contradict each other."""
    if engine.kv_allocation != "paged" and engine.block_size != 1:
        raise InputError(
            "block_size",
            f"{engine.block_size} tokens, but kv_allocation '{engine.kv_allocation}' gives out single tokens",
            "leave block_size out or set it to 1, or set kv_allocation to paged",
        )
    reserves = family(engine.preset) != "vllm" or engine.kv_allocation == "contiguous"
    if engine.kv_reservation is not None and not reserves:
        raise InputError(
            "kv_reservation",
            f"'{engine.kv_reservation}', but {engine.preset} takes blocks as tokens come and reserves nothing",
            "leave it out, or set kv_allocation to contiguous",
        )
    if engine.kv_allocation == "contiguous":
        _check_contiguous(engine)


def _check_contiguous(engine: EngineSpec) -> None:
    if family(engine.preset) not in _CONTIGUOUS:
        raise InputError(
            "kv_allocation",
            f"'contiguous', but the scheduler of {engine.preset} shares or takes memory piece by piece",
            f"set it to paged, or preset to {', '.join(_CONTIGUOUS[:-1])} or {_CONTIGUOUS[-1]}",
        )
    if engine.enable_prefix_caching:
        raise InputError(
            "kv_allocation",
            "'contiguous' with prefix caching: a prefix cannot lie in the pieces of two requests",
            "set enable_prefix_caching to false",
        )
    if engine.preemption != "recompute":
        raise InputError(
            "preemption",
            f"'{engine.preemption}', but requests in pieces of their longest length are never preempted",
            "leave it out, or set kv_allocation to paged",
        )
    if engine.kv_offload is not None:
        raise InputError(
            "kv_offload",
            "a tier for evicted blocks, but contiguous pieces are never evicted",
            "set it to null, or set kv_allocation to paged",
        )
