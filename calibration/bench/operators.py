"""The operators of a decoder in plain torch, one by one: what the benchmarks time is what the closed loop runs.

Shapes: n tokens, h query heads, g KV heads, d head elements, c tokens in the cache. Every function takes tensors of one
device and dtype; none needs a gradient.
"""

from __future__ import annotations

from typing import Any

Tensor = Any


def rms_norm(torch: Any, x: Tensor, weight: Tensor) -> Tensor:
    """(n, width) over the root of its mean square."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5)


def silu_and_mul(torch: Any, gate_up: Tensor) -> Tensor:
    """(n, 2 width) to (n, width): SiLU of the first half times the second."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate).mul_(up)


def rotate(torch: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary embedding of (n, heads, d) with (n, 1, d / 2) tables, halves rotated."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


def decode_attention(torch: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of one new token over its cache: (h, d), (g, c, d), (g, c, d) to (h, d).

    The query heads of a group stand as its rows, so that a key is read once for the whole group.
    """
    grouped = query.view(1, keys.shape[0], -1, query.shape[-1])
    out = torch.nn.functional.scaled_dot_product_attention(grouped, keys[None], values[None])
    return out.reshape(query.shape[0], -1)


def decode_attention_batched(torch: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """As `decode_attention` for b sequences of one length: (b, h, d), (b, g, c, d), (b, g, c, d) to (b, h, d)."""
    batch, heads, dim = query.shape
    grouped = query.view(batch, keys.shape[1], -1, dim)
    return torch.nn.functional.scaled_dot_product_attention(grouped, keys, values).reshape(batch, heads, dim)


def prefill_attention(torch: Any, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last n of c tokens: (h, n, d), (g, c, d), (g, c, e) to (h, n, e).

    Values narrower than keys (MLA) are padded to their width, as engines do for kernels with one head dimension.
    """
    new, context, width = query.shape[1], keys.shape[1], values.shape[-1]
    if width < keys.shape[-1]:
        values = torch.nn.functional.pad(values, (0, keys.shape[-1] - width))
    mask = None
    if new < context:  # torch's own causal mask starts at the first key, a chunk's at its own first token
        mask = torch.ones(new, context, dtype=torch.bool, device=query.device).tril(context - new)
    out = torch.nn.functional.scaled_dot_product_attention(
        query[None],
        keys[None],
        values[None],
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=keys.shape[0] != query.shape[0],
    )
    return out[0, :, :, :width]


def latent_decode_attention(torch: Any, query: Tensor, latent: Tensor, rank: int, scale: float) -> Tensor:
    """MLA in the latent space: (h, rank + rope) queries over a (c, rank + rope) cache to (h, rank).

    Scores use the whole latent row, values its first ``rank`` elements (DeepSeek-V2, arXiv 2405.04434). The heads stand
    as rows over one shared key head.
    """
    rows = latent[None, None]
    out = torch.nn.functional.scaled_dot_product_attention(query[None, None], rows, rows, scale=scale)
    return out[0, 0, :, :rank]
