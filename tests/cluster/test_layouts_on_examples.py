"""Every kind of layout on examples: one event a step gives the same requests as time by change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from sim import Scenario, simulate

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPERTS = {"data_parallel_size": 4, "enable_expert_parallel": True}


def apart(prefill: dict[str, Any], decode: dict[str, Any], overlap: str = "none") -> dict[str, Any]:
    return {
        "disaggregation": {
            "prefill": {"replicas": 1, "layout": prefill},
            "decode": {"replicas": 2, "layout": decode},
            "transfer_gb_per_s": 50,
            "overlap": overlap,
        }
    }


TP4, PP2 = {"tensor_parallel_size": 4}, {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
FAILURE = {
    "load_time_s": 2,
    "events": [{"at_s": 2, "action": "fail", "replica": 0}, {"at_s": 2.5, "action": "recover", "replica": 0}],
}
LAYOUTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "tp over two nodes": ("llama-70b-h100", {"tensor_parallel_size": 8, "gpus_per_node": 4}, {}),
    "sequence parallel": ("llama-70b-h100", {**TP4, "sequence_parallel": True}, {}),
    "tp x pp x replicas": ("llama-70b-h100", {**PP2, "replicas": 2}, {"router": "power_of_two"}),
    "uneven stages": (
        "llama-70b-h100",
        {"tensor_parallel_size": 1, "pipeline_parallel_size": 4, "pp_layer_partition": [19, 21, 21, 19]},
        {},
    ),
    "tp x dp, dense": ("llama-70b-h100", {**TP4, "data_parallel_size": 2}, {"router": "least_loaded"}),
    "ep": ("mixtral-prefix", {**TP4, "enable_expert_parallel": True}, {}),
    "ep x pp": ("mixtral-prefix", {**PP2, "enable_expert_parallel": True}, {}),
    "dp, experts in slices": ("mixtral-prefix", {"tensor_parallel_size": 2, "data_parallel_size": 2}, {}),
    "dp x ep": ("mixtral-prefix", EXPERTS, {"router": "cache_aware"}),
    "dp x ep in two halves": (
        "mixtral-prefix",
        {**EXPERTS, "all2all_backend": "deepep_low_latency", "enable_dbo": True},
        {},
    ),
    "dp x ep x pp": ("mixtral-prefix", {**EXPERTS, "pipeline_parallel_size": 2}, {"router": "least_loaded"}),
    "tp x dp x ep x pp, in two halves": (
        "mixtral-prefix",
        {
            "tensor_parallel_size": 2,
            "pipeline_parallel_size": 4,
            "data_parallel_size": 2,
            "enable_expert_parallel": True,
            "all2all_backend": "deepep_auto",
            "enable_dbo": True,
        },
        {},
    ),
    "dp x pp, experts in slices": ("mixtral-prefix", {"pipeline_parallel_size": 4, "data_parallel_size": 2}, {}),
    "dp x ep x pp x replicas, one fails": (
        "mixtral-prefix",
        {**EXPERTS, "pipeline_parallel_size": 2, "replicas": 2},
        FAILURE,
    ),
    "dp x ep x replicas, one fails": ("mixtral-prefix", {**EXPERTS, "replicas": 2}, FAILURE),
    "pipelines, one fails": ("llama-70b-h100", {**PP2, "replicas": 2}, FAILURE),
    "apart": ("llama-70b-h100", {}, apart(TP4, PP2, "layerwise")),
    "apart, experts on ranks": ("mixtral-prefix", {}, apart(PP2, EXPERTS)),
    "apart, experts on ranks over stages": (
        "mixtral-prefix",
        {},
        apart({**EXPERTS, "pipeline_parallel_size": 2}, {**PP2, "data_parallel_size": 2}, "layerwise"),
    ),
}


STAGES = {**EXPERTS, "pipeline_parallel_size": 2}
IN_ONE_PIECE = {"kv_allocation": "contiguous", "kv_reservation": "request", "enable_prefix_caching": False}
ENGINES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "pipeline of SGLang": ("llama-70b-h100", PP2, {}, {"preset": "sglang"}),
    "pipeline of Orca": ("llama-70b-h100", PP2, {}, {"preset": "orca", "max_num_seqs": 8}),
    "pipeline of TensorRT-LLM": ("llama-70b-h100", PP2, {}, {"preset": "tensorrt-llm"}),
    "ranks over stages of SGLang": ("mixtral-prefix", STAGES, {}, {"preset": "sglang"}),
    "ranks over stages of TensorRT-LLM": ("mixtral-prefix", STAGES, {}, {"preset": "tensorrt-llm"}),
    "SGLang apart": ("llama-70b-h100", {}, apart(PP2, PP2), {"preset": "sglang"}),
    "experts on ranks, with drafts": (
        "deepseek-v3-h200",
        {"data_parallel_size": 8, "enable_expert_parallel": True},
        {},
        {"speculative": {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.85}},
    ),
    "experts on ranks over stages, with drafts": (
        "deepseek-v3-h200",
        {"data_parallel_size": 8, "enable_expert_parallel": True, "pipeline_parallel_size": 2},
        {},
        {"speculative": {"method": "mtp", "num_speculative_tokens": 1, "acceptance_rate": 0.85}},
    ),
    "apart, with drafts": (
        "deepseek-v3-h200",
        {},
        apart({"tensor_parallel_size": 8}, {"data_parallel_size": 8, "enable_expert_parallel": True}),
        {"speculative": {"method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.85}},
    ),
    "evicted prefixes in the host, over stages": (
        "mixtral-prefix",
        {"pipeline_parallel_size": 2},
        {},
        {"kv_offload": [{"name": "host", "memory_gib": 64, "bandwidth_gb_per_s": 25}], "num_gpu_blocks_override": 1200},
    ),
    "evicted prefixes in the host, over ranks and stages": (
        "mixtral-prefix",
        STAGES,
        {},
        {"kv_offload": [{"name": "host", "memory_gib": 64, "bandwidth_gb_per_s": 25}], "num_gpu_blocks_override": 1200},
    ),
    "a part of the cache kept, over stages": (
        "llama-70b-h100",
        PP2,
        {},
        {"enable_prefix_caching": False, "kv_retention": {"policy": "h2o", "budget_tokens": 512}},
    ),
    "contiguous memory over stages": ("llama-70b-h100", PP2, {}, IN_ONE_PIECE),
    "contiguous memory over ranks and stages": ("mixtral-prefix", STAGES, {}, IN_ONE_PIECE),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_serves_an_example_whether_it_jumps_or_not(name: str) -> None:
    serves_alike(*LAYOUTS[name])


@pytest.mark.parametrize("name", ENGINES)
def test_other_engines_and_memories_spread_as_well(name: str) -> None:
    serves_alike(*ENGINES[name])


def serves_alike(
    example: str, layout: dict[str, Any], cluster: dict[str, Any], engine: dict[str, Any] | None = None
) -> None:
    document = yaml.safe_load((EXAMPLES / f"{example}.yaml").read_text())
    document |= {"layout": layout, "cluster": cluster, "engine": {**document.get("engine", {}), **(engine or {})}}
    document["workload"]["num_requests"] = 80
    scenario = Scenario.from_dict(document, EXAMPLES)
    jumped, stepped = simulate(scenario), simulate(scenario, exact=True)
    assert jumped.summary.requests.completed == 80
    for column in ("scheduled_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(jumped.requests[column], stepped.requests[column], rtol=1e-9)
    for column in ("replica", "cached_tokens", "attempts", "preemptions"):
        np.testing.assert_array_equal(jumped.requests[column], stepped.requests[column])
    assert jumped.summary.simulation.events < stepped.summary.simulation.events
