"""From a Hugging Face ``config.json`` to an `Architecture`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.errors import InputError
from sim.models.architecture import Architecture, Attention, LayerRun, Mlp
from sim.models.attention_layers import attention_of_layers
from sim.models.config_reader import ConfigReader
from sim.models.families import FAMILIES, Family
from sim.models.mlp_layers import mlp_of_layers
from sim.models.rotary import longest_sequence, rotary_table_elements
from sim.models.stored_quantization import stored_quantization
from sim.models.vision import extra_params

# Keys of structures that servecast does not know: numbers that ignore them would be wrong.
_UNKNOWN_STRUCTURES = {
    "block_configs": "layers of different widths (NAS)",
    "compress_ratios": "compressed sparse attention",
    "linear_attn_config": "Kimi linear attention",
    "hidden_size_per_layer_input": "per-layer embeddings",
    "num_kv_shared_layers": "layers that share one cache",
    "mlstm_chunk_size": "xLSTM",
    "is_encoder_decoder": "an encoder",
}

_MOST_LAYERS = 10_000
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def architecture_from_config(config: Mapping[str, Any], name: str, where: str = "model.config") -> Architecture:
    """Read any decoder-only model that transformers describes.

    Args:
        config: the parsed ``config.json``; a multimodal one holds the decoder under ``text_config``.
        name: what the model is called.
        where: what errors call the file.

    Raises:
        InputError: a key is missing, malformed or contradicts another.
    """
    outer = ConfigReader(config, where)
    inner = outer.section("text_config") or outer.section("language_config") or dict(config)
    if inner.get("model_type") is None and "text_config" in outer:
        inner = {**inner, "model_type": f"{outer.text('model_type')}_text"}
    model_type = str(inner.get("model_type"))
    family = FAMILIES.get(model_type, Family())
    text = ConfigReader(inner, where if inner == config else f"{where}.text_config", family.defaults)
    _refuse_unknown(text)
    num_layers = text.integer("num_hidden_layers")
    if num_layers > _MOST_LAYERS:
        raise InputError(f"{text.where}.num_hidden_layers", f"{num_layers} layers", f"give at most {_MOST_LAYERS}")
    attention = attention_of_layers(text, family, num_layers)
    runs, order = _group(attention, mlp_of_layers(text, family, num_layers))
    hidden = text.integer("hidden_size")
    quantization, unquantized = stored_quantization(outer, text)
    return Architecture(
        name=name,
        hidden_size=hidden,
        vocab_size=text.integer("vocab_size"),
        layers=runs,
        layer_order=order,
        tie_word_embeddings=text.flag("tie_word_embeddings", default=outer.flag("tie_word_embeddings")),
        max_position_embeddings=longest_sequence(text),
        stored_dtype=_stored_dtype(outer, text),
        stored_quantization=quantization,
        norm_params_per_layer=family.norms * hidden * (2 if family.norm_bias else 1),
        mtp_layers=text.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0, minimum=0),
        extra_params=extra_params(outer, hidden),
        stored_unquantized=unquantized,
        lm_head_bias=family.lm_head_bias,
        final_norm_params=hidden * (2 if family.norm_bias else 1),
        rope_cache_elements=rotary_table_elements(text, attention),
        notes=() if model_type in FAMILIES else (f"model_type {model_type!r} is read as a Llama-like decoder",),
    )


def _refuse_unknown(text: ConfigReader) -> None:
    """Raise `InputError` for a structure that would be silently miscounted."""
    for key, meaning in _UNKNOWN_STRUCTURES.items():
        if text.raw(key):
            raise InputError(
                f"{text.where}.{key}",
                f"{meaning}: servecast does not know this structure (model_type {text.text('model_type')!r})",
                "use a model of a known family: " + ", ".join(sorted(FAMILIES)),
            )


def _group(attention: list[Attention | None], mlp: list[Mlp | None]) -> tuple[tuple[LayerRun, ...], tuple[int, ...]]:
    """Equal layers as one `LayerRun`, and the order of the runs inside the model."""
    makes = list(zip(attention, mlp, strict=True))
    index = {make: position for position, make in enumerate(dict.fromkeys(makes))}
    order = tuple(index[make] for make in makes)
    runs = tuple(LayerRun(order.count(position), *make) for make, position in index.items())
    return runs, order


def _stored_dtype(outer: ConfigReader, text: ConfigReader) -> str:
    named = text.text("torch_dtype") or text.text("dtype") or outer.text("torch_dtype") or outer.text("dtype")
    return _DTYPES.get(named, "bf16")
