"""The kinds of operators that a step is made of; each scales with one count of the step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sim.layout import All2AllBackend

# What an operator scales with: tokens with the padding of CUDA graphs, tokens without (padding is alike and goes to the
# same experts), decoding sequences, keys that prefill chunks read, sequences sampled.
Driver = Literal["tokens", "routed", "decode_seqs", "prefill_context", "sampled"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """(m, k) x (k, n) with weights of ``family`` and ``bits``; ``batch`` independent ones (one a head)."""

    name: str
    n: int
    k: int
    family: str
    bits: float
    count: int
    driver: Driver = "tokens"
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Memory-bound kernels that move ``bytes_per_token`` together."""

    name: str
    bytes_per_token: float
    kernels: int
    count: int
    driver: Driver = "tokens"


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of one MoE layer as this rank holds them.

    Attributes:
        hidden, width: of one expert here.
        projections: matrices an expert: 3 gated, 2 plain.
        experts, total_experts: on this rank (copies included), and of the layer.
        ranks: that hold the layer's experts between them.
        backend: how tokens came here: gathered, so that rows of other ranks' experts must be passed over, or sent.
        top_k: experts a token.
        token_share: tokens of the whole group for each token of this rank.
    """

    name: str
    hidden: int
    width: int
    projections: int
    experts: int
    total_experts: int
    top_k: int
    family: str
    bits: float
    token_share: float
    ranks: int
    backend: All2AllBackend
    count: int
    driver: Driver = "routed"


@dataclass(frozen=True, slots=True)
class SortedSampling:
    """Top-k or top-p sampling by sorting whole rows of logits."""

    name: str
    vocab: int
    count: int
    driver: Driver = "sampled"


@dataclass(frozen=True, slots=True)
class Collective:
    """``kind`` over ``ranks`` GPUs, ``bytes_per_token`` a rank."""

    name: str
    kind: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
    ranks: int
    bytes_per_token: float
    count: int
    driver: Driver = "tokens"


@dataclass(frozen=True, slots=True)
class Exchange:
    """Tokens of data-parallel ranks to the ranks that hold their experts (``dispatch``), or results back (``combine``).

    Attributes:
        backend: how (`sim.layout.All2AllBackend`).
        ranks, tensor, data: of the group, TP x DP; the TP ranks of a data-parallel rank share its tokens.
        element_bytes: of an exchanged activation, its scales included.
        groups_per_token: expert groups that a token may pick from, 0 where the router has none.
    """

    name: str
    phase: Literal["dispatch", "combine"]
    backend: All2AllBackend
    tensor: int
    data: int
    hidden: int
    top_k: int
    element_bytes: float
    groups_per_token: int
    count: int
    driver: Driver = "tokens"

    @property
    def ranks(self) -> int:
        """GPUs of the group."""
        return self.tensor * self.data


Operator = Gemm | Elementwise | Experts | Collective | Exchange | SortedSampling


def launches(operator: Operator) -> int:
    """Kernels that all calls of ``operator`` launch."""
    each = {Elementwise: getattr(operator, "kernels", 1), Experts: 6, SortedSampling: 15}.get(type(operator), 1)
    return operator.count * each
