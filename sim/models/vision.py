"""Parameters beside the decoder: the vision tower and its projector."""

from __future__ import annotations

from sim.models.config_reader import ConfigReader


def extra_params(outer: ConfigReader, text_hidden: int) -> int:
    """Parameters of a ViT-like tower and a linear projector into the decoder; 0 where the model reads text alone.

    Source: layer layout of CLIP/SigLIP encoders in transformers (q, k, v, o and a two-matrix MLP, all with biases).
    """
    section = outer.section("vision_config")
    if not section:
        return 0
    vision = ConfigReader(section, f"{outer.where}.vision_config")
    hidden = vision.optional_integer("hidden_size")
    layers = vision.optional_integer("num_hidden_layers", "depth")
    inner = vision.optional_integer("intermediate_size")
    if not (hidden and layers and inner):
        return 0
    patch = vision.integer("patch_size", default=14)
    channels = vision.integer("num_channels", "in_channels", default=3)
    matrices = 3 if vision.text("model_type").startswith("gemma4") else 2
    layer = 4 * hidden * (hidden + 1) + matrices * hidden * inner + inner + hidden + 4 * hidden
    image = vision.optional_integer("image_size")
    positions = vision.optional_integer("num_position_embeddings", "position_embedding_size")
    positions = (image // patch) ** 2 if image else positions or 0
    embedding = hidden * (channels * patch * patch + 1 + positions)
    projected = vision.optional_integer("vision_output_dim", "out_hidden_size", "output_dim") or hidden
    return layers * layer + embedding + _adapter_params(vision, hidden) + projected * text_hidden


def _adapter_params(vision: ConfigReader, hidden: int) -> int:
    """Llama 4 and Qwen fold neighbouring patches into one token with a two-matrix MLP."""
    if "pixel_shuffle_ratio" in vision:
        folded = round(hidden / vision.number("pixel_shuffle_ratio") ** 2)
        inner = vision.integer("projector_input_dim")
        return folded * inner + inner * vision.integer("projector_output_dim")
    if "spatial_merge_size" in vision:
        folded = hidden * vision.integer("spatial_merge_size") ** 2
        return folded * folded
    return 0
