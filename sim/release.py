"""What the release of an engine decides besides scheduling: rules of memory, and how tokens are drawn."""

from __future__ import annotations

from typing import Final

from sim.cost.operators import Sampler
from sim.errors import InputError
from sim.models.architecture import Architecture
from sim.models.engine_memory import DEFAULT_VLLM, release_number
from sim.scenario.engine import EngineSpec
from sim.scenario.presets import family

# vLLM sorts whole rows of logits for top-k and top-p until 0.16, which brought a Triton kernel (vllm-project/vllm pull
# requests 32558 and 33538); SGLang and TensorRT-LLM draw without a sort.
_FIRST_WITHOUT_SORT: Final = (0, 16)


def release_of(engine: EngineSpec) -> str:
    """The engine as the memory rules name it: ``vllm``, or ``vllm==0.23.0`` where the scenario says which."""
    name = family(engine.preset)
    return name if engine.version is None else f"{name}=={engine.version}"


def sampler_of(engine: EngineSpec, arch: Architecture) -> Sampler:
    """How the engine draws tokens: ``truncated`` where it sorts the logits of every sequence."""
    truncated = arch.truncated_sampling if engine.sampling == "model" else engine.sampling == "truncated"
    sorts = family(engine.preset) == "vllm" and _version(engine.version) < _FIRST_WITHOUT_SORT
    return "truncated" if truncated and sorts else "greedy"


def _version(release: str | None) -> tuple[int, ...]:
    asked = release_number(release or DEFAULT_VLLM)
    if asked is None:
        raise InputError("engine.version", f"cannot read '{release}' as a release", "write it like 0.15.1")
    return asked
