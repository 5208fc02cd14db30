"""Models are found by name, alias or path, and what is not found is answered with a suggestion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sim.errors import InputError
from sim.models.loader import catalog_entry, catalog_names, load_model


def test_every_catalogue_model_loads_and_names_its_source() -> None:
    for name in catalog_names():
        assert load_model(name).name == name
        assert catalog_entry(name)["source"].startswith("https://")


@pytest.mark.parametrize(
    "spelling", ["meta-llama/Llama-3.1-70B", "LLAMA-3.1-70B", "meta-llama/Llama-3.1-70B-Instruct", " llama-3.1-70b "]
)
def test_case_organisation_and_variant_do_not_matter(spelling: str) -> None:
    assert load_model(spelling).name == "meta-llama/Llama-3.1-70B"


def test_a_config_json_and_its_folder_give_the_same_model(tmp_path: Path) -> None:
    config = catalog_entry("Qwen3-32B")["config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    from_file, from_folder = load_model(str(tmp_path / "config.json")), load_model(str(tmp_path))
    assert from_file == from_folder
    assert from_file.layers == load_model("Qwen/Qwen3-32B").layers


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"did you mean 'llama-3\.1-70b'"):
        load_model("lama-3.1-70bb")


@pytest.mark.parametrize("name", ["", "  ", "./nowhere/config.json", "/no/such/folder"])
def test_nothing_there_is_said_plainly(name: str) -> None:
    with pytest.raises(InputError, match=r"^model: "):
        load_model(name)


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        load_model(str(tmp_path))


def test_broken_json_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{\n "a": }')
    with pytest.raises(InputError, match=r"config\.json:2: is not valid JSON"):
        load_model(str(tmp_path))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": [{}] * 32}, "layer_types"),
        ({"num_hidden_layers": 2**40}, "num_hidden_layers"),
        ({"hidden_size": 1e300}, "hidden_size"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e300}}, r"rope_scaling\.factor"),
        ({"quantization_config": {"quant_method": "gptq", "bits": "four"}}, r"quantization_config\.bits"),
        ({"quantization_config": {"quant_method": "fp8", "ignored_layers": 7}}, "ignored_layers"),
        ({"quantization_config": {"quant_method": "compressed-tensors", "config_groups": "x"}}, "config_groups"),
    ],
)
def test_a_bad_key_is_named(tmp_path: Path, change: dict[str, object], named: str) -> None:
    config = catalog_entry("Llama-3.1-8B")["config"] | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=named):
        load_model(str(tmp_path))
