"""The decoder itself: random bf16 weights, a real KV cache, one forward pass for each scheduled step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from calibration.bench import operators
from sim.models.architecture import Architecture

Tensor = Any
ROPE_BASE = 10_000.0
GRAIN = 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one sequence computes in a step.

    Attributes:
        slot: of the cache.
        tokens: new token ids, at least one.
        before: tokens of the sequence that the cache holds.
        samples: whether its last position gives a token.
    """

    slot: int
    tokens: Sequence[int]
    before: int
    samples: bool


def padded(tokens: int) -> int:
    """Rows that a step of so many tokens computes: 1, 2, 4, then multiples of 8, the sizes that vLLM captures.

    Libraries prepare a product anew for each shape that they have not seen; few shapes keep that out of the steps.
    """
    return tokens if tokens <= 2 else 4 if tokens <= 4 else -(-tokens // GRAIN) * GRAIN


@dataclass(slots=True)
class _Batch:
    """A step as tensors, and the chunks with the rows that they own."""

    ids: Tensor
    slots: Tensor
    positions: Tensor
    cosine: Tensor
    sine: Tensor
    rows: list[tuple[Chunk, int, int]]  # chunk, first row, end


class Decoder:
    """A Llama-like decoder with grouped heads or MLA.

    Every sequence has a slot of ``max_model_len`` positions in each layer's cache; one more slot takes what padding
    writes. Attention runs sequence by sequence, everything else over all tokens of the step at once, `padded`.

    Args:
        torch: the module.
        arch: all layers of one make.
        slots: sequences that can be held.
        max_model_len: positions a slot.
        seed: of the weights.
    """

    def __init__(self, torch: Any, arch: Architecture, slots: int, max_model_len: int, seed: int = 0) -> None:
        run = arch.layers[0]
        assert run.attention is not None
        assert run.mlp is not None
        self.torch = torch
        self.attention = run.attention
        self._scratch = slots
        self._draw = torch.Generator().manual_seed(seed)
        hidden, inner = arch.hidden_size, run.mlp.intermediate_size
        self.embedding = self._weight(arch.vocab_size, hidden)
        self.head = self._weight(arch.vocab_size, hidden)
        self.norm = torch.ones(hidden, dtype=torch.bfloat16)
        kind = _LatentLayer if run.attention.kind == "mla" else _HeadsLayer
        self.layers = [
            (
                kind(self, hidden, slots + 1, max_model_len),
                self._weight(2 * inner, hidden),
                self._weight(hidden, inner),
            )
            for _ in range(arch.num_layers)
        ]
        rotary = self.attention.qk_rope_head_dim or self.attention.head_dim
        frequencies = ROPE_BASE ** (-torch.arange(0, rotary, 2) / rotary)
        angles = torch.outer(torch.arange(max_model_len), frequencies)
        self._cosine, self._sine = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    def step(self, chunks: Sequence[Chunk]) -> list[int]:
        """Compute one step; the next token of each chunk that samples, in order."""
        torch, linear = self.torch, self.torch.nn.functional.linear
        with torch.inference_mode():
            batch = self._batch(chunks)
            hidden = self.embedding[batch.ids]
            for attention, gate_up, down in self.layers:
                hidden = hidden + attention(operators.rms_norm(torch, hidden, self.norm), batch)
                inner = linear(operators.rms_norm(torch, hidden, self.norm), gate_up)
                hidden = hidden + linear(operators.silu_and_mul(torch, inner), down)
            last = [end - 1 for chunk, _, end in batch.rows if chunk.samples]
            if not last:
                return []
            logits = linear(operators.rms_norm(torch, hidden[last], self.norm), self.head)
            tokens: list[int] = logits.argmax(dim=-1).tolist()
            return tokens

    def _batch(self, chunks: Sequence[Chunk]) -> _Batch:
        torch = self.torch
        ids: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        rows = []
        for chunk in chunks:
            first = len(ids)
            ids += chunk.tokens
            slots += [chunk.slot] * len(chunk.tokens)
            positions += range(chunk.before, chunk.before + len(chunk.tokens))
            rows.append((chunk, first, len(ids)))
        spare = padded(len(ids)) - len(ids)
        ids += [0] * spare
        slots += [self._scratch] * spare
        positions += [0] * spare
        where = torch.tensor(positions)
        cosine, sine = self._cosine[where][:, None], self._sine[where][:, None]
        return _Batch(torch.tensor(ids), torch.tensor(slots), where, cosine, sine, rows)

    def _weight(self, rows: int, columns: int) -> Tensor:
        """Random, of a variance that keeps activations of order one."""
        return (self.torch.randn(rows, columns, generator=self._draw) / columns**0.5).to(self.torch.bfloat16)


class _HeadsLayer:
    """Attention with grouped heads over a (slots, KV heads, positions, head_dim) cache of keys and one of values."""

    def __init__(self, decoder: Decoder, hidden: int, slots: int, max_model_len: int) -> None:
        self.torch, self.a = decoder.torch, decoder.attention
        a = self.a
        self.widths = (a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim, a.num_kv_heads * a.v_head_dim)
        self.qkv, self.out = decoder._weight(sum(self.widths), hidden), decoder._weight(hidden, self.widths[0])
        shape = (slots, a.num_kv_heads, max_model_len, a.head_dim)
        self.keys, self.values = (self.torch.zeros(shape, dtype=self.torch.bfloat16) for _ in range(2))

    def __call__(self, x: Tensor, batch: _Batch) -> Tensor:
        torch, a = self.torch, self.a
        query, key, value = torch.nn.functional.linear(x, self.qkv).split(self.widths, dim=-1)
        query = operators.rotate(torch, query.view(-1, a.num_heads, a.head_dim), batch.cosine, batch.sine)
        key = operators.rotate(torch, key.view(-1, a.num_kv_heads, a.head_dim), batch.cosine, batch.sine)
        self.keys[batch.slots, :, batch.positions] = key
        self.values[batch.slots, :, batch.positions] = value.view(-1, a.num_kv_heads, a.v_head_dim)
        out = torch.zeros_like(query)
        for chunk, first, end in batch.rows:
            context = chunk.before + end - first
            keys, values = self.keys[chunk.slot, :, :context], self.values[chunk.slot, :, :context]
            if end - first == 1:
                out[first] = operators.decode_attention(torch, query[first], keys, values)
            else:
                found = operators.prefill_attention(torch, query[first:end].transpose(0, 1), keys, values)
                out[first:end] = found.transpose(0, 1)
        return torch.nn.functional.linear(out.view(len(out), -1), self.out)


class _LatentLayer:
    """MLA over a (slots, positions, rank + rope) cache: absorbed for single tokens, expanded for longer chunks."""

    def __init__(self, decoder: Decoder, hidden: int, slots: int, max_model_len: int) -> None:
        self.torch, self.a = decoder.torch, decoder.attention
        a = self.a
        self.latent = a.kv_lora_rank + a.qk_rope_head_dim
        self.scale = a.head_dim**-0.5
        self.norm = self.torch.ones(a.kv_lora_rank, dtype=self.torch.bfloat16)
        self.down = decoder._weight(a.num_heads * a.head_dim + self.latent, hidden)
        self.up = decoder._weight(a.num_heads * (a.qk_nope_head_dim + a.v_head_dim), a.kv_lora_rank)
        self.out = decoder._weight(hidden, a.num_heads * a.v_head_dim)
        both = self.up.view(a.num_heads, a.qk_nope_head_dim + a.v_head_dim, a.kv_lora_rank)
        self.absorb_keys = both[:, : a.qk_nope_head_dim].contiguous()  # (h, nope, rank)
        self.absorb_values = both[:, a.qk_nope_head_dim :].transpose(1, 2).contiguous()  # (h, rank, v)
        self.cache = self.torch.zeros(slots, max_model_len, self.latent, dtype=self.torch.bfloat16)

    def __call__(self, x: Tensor, batch: _Batch) -> Tensor:
        torch, a = self.torch, self.a
        query, row = torch.nn.functional.linear(x, self.down).split((a.num_heads * a.head_dim, self.latent), dim=-1)
        nope, rope = query.view(-1, a.num_heads, a.head_dim).split((a.qk_nope_head_dim, a.qk_rope_head_dim), dim=-1)
        rope = operators.rotate(torch, rope, batch.cosine, batch.sine)
        self.cache[batch.slots, batch.positions] = self._cached(row, batch)
        out = x.new_zeros(len(x), a.num_heads, a.v_head_dim)
        singles = [(chunk, first) for chunk, first, end in batch.rows if end - first == 1]
        if singles:
            rows = [first for _, first in singles]
            out[rows] = self._decode([chunk for chunk, _ in singles], nope[rows], rope[rows])
        for chunk, first, end in batch.rows:
            if end - first > 1:
                out[first:end] = self._prefill(chunk, nope[first:end], rope[first:end])
        return torch.nn.functional.linear(out.view(len(out), -1), self.out)

    def _cached(self, row: Tensor, batch: _Batch) -> Tensor:
        """The normed latent and the rotated key of each token."""
        latent, key = row.split((self.a.kv_lora_rank, self.a.qk_rope_head_dim), dim=-1)
        key = operators.rotate(self.torch, key[:, None], batch.cosine, batch.sine)[:, 0]
        return self.torch.cat((operators.rms_norm(self.torch, latent, self.norm), key), dim=-1)

    def _decode(self, chunks: list[Chunk], nope: Tensor, rope: Tensor) -> Tensor:
        """(m, heads, v) of single tokens: queries into the latent space, attention there, and out of it."""
        torch = self.torch
        queries = torch.cat((torch.bmm(nope.transpose(0, 1), self.absorb_keys).transpose(0, 1), rope), dim=-1)
        attended = torch.stack(
            [
                operators.latent_decode_attention(
                    torch, query, self.cache[chunk.slot, : chunk.before + 1], self.a.kv_lora_rank, self.scale
                )
                for chunk, query in zip(chunks, queries, strict=True)
            ]
        )
        return torch.bmm(attended.transpose(0, 1), self.absorb_values).transpose(0, 1)

    def _prefill(self, chunk: Chunk, nope: Tensor, rope: Tensor) -> Tensor:
        """(n, heads, v) of a chunk: keys and values of all it attends are expanded."""
        torch, a = self.torch, self.a
        context = chunk.before + len(nope)
        cached = self.cache[chunk.slot, : padded(context)]
        latent, key = cached.split((a.kv_lora_rank, a.qk_rope_head_dim), dim=-1)
        both = torch.nn.functional.linear(latent, self.up).view(len(cached), a.num_heads, -1)
        keys, values = both.split((a.qk_nope_head_dim, a.v_head_dim), dim=-1)
        keys = torch.cat((keys, key[:, None].expand(-1, a.num_heads, -1)), dim=-1)[:context]
        query = torch.cat((nope, rope), dim=-1)
        found = operators.prefill_attention(
            torch, query.transpose(0, 1), keys.transpose(0, 1), values[:context].transpose(0, 1)
        )
        return found.transpose(0, 1)
