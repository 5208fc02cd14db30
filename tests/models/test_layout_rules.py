"""Layouts that cannot be: each refused by its key, with the nearest that can."""

from __future__ import annotations

from typing import Any

import pytest

from sim.errors import InputError
from sim.layout import Layout
from sim.models.loader import load_model
from sim.models.sharding import check_layout

MOE = "deepseek-ai/DeepSeek-V3"
DENSE = "meta-llama/Llama-3.1-8B"
EXPERTS = {"data_parallel_size": 8, "enable_expert_parallel": True}


@pytest.mark.parametrize(
    ("model", "layout", "key", "remedy"),
    [
        (DENSE, {"tensor_parallel_size": 3}, "tensor_parallel_size", "1, 2, 4, 8, 16, 32"),
        (DENSE, {"tensor_parallel_size": 8, "gpus_per_node": 5}, "tensor_parallel_size", "use 5 or 10, or at most 5"),
        (DENSE, {"enable_expert_parallel": True}, "enable_expert_parallel", "leave it out"),
        (DENSE, {"expert_load": {"distribution": "balanced"}}, "expert_load", "leave it out"),
        (DENSE, {"pipeline_parallel_size": 33}, "pipeline_parallel_size", "at most 32"),
        (DENSE, {"pp_layer_partition": [20, 20], "pipeline_parallel_size": 2}, "pp_layer_partition", "[16, 16]"),
        (MOE, {"enable_eplb": True}, "enable_eplb", "enable_expert_parallel"),
        (MOE, {**EXPERTS, "num_redundant_experts": 8}, "num_redundant_experts", "enable_eplb"),
        (MOE, {**EXPERTS, "enable_eplb": True, "num_redundant_experts": 30}, "num_redundant_experts", "use 32"),
        (MOE, {"enable_dbo": True}, "enable_dbo", "data_parallel_size above 1"),
        (MOE, {"all2all_backend": "deepep_auto"}, "all2all_backend", "data_parallel_size above 1"),
        (MOE, {"data_parallel_size": 512, "enable_expert_parallel": True}, "enable_expert_parallel", "at most 256"),
        (
            MOE,
            {**EXPERTS, "expert_load": {"distribution": "histogram", "counts": [1.0] * 255}},
            "expert_load.counts",
            "give 256 counts",
        ),
        (MOE, {**EXPERTS, "expert_load": {"distribution": "histogram"}}, "expert_load.counts", "give 256 counts"),
        (
            MOE,
            {**EXPERTS, "expert_load": {"distribution": "power_law", "counts": [1.0] * 256}},
            "expert_load.counts",
            "leave them out",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused_with_what_can(
    model: str, layout: dict[str, Any], key: str, remedy: str
) -> None:
    with pytest.raises(InputError) as error:
        check_layout(load_model(model), Layout.parse(layout))
    assert error.value.field == f"layout.{key}"
    assert remedy in (error.value.remedy or "")


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor_parallel_size": 16},
        {"data_parallel_size": 144, "enable_expert_parallel": True, "enable_eplb": True, "num_redundant_experts": 32},
        {"tensor_parallel_size": 4, "enable_expert_parallel": True},
        {"tensor_parallel_size": 2, "gpus_per_node": 1},
    ],
)
def test_what_can_be_passes(layout: dict[str, Any]) -> None:
    check_layout(load_model(MOE), Layout.parse(layout))
