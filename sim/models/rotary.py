"""Rotary scaling of a configuration: how long sequences may be, and how large the tables that the engine keeps are."""

from __future__ import annotations

from collections.abc import Iterable

from sim.models.architecture import Attention
from sim.models.attention_layers import head_dim
from sim.models.config_reader import ConfigReader

# Rotary scalings whose `factor` is already inside max_position_embeddings.
_SCALED_IN_PLACE = {"llama3", "longrope", "su", "mrope", "default", "proportional", "yarn_in_place"}


def longest_sequence(text: ConfigReader) -> int:
    """Longest sequence the model takes, as the engine derives it: YaRN stretches its original length."""
    longest, scaling = _positions(text), _scaling(text)
    kind, factor = _kind(scaling), scaling.number("factor")
    if kind in _SCALED_IN_PLACE or factor <= 1 or text.text("model_type").startswith("gemma3"):
        return longest
    if kind == "yarn":
        return int(scaling.integer("original_max_position_embeddings", default=longest) * factor)
    return int(longest * factor)


def rotary_table_elements(text: ConfigReader, attention: Iterable[Attention | None]) -> int:
    """Elements of the cosine and sine tables the engine keeps: positions x rotary dimensions, one a rotary kind.

    A linear scaling stretches its table by the factor, also where the model takes no longer sequences for it (Gemma 3);
    LongRoPE keeps a table for short and one for long sequences; a proportional one spans the whole head (vLLM,
    model_executor/layers/rotary_embedding).
    """
    layers = {layer.kind: layer for layer in attention if layer is not None and layer.kind != "linear"}
    if not layers:
        return 0
    scaling = _scaling(text)
    apart = [kind for kind in layers if f"{kind}_attention" in scaling]
    if apart:
        return sum(
            _table(text, _section(scaling, f"{kind}_attention"), layers[kind].head_dim, partial=1.0) for kind in apart
        )
    latent = next(iter(layers.values())).qk_rope_head_dim
    partial = 1.0 if latent else text.number("partial_rotary_factor")
    elements = _table(text, scaling, latent or head_dim(text), partial)
    if "rope_local_base_freq" in text or text.text("model_type").startswith("gemma3"):
        elements += _positions(text) * head_dim(text)
    return elements


def _table(text: ConfigReader, scaling: ConfigReader, head: int, partial: float) -> int:
    kind = _kind(scaling)
    rotary = head if kind == "proportional" else int(head * scaling.number("partial_rotary_factor", default=partial))
    if kind == "linear":
        return int(_positions(text) * scaling.number("factor")) * rotary
    positions = longest_sequence(text)
    if kind in {"longrope", "su"}:
        key = "original_max_position_embeddings"
        positions += text.optional_integer(key) or scaling.optional_integer(key) or 0
    return positions * rotary


def _positions(text: ConfigReader) -> int:
    return text.integer("max_position_embeddings", "max_seq_len", "model_max_length", default=2048)


def _scaling(text: ConfigReader) -> ConfigReader:
    return _section(text, "rope_scaling" if text.section("rope_scaling") else "rope_parameters")


def _section(reader: ConfigReader, key: str) -> ConfigReader:
    return ConfigReader(reader.section(key), f"{reader.where}.{key}")


def _kind(scaling: ConfigReader) -> str:
    return scaling.text("rope_type") or scaling.text("type", default="default")
