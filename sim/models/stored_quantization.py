"""How a checkpoint says that its weights are quantised."""

from __future__ import annotations

from typing import Any

from sim.errors import InputError
from sim.models.config_reader import ConfigReader

# Component names, and the fragments of module names that mean them in an exclusion list.
_FRAGMENTS = {
    "attention": ("self_attn", "attn.", "mixer", "linear_attn"),
    "shared_experts": ("shared_expert",),
    "experts": (".experts",),
}


def stored_quantization(outer: ConfigReader, text: ConfigReader) -> tuple[str | None, tuple[str, ...]]:
    """(name of the weight format, components left in ``stored_dtype``); (None, ()) where nothing is quantised.

    Reads ``quantization_config`` as transformers, compressed-tensors, AutoAWQ, AutoGPTQ, bitsandbytes and ModelOpt
    write it.

    Raises:
        InputError: a method that servecast does not know.
    """
    section = outer.section("quantization_config") or text.section("quantization_config")
    if not section:
        return None, ()
    method = str(section.get("quant_method", "")).lower()
    where = f"{outer.where}.quantization_config"
    if method == "compressed-tensors":
        name = _compressed_tensors(section, where)
    elif method == "modelopt":
        name = str(section.get("quant_algo", "fp8")).lower().replace("_", "")
    elif method in {"awq", "gptq"}:
        name = _grouped(method, ConfigReader(section, where))
    elif method == "bitsandbytes":
        name = _bitsandbytes(section)
    elif method in {"fp8", "fbgemm_fp8"}:
        name = "fp8_block" if section.get("weight_block_size") else "fp8"
    elif method in {"mxfp4", "nvfp4", "int8"}:
        name = method
    else:
        raise InputError(f"{where}.quant_method", f"unknown method {method!r}", "set engine.quantization by hand")
    return name, _left_alone(ConfigReader(section, where))


def _grouped(method: str, section: ConfigReader) -> str:
    bits, group = section.integer("bits", default=4), section.integer("group_size", default=128, minimum=-1)
    if bits == 8:
        return "gptq_int8"
    return method if group == 128 else f"{method}_g{group}"


def _bitsandbytes(section: dict[str, Any]) -> str:
    if section.get("load_in_8bit"):
        return "int8_bnb"
    return "nf4_double" if section.get("bnb_4bit_use_double_quant") else "nf4"


def _compressed_tensors(section: dict[str, Any], where: str) -> str:
    """The scheme of the first configuration group (llm-compressor writes one for all linear layers)."""
    groups = ConfigReader(section, where).section("config_groups")
    group = next(iter(groups.values()), None)
    if not isinstance(group, dict) or not isinstance(group.get("weights"), dict):
        raise InputError(f"{where}.config_groups", "no group with a `weights` entry")
    weights, activations = group["weights"], group.get("input_activations")
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    if kind == "float" and bits == 8:
        return {"tensor": "fp8", "block": "fp8_block"}.get(str(strategy), "fp8_channel")
    if kind == "float" and bits == 4:
        return "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
    if kind == "int" and bits == 8:
        return "int8" if activations else "w8a16"
    if kind == "int" and bits == 4:
        group_size = weights.get("group_size") or 128
        return "w4a16" if group_size == 128 else f"w4a16_g{group_size}"
    raise InputError(where, f"no known format has {bits} bits of type {kind!r}", "set engine.quantization by hand")


def _left_alone(section: ConfigReader) -> tuple[str, ...]:
    """Components that the exclusion list keeps in 16 bit (embeddings, LM head, norms and routers always are)."""
    listed: list[Any] = []
    for key in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"):
        listed += section.items(key)
    text = " ".join(str(entry) for entry in listed)
    return tuple(
        component for component, fragments in _FRAGMENTS.items() if any(fragment in text for fragment in fragments)
    )


def modelopt_quantization(document: Any, where: str) -> tuple[str, tuple[str, ...]]:
    """The same from ModelOpt's ``hf_quant_config.json``.

    Raises:
        InputError: no ``quantization.quant_algo`` in it.
    """
    section = document.get("quantization") if isinstance(document, dict) else None
    if not isinstance(section, dict) or not section.get("quant_algo"):
        raise InputError(f"{where}.quantization.quant_algo", "required, but missing")
    return str(section["quant_algo"]).lower().replace("_", ""), _left_alone(
        ConfigReader(section, f"{where}.quantization")
    )
