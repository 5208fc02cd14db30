"""servecast convert: other tools' documents to ours and back."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reports.convert.flags import ENGINES, SGLANG, TRTLLM, VLLM, Engine, Flag
from reports.convert.serve import (
    ASSUMED_ACCEPTANCE,
    ASSUMED_HOST_LINK_GB_PER_S,
    is_serve_command,
    parse_serve,
    serve_command,
)
from sim import InputError, Scenario

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., tuple[int, str, str]]
WORKLOAD = {"preset": "sharegpt", "num_requests": 10}


def scenario_of(keys: dict[str, Any], preset: str) -> Scenario:
    document: dict[str, Any] = {
        "name": "served",
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "layout": {},
        "engine": {"preset": preset},
        "workload": WORKLOAD,
    }
    for path, value in keys.items():
        section, _, key = path.partition(".")
        document[section][key] = value
    return Scenario.from_dict(document)


# What each key is set to, away from every preset's default.
OTHER = {
    "layout.tensor_parallel_size": 4,
    "layout.pipeline_parallel_size": 2,
    "layout.data_parallel_size": 2,
    "layout.enable_expert_parallel": True,
    "layout.gpus_per_node": 4,
    "layout.all2all_backend": "deepep_low_latency",
    "layout.enable_eplb": True,
    "layout.num_redundant_experts": 32,
    "layout.enable_dbo": True,
    "engine.max_num_seqs": 77,
    "engine.max_num_batched_tokens": 4096,
    "engine.max_model_len": 16384,
    "engine.block_size": 64,
    "engine.gpu_memory_utilization": 0.77,
    "engine.num_gpu_blocks_override": 1234,
    "engine.enable_prefix_caching": False,
    "engine.enable_chunked_prefill": True,
    "engine.long_prefill_token_threshold": 512,
    "engine.scheduling_policy": "priority",
    "engine.scheduler_reserve_full_isl": False,
    "engine.async_scheduling": False,
    "engine.enable_mixed_chunk": True,
    "engine.schedule_policy": "lpm",
    "engine.schedule_conservativeness": 0.5,
    "engine.max_prefill_tokens": 8192,
    "engine.quantization": "fp8",
    "engine.kv_cache_dtype": "fp8",
    "engine.speculative": {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "draft_model": "meta-llama/Llama-3.2-1B",
        "acceptance_rate": ASSUMED_ACCEPTANCE,
    },
    "engine.kv_offload": {"memory_gib": 64.0, "bandwidth_gb_per_s": ASSUMED_HOST_LINK_GB_PER_S},
}
FLAGS = [(engine, flag) for engine in ENGINES for flag in engine.flags if flag.key != "model"]


def there_and_back(scenario: Scenario, engine: Engine) -> Scenario:
    command, left = serve_command(scenario, engine.preset)
    assert left == []
    served = parse_serve(command)
    assert served.unknown == []
    document = {"name": "served", "hardware": "h100-sxm", "workload": WORKLOAD} | served.document()
    return Scenario.from_dict(document)


@pytest.mark.parametrize(("engine", "flag"), FLAGS, ids=lambda value: getattr(value, "preset", None) or value.key)
def test_scenario_to_command_and_back_is_the_identity(engine: Engine, flag: Flag) -> None:
    keys = {flag.key: OTHER[flag.key]}
    if flag.kind == "degree":
        keys["layout.tensor_parallel_size"] = 4
    if flag.key == "engine.enable_chunked_prefill" and engine is VLLM:
        keys = {flag.key: False, "engine.max_num_batched_tokens": 131072}
    scenario = scenario_of(keys, engine.preset)
    assert there_and_back(scenario, engine) == scenario


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.preset)
def test_all_flags_together_are_the_identity(engine: Engine) -> None:
    apart = ("model", "engine.kv_offload")  # tiers need the prefix cache that another flag turns off
    keys = {flag.key: OTHER[flag.key] for flag in engine.flags if flag.key not in apart}
    scenario = scenario_of(keys, engine.preset)
    assert there_and_back(scenario, engine) == scenario


def test_an_offloading_size_is_a_tier_behind_the_link_of_the_device(servecast: Run) -> None:
    text = "vllm serve meta-llama/Llama-3.1-8B -tp 2 --kv-offloading-size 64 --kv-offloading-backend"
    code, out, err = servecast("convert", f"{text} native", "--hardware", "h100-sxm", "--strict")
    assert code == 0
    assert yaml.safe_load(out)["engine"]["kv_offload"] == {"memory_gib": 64.0, "bandwidth_gb_per_s": 64.0}
    assert "datasheet" in err
    code, _, err = servecast("convert", f"{text} lmcache", "--hardware", "h100-sxm", "--strict")
    assert code == 1
    assert "--kv-offloading-backend lmcache" in err


def test_what_no_offloading_flag_says_is_said() -> None:
    one = {"memory_gib": 48.0, "bandwidth_gb_per_s": 20.0}
    command, left = serve_command(scenario_of({"engine.kv_offload": one}, "vllm"), "vllm")
    assert command.endswith("--kv-offloading-size 48")
    assert left == ["engine.kv_offload.bandwidth_gb_per_s"]
    several = [one, {"name": "disk", **one}]
    command, left = serve_command(scenario_of({"engine.kv_offload": several}, "vllm"), "vllm")
    assert "offloading" not in command
    assert left == ["engine.kv_offload"]


@pytest.mark.parametrize(
    "text",
    ["--num-redundant-experts 32", "--eplb-config.num_redundant_experts=32", """--eplb-config '{"window_size": 9}'"""],
)
def test_copies_of_experts_are_read_however_they_are_said(text: str) -> None:
    served = parse_serve(f"vllm serve Qwen/Qwen3-30B-A3B --enable-eplb {text}")
    assert served.unknown == []
    assert served.document()["layout"] == {"enable_eplb": True, "num_redundant_experts": 0 if "window" in text else 32}


def test_an_exchange_that_is_not_modelled_is_not_swallowed() -> None:
    assert parse_serve("vllm serve Qwen/Qwen3-30B-A3B --all2all-backend pplx").unknown == ["--all2all-backend pplx"]
    scenario = scenario_of({"layout.all2all_backend": "deepep_auto"}, "vllm")
    assert serve_command(scenario, "vllm")[1] == ["layout.all2all_backend"]


def test_a_command_as_people_write_it() -> None:
    text = """
    # start the server
    CUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Llama-3.1-8B \\
        -tp 2 --max-model-len=32k --no-enable-prefix-caching \\
        --host 0.0.0.0 --port 8000 --api-key s3cret --enable_chunked_prefill
    """
    served = parse_serve(text)
    assert served.document() == {
        "model": "meta-llama/Llama-3.1-8B",
        "layout": {"tensor_parallel_size": 2},
        "engine": {
            "preset": "vllm",
            "max_model_len": 32_000,
            "enable_prefix_caching": False,
            "enable_chunked_prefill": True,
        },
    }
    assert "--port 8000" in served.idle
    assert "s3cret" not in str(served)


@pytest.mark.parametrize(
    ("text", "preset"),
    [
        ("python3 -m vllm.entrypoints.openai.api_server --model M", "vllm"),
        ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.15.1 --model M", "vllm"),
        ("python -m sglang.launch_server --model-path M --tp 8", "sglang"),
        ("trtllm-serve M --tp_size 4 --max_batch_size 64", "tensorrt-llm"),
        ("trtllm-serve serve M", "tensorrt-llm"),
    ],
)
def test_each_way_to_start_an_engine_is_known(text: str, preset: str) -> None:
    assert is_serve_command(text)
    served = parse_serve(text)
    assert (served.engine.preset, served.keys["model"]) == (preset, "M")


def test_unknown_flags_are_listed_and_not_swallowed(servecast: Run, tmp_path: Path) -> None:
    text = "vllm serve meta-llama/Llama-3.1-8B --frobnicate 3 --tensor-parallel-size 2 --quick"
    code, out, err = servecast("convert", text, "--hardware", "h100-sxm")
    assert code == 0
    for said in (out, err):
        assert "--frobnicate 3, --quick" in said
    assert yaml.safe_load(out)["layout"] == {"tensor_parallel_size": 2}
    assert servecast("convert", text, "--hardware", "h100-sxm", "--strict")[0] == 1


def test_a_gpu_that_is_not_known_is_refused(servecast: Run) -> None:
    code, out, err = servecast("convert", "vllm serve meta-llama/Llama-3.1-8B", "--hardware", "h100-sxn")
    assert (code, out) == (2, "")
    assert "did you mean" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("vllm serve", "names no model"),
        ("vllm serve M --max-num-seqs many", "not a number"),
        ("vllm serve M --max-num-seqs", "has no value"),
        ("vllm serve 'M", "quotes"),
        ("vllm serve M --speculative-config {", "not JSON"),
    ],
)
def test_a_command_that_says_nothing_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_serve(text)


def test_what_an_engine_has_no_flag_for_is_said(servecast: Run, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    scenario = scenario_of({"engine.watermark": 0.1, "engine.max_num_seqs": 9}, "vllm")
    path.write_text(scenario.resolved().to_yaml())
    code, out, err = servecast("convert", path)
    assert code == 0
    assert shlex.split(out)[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-8B"]
    assert "--max-num-seqs 9" in out
    assert "engine.watermark" in err


def test_what_a_speculative_config_does_not_say_is_said(servecast: Run) -> None:
    code, out, err = servecast("convert", ROOT / "examples" / "speculative-lookahead.yaml")
    assert code == 0
    assert "--speculative-config" in out
    assert "no flag of vllm: engine.speculative.accepted_tokens, engine.speculative.window_size" in err
    assert "acceptance_rate" not in err


def test_a_flag_is_in_one_table_once() -> None:
    for engine in (VLLM, SGLANG, TRTLLM):
        names = [name for flag in engine.flags for name in flag.names]
        assert len(names) == len(set(names))
        assert not set(names) & set(engine.idle)


def test_a_source_is_not_written_over(servecast: Run, tmp_path: Path) -> None:
    source = tmp_path / "chat.yaml"
    source.write_text(text := (ROOT / "examples" / "llama-70b-h100.yaml").read_text())
    (tmp_path / "link.yaml").symlink_to(source)
    for out in (source, tmp_path / "link.yaml"):
        code, _, complaint = servecast("convert", source, "--to", "vllm", "--out", out)
        assert (code, source.read_text()) == (2, text)
        assert "is the source itself" in complaint


@pytest.mark.parametrize(
    ("flags", "hardware", "limits"),
    [
        ("", "h100-sxm", (1024, 8192)),
        ("", "a100-sxm-80gb", (256, 2048)),
        ("", "l40s", (256, 2048)),
        ("--max-num-batched-tokens 512", "h200-sxm", (512, 512)),
        ("--max-num-seqs 64", "h100-sxm", (64, 8192)),
    ],
)
def test_a_server_that_is_told_no_limits_takes_those_of_its_gpu(
    flags: str, hardware: str, limits: tuple[int, int], servecast: Run
) -> None:
    _, out, _ = servecast("convert", f"vllm serve meta-llama/Llama-3.1-8B {flags}", "--hardware", hardware)
    engine = yaml.safe_load(out)["engine"]
    assert (engine["max_num_seqs"], engine["max_num_batched_tokens"]) == limits
    command, _ = serve_command(Scenario.from_dict(yaml.safe_load(out)), "vllm")
    assert f"--max-num-seqs {limits[0]} --max-num-batched-tokens {limits[1]}" in command
