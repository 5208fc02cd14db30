"""The operators of a step in the groups that a reader thinks of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: In the order in which they are shown; what is none of the others is element-wise work.
FAMILIES: Final = (
    "matrix products",
    "experts",
    "attention",
    "communication",
    "logits and sampling",
    "drafting",
    "element-wise",
    "host",
)
_FAMILY: Final[Mapping[str, str]] = {
    "router": "matrix products",
    "absorb": "matrix products",
    "experts": "experts",
    "decode_attention": "attention",
    "prefill_attention": "attention",
    "all_reduce": "communication",
    "all_gather": "communication",
    "reduce_scatter": "communication",
    "all_to_all": "communication",
    "lm_head": "logits and sampling",
    "sampling": "logits and sampling",
    "drafting": "drafting",
    "host": "host",
}


def by_family(parts: Mapping[str, float]) -> dict[str, float]:
    """Sums by family, in the order of `FAMILIES`; those without time are left out."""
    found = dict.fromkeys(FAMILIES, 0.0)
    for operator, value in parts.items():
        found[_FAMILY.get(operator, "matrix products" if operator.endswith("_proj") else "element-wise")] += value
    return {name: value for name, value in found.items() if value > 0}
