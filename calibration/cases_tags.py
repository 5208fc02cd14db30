"""Words that the cases and the accuracy report share: devices, model families, and what a tag means.

Tags of a case: ``group`` (fit: used to set engine constants; report: not), ``knee`` (below: latencies count; at or
past: only throughput does), ``gpu``, ``family``, ``kind`` (dense or moe), ``precision``, ``engine``, ``grade`` and
``load``.
"""

from __future__ import annotations

from typing import Final

# device name in the table of runs -> profile
HARDWARE: Final = {
    "H100-SXM-80GB": "h100-sxm",
    "H200-SXM-141GB": "h200-sxm",
    "A100-80GB": "a100-sxm-80gb",
    "L40S-48GB": "l40s",
    "B200-SXM-180GB": "b200",
    "GB200-192GB": "gb200",
    "RTX-4090-24GB": "rtx-4090",
    "RTX-PRO-6000-Blackwell-96GB": "rtx-pro-6000",
}

_FAMILIES: Final = (
    ("codellama", "CodeLlama"),
    ("llama-2", "Llama 2"),
    ("llama-3", "Llama 3.1"),
    ("llama-4", "Llama 4"),
    ("mixtral", "Mixtral"),
    ("mistral", "Mistral"),
    ("qwen2.5", "Qwen 2.5"),
    ("qwen3", "Qwen 3"),
)
# Runs that constants were set on: those of some models on an H100, and all runs on the other devices, whose memory and
# mixed-step figures were set on them. Every other run is only reported.
_FITTED_ON: Final = ("llama-2-7b", "llama-3.1-8b", "qwen3-14b", "mixtral-8x7b", "llama-4-scout")
_HELD_OUT_DEVICE: Final = "H100-SXM-80GB"
_MOE: Final = ("mixtral", "scout", "a22b", "a3b")


def group_of(model: str, device: str) -> str:
    """Whether the runs of a model on a device were used to set engine constants (``fit``) or not (``report``)."""
    fitted = device != _HELD_OUT_DEVICE or any(mark in model.lower() for mark in _FITTED_ON)
    return "fit" if fitted else "report"


def family_of(model: str) -> str:
    """The model family, as people say it."""
    lowered = model.lower()
    return next((family for mark, family in _FAMILIES if mark in lowered), model.rsplit("/", 1)[-1])


def kind_of(model: str) -> str:
    """``moe`` or ``dense``."""
    return "moe" if any(mark in model.lower() for mark in _MOE) else "dense"


def precision_of(weight_dtype: str) -> str:
    """Number format of the weights, as tags spell it."""
    return "bf16" if "bf16" in weight_dtype else weight_dtype
