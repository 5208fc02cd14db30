"""From the speculative section to what is loaded beside the model."""

from __future__ import annotations

from sim.errors import InputError
from sim.layout import Layout
from sim.models.architecture import Architecture
from sim.models.draft import Draft, configured_head, draft_model, feature_head, medusa_heads, mtp_head
from sim.models.loader import load_model
from sim.models.quantization import WeightFormat, resolve_weight_format
from sim.scenario.speculative import Speculative


def draft_of(spec: Speculative | None, target: Architecture, weights: WeightFormat, layout: Layout) -> Draft | None:
    """What proposes drafts on the GPU; None where nothing is there.

    Raises:
        InputError: an unknown draft model, another vocabulary, sizes that do not fit together.
    """
    if spec is None or spec.method in ("ngram", "lookahead"):
        return None
    tensor = spec.draft_tensor_parallel_size or layout.tensor_parallel_size
    if tensor > layout.tensor_parallel_size:
        raise InputError(
            "engine.speculative.draft_tensor_parallel_size",
            f"{tensor} GPUs for the drafter, but {layout.tensor_parallel_size} for the model",
            "leave it null to use the model's",
        )
    if spec.method == "mtp":
        return mtp_head(target, weights, tensor, layout)
    if spec.draft_model is not None:
        arch = _load(spec.draft_model)
        own = resolve_weight_format(arch, spec.draft_quantization)
        if spec.method == "draft_model":
            return draft_model(target, arch, own, tensor)
        return configured_head(target, arch, own, tensor, eagle3=spec.method == "eagle3")
    plain = resolve_weight_format(target, spec.draft_quantization or "none")
    vocab = spec.draft_vocab_size
    if spec.method == "medusa":
        heads, layers = spec.depth, spec.head_layers or 1
        return medusa_heads(target, plain, tensor, heads=heads, layers=layers, vocab_size=vocab)
    assert spec.head_layers is not None
    eagle3 = spec.method == "eagle3"
    return feature_head(target, plain, tensor, layers=spec.head_layers, eagle3=eagle3, vocab_size=vocab)


def _load(name: str) -> Architecture:
    try:
        return load_model(name)
    except InputError as error:
        field = error.field if error.field != "model" else "engine.speculative.draft_model"
        raise InputError(field, error.problem, error.remedy) from None
