"""One way to ask for a budget, shared by the memory tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sim.layout import Layout
from sim.models.kv_format import resolve_kv_format
from sim.models.loader import load_model
from sim.models.memory import MemoryBudget, memory_budget
from sim.models.quantization import resolve_weight_format

Ask = Callable[..., MemoryBudget]
H100_BYTES = 84_944_093_184  # 79.11 GiB, what the driver reports


def _ask(model: str, memory_bytes: float = H100_BYTES, **given: Any) -> MemoryBudget:
    arch = load_model(model)
    layout = Layout(
        tensor_parallel_size=given.pop("tp", 1),
        pipeline_parallel_size=given.pop("pp", 1),
        data_parallel_size=given.pop("dp", 1),
        enable_expert_parallel=given.pop("ep", False),
    )
    defaults = {"max_num_batched_tokens": 2048, "max_num_seqs": 128, "max_model_len": 4096}
    return memory_budget(
        arch,
        int(memory_bytes),
        layout,
        weight_format=resolve_weight_format(arch, given.pop("quantization", None)),
        kv_format=resolve_kv_format(arch, given.pop("kv", "auto")),
        **(defaults | given),
    )


@pytest.fixture
def ask() -> Ask:
    return _ask
