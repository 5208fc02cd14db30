from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim import InputError, Scenario, simulate
from sim.scenario.document import dump_yaml, parse_yaml
from sim.scenario.presets import PRESETS
from sim.scenario.support import require_supported


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "chat",
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "workload": {
            "num_requests": 10,
            "arrivals": {"process": "poisson", "rate_per_s": 4.0},
            "prompt_tokens": {"distribution": "constant", "value": 100},
            "output_tokens": {"distribution": "constant", "value": 20},
        },
        **changes,
    }


def test_every_default_of_the_contract_is_filled_in() -> None:
    engine = Scenario.from_dict(document()).engine
    assert engine.model_dump(mode="json") == {
        "preset": "vllm",
        "version": None,
        "sampling": "model",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        "max_model_len": None,
        "block_size": 16,
        "gpu_memory_utilization": 0.9,
        "num_gpu_blocks_override": None,
        "enable_prefix_caching": True,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "scheduling_policy": "fcfs",
        "watermark": 0.0,
        "scheduler_reserve_full_isl": True,
        "async_scheduling": True,
        "quantization": None,
        "kv_cache_dtype": "auto",
        "speculative": None,
        "kv_allocation": "paged",
        "kv_reservation": None,
        "preemption": "recompute",
        "kv_offload": None,
        "swap_space_gib": 4.0,
        "host_link_gb_per_s": None,
        "kv_retention": None,
        "step_time": None,
    }


def test_the_resolved_document_reads_back_as_the_same_scenario() -> None:
    scenario = Scenario.from_dict(document(slo={"ttft_p99_s": 1}))
    again = Scenario.from_dict(parse_yaml(scenario.to_yaml(), ""))
    assert again == scenario == scenario.resolved()
    assert again.to_yaml() == scenario.to_yaml()


def test_the_hash_ignores_order_and_spelling(tmp_path: Path) -> None:
    given = document()
    backwards = dict(reversed(given.items()))
    (tmp_path / "a.yaml").write_text(dump_yaml(given))
    (tmp_path / "b.yaml").write_text(dump_yaml(backwards).replace("rate_per_s: 4.0", "rate_per_s: 0.4e1"))
    (tmp_path / "c.json").write_text(json.dumps(given))
    files = [Scenario.from_file(tmp_path / name) for name in ("a.yaml", "b.yaml", "c.json")]
    assert len({scenario.scenario_hash for scenario in files}) == 1


def test_writing_a_default_down_does_not_change_the_hash() -> None:
    plain, written = Scenario.from_dict(document()), Scenario.from_dict(document(engine={"block_size": 16}))
    assert plain.scenario_hash == written.scenario_hash == plain.resolved().scenario_hash


@pytest.mark.parametrize("change", [{"seed": 1}, {"hardware": "l40s"}, {"engine": {"block_size": 32}}])
def test_any_other_value_changes_the_hash(change: dict[str, Any]) -> None:
    assert Scenario.from_dict(document(**change)).scenario_hash != Scenario.from_dict(document()).scenario_hash


