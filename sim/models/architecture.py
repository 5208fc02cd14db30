"""The shape of a decoder, as its Hugging Face ``config.json`` gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear"]


@dataclass(frozen=True, slots=True)
class Attention:
    """One kind of attention layer.

    ``full``, ``sliding`` and ``chunked`` cache ``num_kv_heads * (head_dim + v_head_dim)`` elements a token; ``mla``
    caches ``kv_lora_rank + qk_rope_head_dim``; ``linear`` keeps ``state_elements`` a sequence, whatever its length.
    For MLA ``head_dim`` is ``qk_nope_head_dim + qk_rope_head_dim``.
    """

    kind: AttentionKind
    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None  # tokens a query sees (sliding), or the chunk length (chunked)
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: bool = False
    shared_kv_projection: bool = False  # values are projected with the keys' weights (Gemma 4), both are cached
    output_gate: bool = False  # q projection is doubled to gate the output (Qwen3-Next)
    kv_lora_rank: int = 0
    q_lora_rank: int = 0  # 0 = q is projected straight from hidden
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    state_elements: int = 0  # linear attention / SSM: recurrent state a sequence, elements
    conv_state_elements: int = 0  # and its convolution window
    linear_params: int = 0  # weights of a linear/SSM mixer (its projections do not follow the attention formula)
    index_heads: int = 0  # sparse attention (DeepSeek-V3.2): the indexer's query heads ...
    index_head_dim: int = 0  # ... and the key it caches beside the latent, one a token
    index_topk: int = 0  # tokens that a query attends, those that score best
    qk_norm_params: int = 0  # elements of the query and key norms
    sink_params: int = 0  # learned attention sinks (gpt-oss), one a head


@dataclass(frozen=True, slots=True)
class Mlp:
    """Feed-forward block. ``num_experts == 0`` is dense with ``intermediate_size``."""

    intermediate_size: int  # of the dense MLP, or of one routed expert
    gated: bool = True  # gate and up projections (SwiGLU) against a single up projection
    bias: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    shared_intermediate_size: int = 0  # all shared experts together; 0 = none
    shared_gate: bool = False
    router_bias: bool = False
    groups_per_token: int = 0  # expert groups that a token may pick from (node-limited routing); 0 = no groups


@dataclass(frozen=True, slots=True)
class LayerRun:
    """``count`` consecutive or interleaved layers of one make. ``attention`` or ``mlp`` None = that half is absent."""

    count: int
    attention: Attention | None
    mlp: Mlp | None


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder. ``layers`` groups equal layers; ``layer_order`` is their order in the model (indices into it)."""

    name: str
    hidden_size: int
    vocab_size: int
    layers: tuple[LayerRun, ...]
    layer_order: tuple[int, ...]
    tie_word_embeddings: bool
    max_position_embeddings: int
    stored_dtype: str  # bf16 | fp16 | fp32: elements of what is not quantised
    stored_quantization: str | None  # weight format of the checkpoint's quantization_config, None where it has none
    norm_params_per_layer: int  # elements of the norms of one layer
    mtp_layers: int = 0  # multi-token-prediction heads shipped with the checkpoint
    extra_params: int = 0  # parameters outside the decoder (vision tower, projector), held in memory, not computed here
    stored_unquantized: tuple[str, ...] = ()  # components that stored_quantization leaves in stored_dtype
    lm_head_bias: bool = False
    rope_cache_elements: int = 0  # cosine and sine tables that the engine keeps, elements
    truncated_sampling: bool = False  # the model's generation_config asks for top-k or top-p unless a request differs
    notes: tuple[str, ...] = ()  # what a reader of numbers about this model should know
    final_norm_params: int = 0  # elements of the norm before the LM head

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.layer_order)

    @property
    def window(self) -> int | None:
        """The fewest tokens that a query of any layer attends: a sliding window, a chunk, what an indexer picks.

        None where all attention is full.
        """
        ranges = ((run.attention.window, run.attention.index_topk) for run in self.layers if run.attention)
        windows = [limit for pair in ranges for limit in pair if limit]
        return min(windows) if windows else None
