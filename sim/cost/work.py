"""What the model itself asks of the hardware in a step: the numerators of MFU and MBU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.cost.kinds import Experts, Gemm, Operator
from sim.cost.laws import GEMM_FAMILIES
from sim.cost.operators import Ranks, kv_heads_of, layer_operators, outer_operators
from sim.layout import Layout
from sim.models.architecture import Architecture, Attention
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat

Floats = NDArray[np.float64]
Shapes = Mapping[str, NDArray[Any]]


class ModelWork:
    """FLOPs and bytes of steps, all GPUs of an engine (of one data-parallel rank) together.

    FLOPs are those of matrix products and attention, two for each multiply-add; padding, recomputation by the kernels
    and element-wise work do not count. Bytes are the weights that a step reads, once, and the keys and values that it
    attends; activations do not count. Both as in PaLM (arXiv 2204.02311, appendix B) and its counterpart for bandwidth.
    """

    def __init__(self, arch: Architecture, weights: WeightFormat, kv: KvFormat, layout: Layout) -> None:
        ranks = Ranks.of(layout)
        #: precision of the matrix products, as peaks are listed
        self.dtype = GEMM_FAMILIES[weights.gemm_family].dtype
        self._gpus = ranks.tensor
        self._operators: list[Operator] = [
            *(operator for run in arch.layers for operator in layer_operators(arch, run, weights, ranks)),
            *outer_operators(arch, weights, ranks.tensor),
        ]
        self._attention = [
            part
            for run in arch.layers
            if run.attention
            for part in _attention(run.attention, run.count, ranks.tensor, kv)
        ]

    def flops(self, shape: Shapes) -> Floats:
        """(rows,) operations of one step of each shape; ``shape`` holds the arrays that `StepShape` names."""
        drivers = _drivers(shape)
        total = np.zeros(len(drivers["tokens"]))
        for operator in self._operators:
            if isinstance(operator, Gemm):
                per_row = 2.0 * operator.n * operator.k * operator.batch * operator.count
                total += per_row * drivers[operator.driver]
            elif isinstance(operator, Experts):
                rows = (
                    drivers["tokens"]
                    * operator.token_share
                    * operator.top_k
                    * operator.experts
                    / operator.total_experts
                    / (operator.experts * operator.ranks / operator.total_experts)  # copies share their expert's rows
                )
                total += rows * 2.0 * operator.hidden * operator.width * operator.projections * operator.count
        for windowed, decode_flops, pair_flops, _ in self._attention:
            suffix = "_windowed" if windowed else ""
            queried = shape[f"decode_context{suffix}"] * drivers["queries"]
            total += decode_flops * queried + pair_flops * shape[f"prefill_pairs{suffix}"]
        return total * self._gpus

    def bytes_moved(self, shape: Shapes) -> Floats:
        """(rows,) bytes of one step of each shape."""
        drivers = _drivers(shape)
        total = np.zeros(len(drivers["tokens"]))
        for operator in self._operators:
            if isinstance(operator, Gemm):
                weights = operator.n * operator.k * operator.batch * operator.bits / 8 * operator.count
                total += np.where(drivers[operator.driver] > 0, weights, 0.0)
            elif isinstance(operator, Experts):
                missed = (1.0 - operator.top_k / operator.total_experts) ** (drivers["tokens"] * operator.token_share)
                matrices = operator.hidden * operator.width * operator.projections * operator.bits / 8
                total += operator.experts * (1.0 - missed) * matrices * operator.count
        for windowed, _, _, kv_bytes in self._attention:
            suffix = "_windowed" if windowed else ""
            total += kv_bytes * (shape[f"decode_context{suffix}"] + shape[f"prefill_context{suffix}"])
        return total * self._gpus


def _drivers(shape: Shapes) -> dict[str, Floats]:
    decodes = np.asarray(shape["decode_seqs"], np.float64)
    drafts = np.asarray(shape.get("draft_tokens", 0.0), np.float64)
    tokens = decodes + drafts + shape["prefill_tokens"]
    return {
        "tokens": tokens,
        "routed": tokens,
        "decode_seqs": decodes + drafts,
        "queries": 1.0 + drafts / np.maximum(decodes, 1.0),  # of a sequence that decodes
        "prefill_context": np.asarray(shape["prefill_context"], np.float64),
        "sampled": drafts + shape["sampled_seqs"],
    }


def _attention(attention: Attention, count: int, tensor: int, kv: KvFormat) -> list[tuple[bool, float, float, float]]:
    """Of ``count`` layers on one rank: windowed, FLOPs a decoded key, FLOPs a prefill pair, bytes a key read.

    Scores of an indexer count as keys read, not as operations: engines need not compute them where they pick all.
    """
    if attention.kind == "linear":
        return []
    heads, width = attention.num_heads / tensor, attention.head_dim + attention.v_head_dim
    pair = 2.0 * heads * width * count
    if attention.kind == "mla":
        latent = attention.kv_lora_rank + attention.qk_rope_head_dim
        absorbed = 2.0 * heads * (latent + attention.kv_lora_rank) * count
        picks = attention.index_topk > 0
        latents = (picks, absorbed, pair, latent * kv.key_bits / 8 * count)
        return [latents, (False, 0.0, 0.0, float(attention.index_head_dim * count))] if picks else [latents]
    stored = attention.head_dim * kv.key_bits + attention.v_head_dim * kv.value_bits
    return [(attention.window is not None, pair, pair, kv_heads_of(attention, tensor) * stored / 8 * count)]