def test_a_trace_is_found_beside_the_scenario_and_hashed_by_content(tmp_path: Path) -> None:
    hashes = []
    for folder, content in (("one", "a"), ("two", "a"), ("three", "b")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "requests.csv").write_text(content)
        (tmp_path / folder / "s.yaml").write_text(dump_yaml(document(workload={"trace": {"path": "requests.csv"}})))
        scenario = Scenario.from_file(tmp_path / folder / "s.yaml")
        assert scenario.workload.trace is not None
        assert scenario.workload.trace.path == str((tmp_path / folder / "requests.csv").resolve())
        hashes.append(scenario.scenario_hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_missing_trace_is_named_when_it_is_hashed(tmp_path: Path) -> None:
    scenario = Scenario.from_dict(document(workload={"trace": {"path": "no.csv"}}), tmp_path)
    with pytest.raises(InputError, match=r"workload.trace.path.*no\.csv"):
        _ = scenario.scenario_hash


def test_a_model_folder_beside_the_scenario_wins_over_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "meta-llama" / "Llama-3.1-8B"
    folder.mkdir(parents=True)
    assert Scenario.from_dict(document(), tmp_path).model == "meta-llama/Llama-3.1-8B"
    (folder / "config.json").write_text("{}")
    assert Scenario.from_dict(document(), tmp_path).model == str(folder.resolve())
    assert Scenario.from_dict(document(hardware="./my.yaml"), tmp_path).hardware == str(tmp_path.resolve() / "my.yaml")


def test_the_name_defaults_to_the_files_stem(tmp_path: Path) -> None:
    given = {key: value for key, value in document().items() if key != "name"}
    (tmp_path / "night-load.yaml").write_text(dump_yaml(given))
    assert Scenario.from_file(tmp_path / "night-load.yaml").name == "night-load"


def test_overrides_are_typed_checked_and_suggest() -> None:
    scenario = Scenario.from_dict(document())
    changed = scenario.with_overrides(["engine.max_num_seqs=8", "workload.arrivals.rate_per_s=1e1", "slo.ttft_p99_s=1"])
    assert changed.engine.max_num_seqs == 8
    assert changed.workload.arrivals is not None
    assert changed.slo.ttft_p99_s == 1
    assert scenario.engine.max_num_seqs == 256
    for override, remedy in (
        ("engine.max_num_seq=8", "did you mean 'max_num_seqs'"),
        ("enginee.block_size=8", "did you mean 'engine'"),
        ("slo.ttft_p98_s=1", "did you mean 'ttft_p99_s'"),
        ("engine.max_num_seqs", "engine.max_num_seqs=128"),
        ("model.name=x", "set model as a whole"),
    ):
        with pytest.raises(InputError, match=remedy):
            scenario.with_overrides([override])


def test_an_override_reaches_into_lists() -> None:
    stages = {"process": "stages", "stages": [{"rate_per_s": 1, "duration_s": 5}, {"rate_per_s": 2, "duration_s": 5}]}
    workload = {key: value for key, value in document()["workload"].items() if key != "num_requests"}
    scenario = Scenario.from_dict(document(workload={**workload, "arrivals": stages}))
    changed = scenario.with_overrides(["workload.arrivals.stages.1.rate_per_s=9"])
    assert changed.given["workload"]["arrivals"]["stages"][1]["rate_per_s"] == 9
    with pytest.raises(InputError, match="'7' is not an index"):
        scenario.with_overrides(["workload.arrivals.stages.7.rate_per_s=9"])


def test_overrides_of_a_copy_start_from_the_copy() -> None:
    copied = Scenario.from_dict(document()).model_copy(update={"seed": 5})
    assert copied.with_overrides(["name=x"]).seed == 5


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine": {"max_num_seqs": 0}}, "engine.max_num_seqs"),
        ({"engine": {"max_num_seqs": "8"}}, "engine.max_num_seqs"),
        ({"engine": {"max_num_seqs": True}}, "engine.max_num_seqs"),
        ({"engine": {"gpu_memory_utilization": 1.5}}, "engine.gpu_memory_utilization"),
        ({"engine": {"watermark": float("nan")}}, "engine.watermark"),
        ({"engine": {"step_time": {"base_us": 0}}}, "engine.step_time.base_us"),
        ({"engine": {"scheduling_policy": "lifo"}}, "engine.scheduling_policy"),
        ({"engine": {"kv_cache_dtype": {"keys": "fp8"}}}, "engine.kv_cache_dtype.keys"),
        ({"layout": {"tensor_parallel_size": 0}}, "layout.tensor_parallel_size"),
        ({"layout": {"tensor_parallel_size": "2"}}, "layout.tensor_parallel_size"),
        ({"layout": {"replicas": True}}, "layout.replicas"),
        ({"engine": None}, "engine"),
        ({"name": "a\nb"}, "name"),
        ({"slo": {"ttft_p99_s": -1}}, "slo.ttft_p99_s"),
        ({"seed": -1}, "seed"),
        ({"modell": "x"}, "modell"),
        ({"model": ""}, "model"),
    ],
)
def test_a_bad_value_is_named_with_its_file(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    (tmp_path / "bad.yaml").write_text(dump_yaml(document(**changes)))
    with pytest.raises(InputError) as caught:
        Scenario.from_file(tmp_path / "bad.yaml")
    assert caught.value.field == f"{tmp_path / 'bad.yaml'}: {field}"


def test_whole_prompts_must_fit_a_step_where_chunking_is_off() -> None:
    engine = {"enable_chunked_prefill": False, "max_model_len": 16384}
    with pytest.raises(InputError, match=r"max_num_batched_tokens.*8192"):
        Scenario.from_dict(document(engine=engine))
    Scenario.from_dict(document(engine={**engine, "max_num_batched_tokens": 16384}))


def test_one_kv_dtype_name_means_keys_and_values() -> None:
    scenario = Scenario.from_dict(document(engine={"kv_cache_dtype": "fp8"}))
    assert (scenario.engine.kv_cache_dtype.key, scenario.engine.kv_cache_dtype.value) == ("fp8", "fp8")
    mixed = scenario.with_overrides(["engine.kv_cache_dtype={key: fp8, value: int8}"])
    assert mixed.engine.model_dump(mode="json")["kv_cache_dtype"] == {"key": "fp8", "value": "int8"}


def test_a_preset_fills_what_was_not_given() -> None:
    scenario = Scenario.from_dict(document(engine={"preset": "vllm", "block_size": 32}))
    assert scenario.engine.block_size == 32
    assert scenario.engine.max_num_seqs == PRESETS["vllm"]["max_num_seqs"]
    assert scenario.engine.model_fields_set == {"preset", "block_size"}


def test_a_comparison_of_budgets_is_no_scenario(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(dump_yaml({"scenario": document(), "variants": [{"name": "a"}]}))
    with pytest.raises(InputError, match="servecast memory"):
        Scenario.from_file(tmp_path / "all.yaml")


@pytest.mark.parametrize(
    ("preset", "size", "why"),
    [
        ("static", "pipeline_parallel_size", "not supported yet"),
        ("tgi", "pipeline_parallel_size", "tensor parallel ranks alone"),
        ("orca", "data_parallel_size", "which has none"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_not_ignored(preset: str, size: str, why: str) -> None:
    scenario = Scenario.from_dict(document())
    require_supported(scenario)
    with pytest.raises(InputError, match=why) as refused:
        require_supported(
            scenario.with_overrides([f"engine.preset={preset}", "layout.tensor_parallel_size=1", f"layout.{size}=2"])
        )
    assert refused.value.field == f"layout.{size}"


def test_bounds_of_the_promise_are_split_by_kind() -> None:
    slo = Scenario.from_dict(document(slo={"ttft_p99_s": 1, "itl_mean_s": 0.05, "goodput_e2e_s": 9})).slo
    assert slo.statistics() == {"ttft_p99_s": ("ttft", "p99", 1), "itl_mean_s": ("itl", "mean", 0.05)}
    assert slo.per_request() == {"e2e": 9}


def test_a_path_may_be_longer_than_a_name(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["snapshots" * 5] * 5)
    assert len(str(folder)) > 200
    assert Scenario.from_dict(document(model=str(folder))).model == str(folder)
    with pytest.raises(InputError, match="name"):
        Scenario.from_dict(document(name=str(folder)))


@pytest.mark.parametrize("given", ["chat.yaml", {"model": "Qwen/Qwen3-8B"}])
def test_what_is_no_scenario_is_not_simulated(given: Any) -> None:
    with pytest.raises(InputError, match="takes a Scenario") as caught:
        simulate(given)
    assert "Scenario.from_file" in caught.value.remedy


def test_a_misspelt_key_is_told_as_that_and_not_as_the_one_that_is_missing() -> None:
    workload = document()["workload"] | {"arrivals": {"process": "poisson", "rate": 4.0}}
    with pytest.raises(InputError, match=r"arrivals\.rate: unknown key"):
        Scenario.parse(document(workload=workload))


def test_all_missing_keys_of_a_section_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"disaggregation\.prefill: required") as caught:
        Scenario.parse(document(cluster={"disaggregation": {}}))
    assert caught.value.remedy == "missing too: decode, transfer_gb_per_s"
