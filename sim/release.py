"""What an engine and its release decide besides scheduling: memory, how tokens are drawn and attended."""

from __future__ import annotations

from typing import Final

from hardware_profiles.overheads import EngineOverheads
from hardware_profiles.profile import HardwareProfile
from sim.cost.attention import AS_IN_TABLES, KernelPace
from sim.cost.operators import Sampler
from sim.cost.sparse import Picks
from sim.errors import InputError
from sim.models.architecture import Architecture
from sim.models.engine_memory import DEFAULT_VLLM, release_number
from sim.scenario.engine import EngineSpec
from sim.scenario.presets import family

# vLLM sorts whole rows of logits for top-k and top-p until 0.16, which brought a Triton kernel (vllm-project/vllm pull
# requests 32558 and 33538); SGLang and TensorRT-LLM draw without a sort.
_FIRST_WITHOUT_SORT: Final = (0, 16)
# vLLM 0.11 tells the kernel nothing of how many tokens were picked (v1/attention/backends/mla/flashmla_sparse.py); 0.24
# does (return_valid_counts). Releases between were not looked at.
_FIRST_COUNTED: Final = (0, 24)


def release_of(engine: EngineSpec) -> str:
    """The engine as the memory rules name it: ``vllm``, or ``vllm==0.23.0`` where the scenario says which."""
    name = family(engine.preset)
    return name if engine.version is None else f"{name}=={engine.version}"


def sampler_of(engine: EngineSpec, arch: Architecture) -> Sampler:
    """How the engine draws tokens: ``truncated`` where it sorts the logits of every sequence."""
    truncated = arch.truncated_sampling if engine.sampling == "model" else engine.sampling == "truncated"
    sorts = family(engine.preset) == "vllm" and _version(engine.version) < _FIRST_WITHOUT_SORT
    return "truncated" if truncated and sorts else "greedy"


def picks_of(engine: EngineSpec) -> Picks:
    """How the engine's kernels treat what an indexer picks.

    SGLang expands prompts that fit (sgl-project/sglang pull request 11892) and has decode kernels that stop at a short
    context's end; TensorRT-LLM's times do not depend on the context below what is picked (aiconfigurator-core 0.12.0,
    h200_sxm/sparse_attention/trtllm/1.3.0rc20).
    """
    name = family(engine.preset)
    padded = name == "tensorrt-llm" or (name == "vllm" and _version(engine.version) < _FIRST_COUNTED)
    return Picks(padded=padded, expands_short=name == "sglang")


def pace_of(engine: EngineSpec, overheads: EngineOverheads, hardware: HardwareProfile) -> KernelPace:
    """How attention kernels differ from those of the tables: FlashAttention 3 gathers pages of one token.

    Raises `InputError` on devices where that was not measured.
    """
    if engine.attention_backend is None:
        return AS_IN_TABLES
    if hardware.generation != "hopper":
        problem = f"{engine.attention_backend} on {hardware.name}, and what it costs is known of Hopper alone"
        raise InputError("engine.attention_backend", problem, "set it to null, or choose an H100, H200, H800 or H20")
    pages = overheads.token_pages
    if engine.block_size > 1 or pages is None:
        return AS_IN_TABLES
    return KernelPace(pages.decode.value, pages.prefill.value)


def _version(release: str | None) -> tuple[int, ...]:
    asked = release_number(release or DEFAULT_VLLM)
    if asked is None:
        raise InputError("engine.version", f"cannot read '{release}' as a release", "write it like 0.15.1")
    return asked
