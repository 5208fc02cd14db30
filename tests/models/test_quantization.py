"""Formats say their bits honestly, and checkpoints say their format."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import InputError
from sim.models.huggingface import architecture_from_config
from sim.models.loader import catalog_entry, load_model
from sim.models.quantization import resolve_weight_format


def _stored(section: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    config = catalog_entry("Llama-3.1-8B")["config"] | {"quantization_config": section}
    arch = architecture_from_config(config, "x")
    return arch.stored_quantization, arch.stored_unquantized


@pytest.mark.parametrize(
    ("name", "bits", "computes", "family"),
    [
        ("fp8", 8, "fp8", "fp8"),
        ("int8", 8, "int8", "int8"),
        ("awq", 4 + 20 / 128, "bf16", "w4a16"),
        ("gptq_g32", 4 + 20 / 32, "bf16", "w4a16"),
        ("nf4", 4.5, "bf16", "nf4"),
        ("nf4_double", 4 + 1 / 8 + 1 / 512, "bf16", "nf4"),
        ("mxfp4", 4.25, "mxfp4", "mxfp4"),
        ("nvfp4", 4.5, "nvfp4", "nvfp4"),
        ("bf16", 16, "bf16", "bf16"),
    ],
)
def test_bits_include_scales_and_zero_points(name: str, bits: float, computes: str, family: str) -> None:
    found = resolve_weight_format(load_model("Llama-3.1-8B"), name)
    assert (found.bits_per_weight, found.compute_dtype, found.gemm_family) == (pytest.approx(bits), computes, family)


def test_embeddings_head_norms_and_router_stay_in_16_bit() -> None:
    found = resolve_weight_format(load_model("Mixtral-8x7B"), "awq")
    assert {found.bits(part) for part in ("embedding", "lm_head", "norm", "router")} == {16}
    assert found.bits("experts") == found.bits("attention") < 5


def test_none_means_as_stored() -> None:
    assert resolve_weight_format(load_model("DeepSeek-V3"), None).name == "fp8_block"
    assert resolve_weight_format(load_model("Llama-2-7B"), None).name == "fp16"
    gpt_oss = resolve_weight_format(load_model("gpt-oss-20b"), None)
    assert (gpt_oss.name, gpt_oss.bits("attention")) == ("mxfp4", 16)


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq_g32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq_int8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "nf4_double"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8_bnb"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
    ],
)
def test_quantization_config_of_every_method_is_read(section: dict[str, Any], expected: str) -> None:
    assert _stored(section)[0] == expected


@pytest.mark.parametrize(
    ("weights", "activations", "expected"),
    [
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "w8a16"),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}, None, "w4a16"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8}, "fp8"),
        ({"num_bits": 4, "type": "float", "group_size": 16}, {"num_bits": 4}, "nvfp4"),
    ],
)
def test_compressed_tensors_schemes_are_read(weights: dict[str, Any], activations: Any, expected: str) -> None:
    group = {"weights": weights, "input_activations": activations, "targets": ["Linear"]}
    assert _stored({"quant_method": "compressed-tensors", "config_groups": {"group_0": group}})[0] == expected


def test_the_exclusion_list_keeps_attention() -> None:
    section = {"quant_method": "fp8", "modules_to_not_convert": ["lm_head", "model.layers.*.self_attn"]}
    assert _stored(section) == ("fp8", ("attention",))


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(InputError, match=r"quant_method: unknown method 'exl9'"):
        _stored({"quant_method": "exl9"})


def test_a_structure_that_would_be_miscounted_is_refused() -> None:
    config = catalog_entry("Llama-3.1-8B")["config"] | {"model_type": "kimi_linear", "linear_attn_config": {"x": 1}}
    with pytest.raises(InputError, match="does not know this structure"):
        architecture_from_config(config, "x")


def test_an_unknown_family_is_read_like_llama_and_says_so() -> None:
    config = catalog_entry("Llama-3.1-8B")["config"] | {"model_type": "brand_new"}
    arch = architecture_from_config(config, "x")
    assert arch.layers == load_model("Llama-3.1-8B").layers
    assert arch.notes == ("model_type 'brand_new' is read as a Llama-like decoder",)
