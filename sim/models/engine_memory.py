"""How a serving engine counts memory before it sizes its KV cache, by engine and version, as data.

Facts come from the engines' own sources (vllm/v1/worker/gpu_worker.py, vllm/utils/mem_utils.py and
vllm/v1/worker/gpu_model_runner.py of each release; python/sglang/srt/model_executor/model_runner.py) and from the log
lines in which they report what they found. Nothing here depends on a model's or a GPU's name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from sim.errors import InputError, nearest
from sim.layout import Layout

MIB: Final = 1 << 20
GIB: Final = 1 << 30

# CUDA context of one process: total less free memory right after initialisation (0.38 GiB on Ada, vllm#57047).
CONTEXT_BYTES: Final = 390 * MIB
# Kernels and handles that load during the first forward pass: "non-torch memory 0.13 GiB" in logs of vLLM 0.11 on H100.
RUNTIME_BYTES: Final = 133 * MIB
# (made before the model is loaded, connected at the first large collective): NCCL channels, all-reduce buffers. The
# second is the same logs' 0.55 GiB at TP2 less the 0.13 GiB of one GPU.
_NVLINK_COMMUNICATOR_BYTES: Final = (1750 * MIB, 430 * MIB)
_OTHER_COMMUNICATOR_BYTES: Final = (100 * MIB, 100 * MIB)
_NVLINK_LIKE: Final = frozenset({"nvlink", "c2c", "infinity-fabric"})

Pool = Literal["share_of_total", "share_of_free_start", "share_of_free_end"]


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Rules of one engine release.

    Attributes:
        name: engine and the releases with these rules.
        pool: what ``gpu_memory_utilization`` is a share of: the total (vLLM), what is free before loading (SGLang), or
            what is free after loading and profiling (TensorRT-LLM).
        counts_context: the CUDA context is charged to the share.
        counts_eager_communicator: buffers made before loading are charged to the share.
        counts_graphs: an estimate of CUDA-graph memory is charged to the share.
        hidden_copies: copies of the hidden states of the whole batch that live while the sampler is profiled.
        bytes_per_logit: peak of the profiled sampler for one (sequence, vocabulary entry).
        bytes_per_logit_few: the same below 128 sequences, where torch sorts in another way.
        keeps_moe_workspace: the expert workspaces stay allocated while the sampler is profiled.
        times_kernels: the compiler times fused rotary kernels on random tensors while activations are profiled.
        mxfp4_padding: multiples to which the expert kernels pad an expert's inner and outer width.
        blocks_per_state: blocks a sequence holds for each group of recurrent layers.
        profiles: activations are measured before the pool is sized.
    """

    name: str
    pool: Pool = "share_of_total"
    counts_context: bool = False
    counts_eager_communicator: bool = False
    counts_graphs: bool = False
    hidden_copies: int = 2
    # bf16 logits 2, fp32 copy 4, sorted values 4 and indices 8, then the sort's scratch: 8 + 12 segmented, 32 full.
    bytes_per_logit: int = 38
    bytes_per_logit_few: int = 50
    keeps_moe_workspace: bool = True
    times_kernels: bool = True
    mxfp4_padding: tuple[int, int] = (64, 256)  # Triton; Marlin before 0.11
    blocks_per_state: int = 1
    profiles: bool = True


_OLDEST: Final = EngineMemory(
    "vllm before 0.6.5",
    counts_context=True,
    counts_eager_communicator=True,
    hidden_copies=1,
    bytes_per_logit=2,
    bytes_per_logit_few=2,
    keeps_moe_workspace=False,
    times_kernels=False,
    mxfp4_padding=(128, 256),
)
_V0: Final = replace(
    _OLDEST, name="vllm 0.6.5 to 0.7", counts_context=False, bytes_per_logit=38, bytes_per_logit_few=50
)
_V11: Final = replace(_V0, name="vllm 0.11.0", counts_eager_communicator=False, mxfp4_padding=(64, 256))
_V14: Final = EngineMemory("vllm 0.14 to 0.19")
_V20: Final = replace(_V14, name="vllm 0.20", blocks_per_state=2)
_VLLM: Final[tuple[tuple[tuple[int, ...], EngineMemory], ...]] = (
    ((0, 1), _OLDEST),
    ((0, 6, 5), _V0),
    ((0, 8), replace(_V0, name="vllm 0.8", counts_context=True)),
    ((0, 9), replace(_V0, name="vllm 0.9 to 0.10")),
    ((0, 11), _V11),
    ((0, 11, 1), replace(_V11, name="vllm 0.11.1 to 0.13", times_kernels=True)),
    ((0, 14), _V14),
    ((0, 20), _V20),
    # FlashInfer samples without a sort: bf16 logits 2, fp32 copy 4, masked logits 4, probabilities 4.
    (
        (0, 21),
        replace(_V20, name="vllm 0.21 and later", counts_graphs=True, bytes_per_logit=14, bytes_per_logit_few=14),
    ),
)
DEFAULT_VLLM: Final = "0.15.1"
_RELEASE: Final = re.compile(r"v?([0-9]{1,6}(?:\.[0-9]{1,6})*)(?:[.-]?(?:a|b|rc|post|dev)[0-9]*)*(?:\+.*)?")
_SGLANG: Final = EngineMemory(
    "sglang", pool="share_of_free_start", counts_context=True, counts_eager_communicator=True, profiles=False
)
_TENSORRT: Final = EngineMemory(
    "tensorrt-llm",
    pool="share_of_free_end",
    counts_context=True,
    counts_eager_communicator=True,
    hidden_copies=1,
    times_kernels=False,
)


def communicator_bytes(layout: Layout, links: str) -> tuple[int, int]:
    """(before loading, at the first collective): communicator buffers of one rank; none where it is alone.

    Fitted: the second to block counts at TP2 and TP4 with vLLM 0.15.1 on NVLink, the first to logs of releases that
    charge it; the small pair to logs of consumer cards without NVLink.
    """
    if layout.gpus_per_replica == 1:
        return 0, 0
    return _NVLINK_COMMUNICATOR_BYTES if links in _NVLINK_LIKE else _OTHER_COMMUNICATOR_BYTES


def engine_memory(engine: str) -> EngineMemory:
    """Rules of ``engine``: a preset's name, or ``vllm==0.23.0`` (also ``vllm 0.23`` or ``vllm-0.23``) for a release.

    Raises:
        InputError: an unknown engine or a version that is not a number.
    """
    lowered = engine.strip().lower().replace("==", " ").replace("@", " ")
    name, _, version = lowered.partition(" ")
    if name.startswith("vllm-"):
        name, _, version = name.partition("-")
    if name in {"vllm", "orca", "static", "tgi"}:
        return _vllm(version or DEFAULT_VLLM, engine)
    if name == "sglang":
        return _SGLANG
    if name in {"tensorrt-llm", "trtllm", "tensorrt"}:
        return _TENSORRT
    raise InputError("engine.preset", f"unknown engine {engine!r}", nearest(name, ["vllm", "sglang", "tensorrt-llm"]))


def release_number(release: str) -> tuple[int, ...] | None:
    """``0.15.1`` as numbers, without the mark of a candidate, a nightly or a build; None where it is no release."""
    found = _RELEASE.fullmatch(release)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def _vllm(version: str, given: str) -> EngineMemory:
    asked = release_number(version)
    if asked is None:
        raise InputError("engine.version", f"cannot read a version in {given!r}", "write it like vllm==0.15.1")
    return [rules for first, rules in _VLLM if asked >= first][-1]
