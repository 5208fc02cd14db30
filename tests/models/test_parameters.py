"""Parameters counted from a configuration equal the published number."""

from __future__ import annotations

from typing import Literal

import pytest

from sim.models.loader import catalog_names, load_model
from sim.models.parameters import active_params, mtp_params, total_params

Counted = Literal["served", "with_mtp", "text"]

# Billions, three figures, as the model's Hugging Face page shows them (from the headers of its safetensors files).
HUB: dict[str, float] = {
    "meta-llama/Llama-2-7b-hf": 6.74,
    "meta-llama/Llama-2-13b-hf": 13.0,
    "meta-llama/Llama-2-70b-hf": 69.0,
    "meta-llama/Meta-Llama-3-8B": 8.03,
    "meta-llama/Meta-Llama-3-70B": 70.6,
    "meta-llama/Llama-3.1-8B": 8.03,
    "meta-llama/Llama-3.1-70B": 70.6,
    "meta-llama/Llama-3.1-405B": 406,
    "meta-llama/Llama-3.2-1B": 1.24,
    "meta-llama/Llama-3.2-3B": 3.21,
    "meta-llama/Llama-3.3-70B-Instruct": 70.6,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 109,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 402,
    "RedHatAI/Llama-4-Scout-17B-16E-Instruct-FP8-dynamic": 109,
    "codellama/CodeLlama-7b-Instruct-hf": 6.74,
    "codellama/CodeLlama-13b-Instruct-hf": 13.0,
    "codellama/CodeLlama-34b-Instruct-hf": 33.7,
    "codellama/CodeLlama-70b-Instruct-hf": 69.0,
    "mistralai/Mistral-7B-v0.1": 7.24,
    "mistralai/Mistral-7B-Instruct-v0.3": 7.25,
    "mistralai/Mistral-Nemo-Instruct-2407": 12.2,
    "mistralai/Mistral-Small-24B-Instruct-2501": 23.6,
    "mistralai/Mistral-Large-Instruct-2407": 123,
    "mistralai/Mixtral-8x7B-v0.1": 46.7,
    "mistralai/Mixtral-8x22B-v0.1": 141,
    "Qwen/Qwen2.5-0.5B-Instruct": 0.494,
    "Qwen/Qwen2.5-1.5B-Instruct": 1.54,
    "Qwen/Qwen2.5-3B-Instruct": 3.09,
    "Qwen/Qwen2.5-7B-Instruct": 7.62,
    "Qwen/Qwen2.5-14B-Instruct": 14.8,
    "Qwen/Qwen2.5-32B-Instruct": 32.8,
    "Qwen/Qwen2.5-72B-Instruct": 72.7,
    "Qwen/Qwen3-4B": 4.02,
    "Qwen/Qwen3-8B": 8.19,
    "Qwen/Qwen3-14B": 14.8,
    "Qwen/Qwen3-32B": 32.8,
    "Qwen/Qwen3-30B-A3B": 30.5,
    "Qwen/Qwen3-235B-A22B": 235,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480,
    "google/gemma-2-2b-it": 2.61,
    "google/gemma-2-9b-it": 9.24,
    "google/gemma-2-27b-it": 27.2,
    "google/gemma-3-1b-it": 1.00,
    "google/gemma-3-4b-it": 4.30,
    "google/gemma-3-12b-it": 12.2,
    "google/gemma-3-27b-it": 27.4,
    "deepseek-ai/DeepSeek-V2-Lite": 15.7,
    "deepseek-ai/DeepSeek-V2": 236,
    "moonshotai/Kimi-K2-Instruct": 1030,
    "microsoft/phi-2": 2.78,
    "microsoft/Phi-3-mini-4k-instruct": 3.82,
    "microsoft/Phi-3-medium-4k-instruct": 14.0,
    "microsoft/phi-4": 14.7,
    "microsoft/Phi-3.5-MoE-instruct": 41.9,
    "01-ai/Yi-6B": 6.06,
    "01-ai/Yi-34B": 34.4,
    "MiniMaxAI/MiniMax-M2.5": 229,
}
# The same, multi-token-prediction heads inside.
HUB_WITH_MTP: dict[str, float] = {
    "deepseek-ai/DeepSeek-R1": 685,
    "deepseek-ai/DeepSeek-V3.2": 685,
    "zai-org/GLM-4.5": 358,
    "zai-org/GLM-4.5-Air": 110.5,
}
# Stated by the makers: (billions, where, what is counted).
STATED: dict[str, tuple[float, str, Counted]] = {
    "Qwen/Qwen3-0.6B": (0.596, "Qwen3 technical report, arXiv 2505.09388: 0.6B, 0.44B without embedding", "served"),
    "Qwen/Qwen3-1.7B": (1.72, "Qwen3 technical report, arXiv 2505.09388: 1.7B, 1.4B without embedding", "served"),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (80.0, "model card: 80B in total", "served"),
    "Qwen/Qwen3.5-35B-A3B": (35.0, "model card: 35B in total", "served"),
    "google/gemma-4-26B-A4B-it": (25.2, "Gemma 4 model card: 25.2B, vision encoder apart", "text"),
    "google/gemma-4-31B-it": (30.7, "Gemma 4 model card: 30.7B, vision encoder apart", "text"),
    "deepseek-ai/DeepSeek-V3": (671.0, "arXiv 2412.19437: 671B, multi-token prediction apart", "served"),
    "openai/gpt-oss-20b": (20.91, "gpt-oss model card, arXiv 2508.10925, table 1", "served"),
    "openai/gpt-oss-120b": (116.83, "gpt-oss model card, arXiv 2508.10925, table 1", "served"),
    "nvidia/Nemotron-H-56B-Base-8K": (56.3, "arXiv 2504.03624", "served"),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31.6, "Nemotron 3 Nano technical report: 31.6B", "served"),
}
PUBLISHED: list[tuple[str, float, Counted]] = [
    *((name, billions, "served") for name, billions in HUB.items()),
    *((name, billions, "with_mtp") for name, billions in HUB_WITH_MTP.items()),
    *((name, billions, counted) for name, (billions, _, counted) in STATED.items()),
]


@pytest.mark.parametrize(("name", "billions", "counted"), PUBLISHED)
def test_count_is_within_half_a_percent_of_the_published_one(name: str, billions: float, counted: Counted) -> None:
    arch = load_model(name)
    apart = {"served": 0, "with_mtp": mtp_params(arch), "text": -arch.extra_params}
    assert (total_params(arch) + apart[counted]) / 1e9 == pytest.approx(billions, rel=0.005)


def test_every_architecture_of_the_catalogue_has_a_published_count() -> None:
    published = {load_model(name).layers for name, _, _ in PUBLISHED}
    assert {load_model(name).layers for name in catalog_names()} == published
    assert len(published) >= 40


@pytest.mark.parametrize(
    ("name", "billions", "embedding_counts"),
    [
        ("openai/gpt-oss-120b", 5.13, False),
        ("openai/gpt-oss-20b", 3.61, False),
        ("deepseek-ai/DeepSeek-V3", 37.0, True),
        ("mistralai/Mixtral-8x7B-v0.1", 12.9, True),
    ],
)
def test_active_parameters_count_only_the_chosen_experts(name: str, billions: float, embedding_counts: bool) -> None:
    arch = load_model(name)
    left_out = 0 if embedding_counts else arch.vocab_size * arch.hidden_size
    assert (active_params(arch) - left_out) / 1e9 == pytest.approx(billions, rel=0.02)
