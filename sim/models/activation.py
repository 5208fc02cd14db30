"""Peak memory of a profiling pass: the largest batch through the layers, then the sampler over its last tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sim.layout import Layout
from sim.models.architecture import Architecture, Attention, Mlp
from sim.models.engine_memory import EngineMemory

_BYTES = 2  # activations are bf16 or fp16
# Experts work through at most this many tokens at a time (VLLM_FUSED_MOE_CHUNK_SIZE).
_MOE_CHUNK_TOKENS = 16_384
# Latent attention expands at most this many cached tokens at a time.
_MLA_WORKSPACE_TOKENS = 65_536


@dataclass(frozen=True, slots=True)
class Batch:
    """What the engine profiles with: the largest step it may schedule."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_model_len: int
    block_size: int


def activation_bytes(arch: Architecture, layout: Layout, batch: Batch, rules: EngineMemory, last_stage: bool) -> int:
    """Peak activation of one rank.

    The largest of three moments: inside a layer, in the sampler while the last hidden states are still held, and while
    the compiler times the rotary kernels. Checked against logs: Llama-3.1-8B eager takes 2.07 GiB at 20,000 tokens and
    2.99 GiB at 29,000 (vllm#10517).

    Args:
        arch: the model.
        layout: its sharding.
        batch: the largest step.
        rules: of the engine.
        last_stage: whether this pipeline stage samples.
    """
    tokens = batch.max_num_batched_tokens
    forward = layer_activation_bytes(arch, layout, batch)
    if rules.times_kernels:
        forward = max(forward, _timing_bytes(arch, layout, tokens))
    if not last_stage:
        return forward
    rows = min(batch.max_num_seqs, tokens)
    per_logit = rules.bytes_per_logit if rows >= 128 else rules.bytes_per_logit_few
    # Beside the whole batch: the rows that are sampled, and the random ones profiled in their place.
    held = (rules.hidden_copies * tokens + 2 * rows) * arch.hidden_size * _BYTES
    if rules.keeps_moe_workspace:
        held += max(_moe_workspace_bytes(arch, run.mlp, layout, batch) for run in arch.layers)
    return max(forward, held + rows * arch.vocab_size * per_logit)


def _timing_bytes(arch: Architecture, layout: Layout, tokens: int) -> int:
    """What lives while the compiler times the rotary kernels of queries and keys apart and fused into one.

    It times them on random tensors as large as their arguments: the rotary table, queries before and after. Beside them
    are the inputs of the layer: residual, its normed copy, attention output (vllm#26682 turned this on;
    torch/_inductor/codegen/triton_combo_kernel.py, codegen_kernel_benchmark).
    """
    heads = (run.attention.num_heads * run.attention.v_head_dim for run in arch.layers if run.attention)
    queries = max(heads, default=0) // layout.tensor_parallel_size
    return (arch.rope_cache_elements + tokens * (2 * arch.hidden_size + 3 * queries)) * _BYTES


def layer_activation_bytes(arch: Architecture, layout: Layout, batch: Batch) -> int:
    """Peak inside the widest layer of one rank."""
    return max(_layer_bytes(arch, run.attention, run.mlp, layout, batch) for run in arch.layers)


def _layer_bytes(arch: Architecture, attention: Attention | None, mlp: Mlp | None, layout: Layout, batch: Batch) -> int:
    """Live at once at the widest point of a layer: residual, its normed copy, attention output, MLP intermediates."""
    tokens, tp = batch.max_num_batched_tokens, layout.tensor_parallel_size
    queries = attention.num_heads * attention.v_head_dim // tp if attention else 0
    elements = 2 * arch.hidden_size + queries
    if mlp is None:
        widest = 2 * queries
    elif not mlp.num_experts:
        widest = (3 if mlp.gated else 2) * mlp.intermediate_size // tp
    else:
        widest = arch.hidden_size + (3 if mlp.gated else 2) * mlp.shared_intermediate_size // tp
    layer = tokens * (elements + widest) * _BYTES + _moe_workspace_bytes(arch, mlp, layout, batch)
    return max(layer, _latent_bytes(attention, layout, batch) + tokens * elements * _BYTES)


def _moe_workspace_bytes(arch: Architecture, mlp: Mlp | None, layout: Layout, batch: Batch) -> int:
    """Two scratch tensors of the fused experts: input of the activation, its output (shared with the last product)."""
    if mlp is None or not mlp.num_experts:
        return 0
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    inner = mlp.intermediate_size if layout.enable_expert_parallel else -(-mlp.intermediate_size // ranks)
    tokens = min(batch.max_num_batched_tokens * layout.data_parallel_size, _MOE_CHUNK_TOKENS)
    wide = max((2 if mlp.gated else 1) * inner, arch.hidden_size)
    narrow = max(inner, arch.hidden_size)
    return tokens * mlp.experts_per_token * (wide + narrow) * _BYTES


def _latent_bytes(attention: Attention | None, layout: Layout, batch: Batch) -> int:
    """MLA expands the latents of a chunk of context to keys and values of every head of the rank."""
    if attention is None or attention.kind != "mla":
        return 0
    wanted = max(8 * batch.max_model_len, 4 * batch.max_num_seqs * batch.block_size)
    tokens = max(min(wanted, _MLA_WORKSPACE_TOKENS), batch.max_num_seqs * batch.block_size)
    heads = max(1, attention.num_heads // layout.tensor_parallel_size)
    return tokens * heads * (attention.qk_nope_head_dim + attention.v_head_dim) * _BYTES
