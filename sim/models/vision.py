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
    layer = 4 * hidden * (hidden + 1) + 2 * hidden * inner + inner + hidden + 4 * hidden
    positions = (vision.integer("image_size", default=0, minimum=0) // patch) ** 2
    embedding = hidden * (channels * patch * patch + 1 + positions)
    projected = vision.optional_integer("vision_output_dim", "out_hidden_size", "output_dim") or hidden
    return layers * layer + embedding + projected * text_hidden
