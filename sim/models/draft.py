"""What proposes drafts on the GPU: a smaller model, or heads on the model's own features. Weights and cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture, LayerRun, Mlp
from sim.models.engine_memory import EngineMemory
from sim.models.kv_cache import LayerCache, layer_caches
from sim.models.kv_format import KvFormat
from sim.models.quantization import WeightFormat
from sim.models.sharding import check_layout, stages, weight_bytes

EAGLE3_VOCAB = 32_000  # what published EAGLE-3 heads choose from


@dataclass(frozen=True, slots=True)
class Draft:
    """A drafter.

    Attributes:
        arch: its decoder; of heads the layers alone, and as many output tokens as they choose from.
        weights: format of its weights.
        tensor_parallel_size: GPUs that share it.
        fused: hidden states that a projection in front of the layers takes: 0 none, 2 EAGLE and MTP, 3 EAGLE-3.
        own_embedding: whether it has an embedding of its own.
        own_lm_head: whether it has an LM head of its own; else it reads the model's.
        medusa_heads: heads side by side, each ``medusa_layers`` residual blocks and an LM head; 0 = runs ``arch``.
        spread: the engine's layout, where the drafter's experts lie on its data-parallel ranks as the model's do.
    """

    arch: Architecture
    weights: WeightFormat
    tensor_parallel_size: int
    fused: int = 0
    own_embedding: bool = False
    own_lm_head: bool = False
    medusa_heads: int = 0
    medusa_layers: int = 0
    spread: Layout | None = None

    @property
    def layout(self) -> Layout:
        """Its sharding, apart from the node; all of it lies on one pipeline stage."""
        if self.spread is not None:
            one_stage = {"pipeline_parallel_size": 1, "pp_layer_partition": None}
            return self.spread.model_copy(update={"tensor_parallel_size": self.tensor_parallel_size, **one_stage})
        return Layout.parse({"tensor_parallel_size": self.tensor_parallel_size})

    def rank_bytes(self, rules: EngineMemory) -> int:
        """Weights on one GPU of the engine (a drafter on fewer GPUs than the model is counted on the fullest)."""
        hidden, bits = self.arch.hidden_size, self.weights.base_bits
        if self.medusa_heads:
            head = self.medusa_layers * hidden * (hidden + 1) + self.arch.vocab_size * hidden
            return self.medusa_heads * head * bits // 8 // self.tensor_parallel_size
        (stage,) = stages(self.arch, self.layout)
        parts = weight_bytes(self.arch, self.layout, self.weights, stage, rules)
        shared = {"embedding": not self.own_embedding, "lm_head": not self.own_lm_head}
        own = sum(size for name, size in parts.items() if not shared.get(name, False))
        return own + self.fused * hidden * hidden * bits // 8 // self.tensor_parallel_size

    def caches(self, kv: KvFormat) -> tuple[LayerCache, ...]:
        """KV cache of its layers on one GPU."""
        return () if self.medusa_heads else layer_caches(self.arch, self.arch.layers, kv, self.tensor_parallel_size)


def draft_model(target: Architecture, draft: Architecture, weights: WeightFormat, tensor_parallel_size: int) -> Draft:
    """A smaller model.

    Raises:
        InputError: another vocabulary, or a layout that does not divide it.
    """
    if draft.vocab_size != target.vocab_size:
        raise InputError(
            "engine.speculative.draft_model",
            f"{draft.name} has a vocabulary of {draft.vocab_size} tokens, {target.name} one of {target.vocab_size}",
            "drafts are verified token by token: use a model of the same family",
        )
    _check(draft, tensor_parallel_size)
    return Draft(draft, weights, tensor_parallel_size, own_embedding=True, own_lm_head=True)


def feature_head(
    target: Architecture,
    weights: WeightFormat,
    tensor_parallel_size: int,
    *,
    layers: int,
    eagle3: bool,
    vocab_size: int | None,
) -> Draft:
    """An EAGLE head shaped like the model: ``layers`` decoder layers behind a projection of embedding and features.

    EAGLE (arXiv 2401.15077, 2406.16858) shares embedding and LM head with the model; EAGLE-3 (2503.01840) fuses the
    features of three layers and has an LM head of its own over the most frequent tokens.
    """
    vocab = vocab_size or (EAGLE3_VOCAB if eagle3 else target.vocab_size)
    own_lm_head = vocab != target.vocab_size
    arch = _layers_of(target, layers, min(vocab, target.vocab_size), dense=True)
    return _checked(Draft(arch, weights, tensor_parallel_size, 3 if eagle3 else 2, own_lm_head=own_lm_head))


def configured_head(
    target: Architecture, head: Architecture, weights: WeightFormat, tensor_parallel_size: int, *, eagle3: bool
) -> Draft:
    """An EAGLE head with a configuration of its own.

    Raises:
        InputError: features of another size than the model's.
    """
    if head.hidden_size != target.hidden_size:
        raise InputError(
            "engine.speculative.draft_model",
            f"{head.name} takes features of {head.hidden_size} elements, {target.name} has {target.hidden_size}",
            "use a head that was trained on this model",
        )
    own = eagle3 or head.vocab_size != target.vocab_size
    return _checked(Draft(head, weights, tensor_parallel_size, 3 if eagle3 else 2, own_lm_head=own))


def mtp_head(target: Architecture, weights: WeightFormat, tensor_parallel_size: int, layout: Layout) -> Draft:
    """The checkpoint's multi-token-prediction layer (DeepSeek-V3, arXiv 2412.19437), used again for every draft.

    Raises:
        InputError: a checkpoint without one.
    """
    if not target.mtp_layers:
        raise InputError(
            "engine.speculative.method",
            f"{target.name} ships no multi-token-prediction layers",
            "use eagle, draft_model or ngram",
        )
    arch = _layers_of(target, 1, target.vocab_size, dense=False)
    mlp = arch.layers[0].mlp
    shared = layout.data_parallel_size > 1 and mlp is not None and mlp.num_experts > 0
    return Draft(arch, weights, tensor_parallel_size, 2, spread=layout if shared else None)


def medusa_heads(
    target: Architecture,
    weights: WeightFormat,
    tensor_parallel_size: int,
    *,
    heads: int,
    layers: int,
    vocab_size: int | None,
) -> Draft:
    """Heads that each guess one position (Medusa, arXiv 2401.10774): residual blocks and an LM head each."""
    arch = replace(target, vocab_size=vocab_size or target.vocab_size)
    return Draft(arch, weights, tensor_parallel_size, medusa_heads=heads, medusa_layers=layers)


def _layers_of(target: Architecture, layers: int, vocab_size: int, *, dense: bool) -> Architecture:
    """``layers`` layers like the model's last; the experts of a mixture become one block as wide as a token uses."""
    last = target.layers[target.layer_order[-1]]
    mlp = last.mlp
    if dense and mlp is not None and mlp.num_experts:
        width = mlp.experts_per_token * mlp.intermediate_size + mlp.shared_intermediate_size
        mlp = Mlp(intermediate_size=width, gated=mlp.gated, bias=mlp.bias)
    return replace(
        target,
        name=f"head of {target.name}",
        layers=(LayerRun(layers, last.attention, mlp),),
        layer_order=(0,) * layers,
        vocab_size=vocab_size,
        tie_word_embeddings=False,
        mtp_layers=0,
        extra_params=0,
        rope_cache_elements=0,
    )


def _checked(draft: Draft) -> Draft:
    _check(draft.arch, draft.tensor_parallel_size)
    return draft


def _check(arch: Architecture, tensor_parallel_size: int) -> None:
    try:
        check_layout(arch, Layout.parse({"tensor_parallel_size": tensor_parallel_size}))
    except InputError as error:
        raise InputError("engine.speculative.draft_tensor_parallel_size", error.problem, error.remedy) from None
