"""Presets: their defaults, their own knobs and names, and what is refused with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from sim import InputError, Scenario
from sim.scenario import EngineSpec
from sim.scenario.document import parse_yaml
from sim.scenario.knobs import PolicyKnobs, owned_knobs
from sim.scenario.presets import NATIVE_NAMES, OWNERS, PRESETS

SGLANG = {"schedule_policy": "lpm", "max_prefill_tokens": 4096, "chunked_prefill_size": 2048, "page_size": 16}


def spec(**keys: Any) -> EngineSpec:
    return EngineSpec.parse(keys, "engine")


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_gives_every_key_that_it_has(preset: str) -> None:
    document = spec(preset=preset).model_dump(mode="json")
    assert {key: document[key] for key in PRESETS[preset]} == dict(PRESETS[preset])
    assert set(document) & set(PolicyKnobs.model_fields) == set(owned_knobs(preset))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_resolved_preset_reads_back_as_itself(preset: str) -> None:
    load = {"trace": "requests.csv"}
    base = {"model": "meta-llama/Llama-3.1-8B", "hardware": "h100-sxm", "workload": load}
    scenario = Scenario.from_dict({**base, "engine": {"preset": preset}})
    assert Scenario.from_dict(parse_yaml(scenario.to_yaml(), "")) == scenario.resolved() == scenario


def test_every_knob_has_an_owner_and_every_owner_has_the_knob() -> None:
    assert set(PolicyKnobs.model_fields) <= set(OWNERS)
    for key, owners in OWNERS.items():
        assert [preset for preset in PRESETS if key in PRESETS[preset]] or key in PolicyKnobs.model_fields
        assert all(key in PRESETS[owner] for owner in owners), key


@pytest.mark.parametrize("preset", NATIVE_NAMES)
def test_an_engines_own_names_stand_for_ours(preset: str) -> None:
    for native, ours in NATIVE_NAMES[preset].items():
        value = PRESETS[preset].get(ours, 4096)
        assert spec(**{"preset": preset, native: value}) == spec(**{"preset": preset, ours: value})


def test_names_are_translated_before_they_are_checked() -> None:
    engine = spec(preset="sglang", **SGLANG)
    assert (engine.max_num_batched_tokens, engine.block_size) == (2048, 16)
    assert engine.model_fields_set == {
        "preset", "schedule_policy", "max_prefill_tokens", "max_num_batched_tokens", "block_size"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "field", "reason"),
    [
        ({"schedule_policy": "lpm"}, "schedule_policy", "knob of sglang, and the preset is vllm"),
        ({"preset": "orca", "enable_prefix_caching": True}, "enable_prefix_caching", "sglang, tensorrt-llm and tgi"),
        ({"preset": "sglang", "watermark": 0.1}, "watermark", "knob of vllm, and the preset is sglang"),
        ({"preset": "tgi", "max_queue_delay_s": 1.0}, "max_queue_delay_s", "knob of static"),
        ({"preset": "tgi", "enable_chunked_prefill": True}, "enable_chunked_prefill", "vllm, sglang and tensorrt-llm"),
        ({"max_new_tokens": 100}, "max_new_tokens", "sglang, tensorrt-llm, tgi, orca and static"),
        ({"preset": "tgi", "tokens_per_block": 32}, "tokens_per_block", "with tgi it is block_size"),
        ({"max_batch_prefill_tokens": 512}, "max_batch_prefill_tokens", "with vllm it is max_num_batched_tokens"),
        ({"preset": "tgi", "max_num_tokens": 512}, "max_num_tokens", "with tgi it is max_batch_prefill_tokens"),
        ({"preset": "sglang", "page_size": 16, "block_size": 16}, "page_size", "both are given"),
        ({"preset": "sglang", "page_size": 60}, "max_num_batched_tokens", "not a multiple of the page size 60"),
        ({"preset": "sglang", "schedule_policy": "priority"}, "schedule_policy", "'fcfs' or 'lpm'"),
        ({"preset": "sglangg"}, "preset", "did you mean 'sglang'"),
        ({"version": 0.2}, "version", "put it in quotes"),
    ],
)  # fmt: skip
def test_what_a_preset_does_not_have_is_refused_with_the_reason(keys: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        spec(**keys)
    assert caught.value.field == f"engine.{field}"
    assert reason in str(caught.value)


def test_a_foreign_key_at_the_value_that_means_nothing_is_accepted() -> None:
    assert spec(preset="tgi", watermark=0.0, enable_chunked_prefill=False) == spec(preset="tgi")


@pytest.mark.parametrize(("release", "share"), [(None, 0.9), ("0.20.2", 0.9), ("0.21.0rc1", 0.92), ("0.23", 0.92)])
def test_the_share_of_memory_is_the_default_of_the_release(release: str | None, share: float) -> None:
    assert spec(version=release).gpu_memory_utilization == share
    assert spec(version=release, gpu_memory_utilization=0.9).gpu_memory_utilization == 0.9
    assert spec(preset="sglang", version=release).gpu_memory_utilization == 0.88


@pytest.mark.parametrize("preset", PRESETS)
def test_a_knob_set_to_null_is_the_preset_s(preset: str) -> None:
    assert spec(preset=preset, **dict.fromkeys(PolicyKnobs.model_fields)) == spec(preset=preset)
