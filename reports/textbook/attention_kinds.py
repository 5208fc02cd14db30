"""Multi-head, grouped-query, multi-query and latent attention on the same GPU under the same load."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, INK
from reports.textbook.bars import value_bars
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LLAMA, DEEPSEEK = "Llama 3.1 8B", "DeepSeek-V2-Lite"
MODELS: Final = {LLAMA: "meta-llama/Llama-3.1-8B", DEEPSEEK: "deepseek-ai/DeepSeek-V2-Lite"}
HEADS: Final[dict[str, Any]] = {"kv_lora_rank": None, "q_lora_rank": None, "head_dim": 128}
KINDS: Final[dict[tuple[str, str], dict[str, Any] | None]] = {
    (LLAMA, "MHA, 32 KV heads"): {"num_key_value_heads": 32},
    (LLAMA, "GQA, 8 KV heads"): None,
    (LLAMA, "MQA, 1 KV head"): {"num_key_value_heads": 1},
    (DEEPSEEK, "MHA, 16 KV heads"): {**HEADS, "num_key_value_heads": 16},
    (DEEPSEEK, "GQA, 4 KV heads"): {**HEADS, "num_key_value_heads": 4},
    (DEEPSEEK, "MLA"): None,
}


@dataclass(frozen=True, slots=True)
class Run:
    """Bytes of a cached token, tokens that fit, requests in the batch, output tokens a second."""

    bytes_per_token: int
    capacity_tokens: int
    batch: float
    tokens_per_s: float


def scenario(model: str) -> dict[str, Any]:
    """One H100, 1,500 requests at once, prompts of 1,000 and answers of 1,000 tokens."""
    return {
        "name": "attention",
        "model": model,
        "hardware": "h100-sxm",
        "engine": {"max_model_len": 8192, "max_num_seqs": 1024, "enable_prefix_caching": False},
        "workload": {
            "num_requests": 1500,
            "arrivals": {"process": "poisson", "rate_per_s": 10_000.0},
            "prompt_tokens": {"distribution": "constant", "value": 1000},
            "output_tokens": {"distribution": "constant", "value": 1000},
        },
    }


def run(model: str, changes: dict[str, Any] | None) -> Run:
    """Simulate a model of the catalogue, or the same decoder with other heads."""
    from sim import Scenario, simulate
    from sim.models.loader import catalog_entry

    with tempfile.TemporaryDirectory() as folder:
        if changes is not None:
            config = Path(folder) / "config.json"
            config.write_text(json.dumps({**catalog_entry(model)["config"], **changes}))
            model = str(config)
        summary = simulate(Scenario.from_dict(scenario(model))).summary
    kv = summary.kv
    return Run(
        int(kv.bytes_per_token or 0),
        kv.capacity_tokens,
        float(summary.utilization.mean_batch_size or 0),
        float(summary.throughput.output_tokens_per_s or 0),
    )


def measure(traces: Path | None) -> Measured:
    """Every kind of attention."""
    runs = {(name, kind): run(MODELS[name], changes) for (name, kind), changes in KINDS.items()}
    mha, gqa, mqa = (runs[key] for key in list(KINDS)[:3])
    heads, grouped, latent = (runs[key] for key in list(KINDS)[3:])
    return Measured(
        {
            "gqa_bytes_of_mha": gqa.bytes_per_token / mha.bytes_per_token,
            "gqa_requests_over_mha": gqa.batch / mha.batch,
            "gqa_throughput_over_mha": gqa.tokens_per_s / mha.tokens_per_s,
            "mqa_throughput_over_gqa": mqa.tokens_per_s / gqa.tokens_per_s,
            "mla_bytes_of_mha": latent.bytes_per_token / heads.bytes_per_token,
            "mla_bytes_of_gqa": latent.bytes_per_token / grouped.bytes_per_token,
            "mla_requests_over_mha": latent.batch / heads.batch,
            "mla_requests_over_gqa": latent.batch / grouped.batch,
            "mla_throughput_over_mha": latent.tokens_per_s / heads.tokens_per_s,
            "mla_throughput_over_gqa": latent.tokens_per_s / grouped.tokens_per_s,
        },
        runs,
    )


def table(measured: Measured) -> str:
    """A row a kind; factors are over the multi-head form of the same decoder."""
    rows = []
    for (name, kind), each in measured.series.items():
        first = next(run for (other, _), run in measured.series.items() if other == name)
        rows.append(
            [
                f"{name}, {kind}",
                f"{each.bytes_per_token / 1024:.0f} KiB",
                f"{each.capacity_tokens:,}",
                f"{each.batch:.0f} ({each.batch / first.batch:.1f} x)",
                f"{each.tokens_per_s:,.0f} ({each.tokens_per_s / first.tokens_per_s:.1f} x)",
            ]
        )
    return markdown_table(["attention", "a token takes", "tokens that fit", "requests at once", "tokens/s"], rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Requests at once and throughput of every kind."""
    left, right = figure.subplots(1, 2, sharey=True)
    names, runs = [f"{name}\n{kind}" for name, kind in measured.series], measured.series.values()
    value_bars(left, names, [each.batch for each in runs], INK)
    value_bars(right, names, [each.tokens_per_s for each in runs], BLUE)
    left.set_xlabel("requests at once")
    right.set_xlabel("output tokens/s")
    left.tick_params(axis="y", labelsize="small")


CLAIM: Final = Claim(
    name="attention_kinds",
    order=17,
    title="Fewer KV heads, or a latent",
    says=(
        "the cache sets how many users a GPU holds, and shrinks with the KV heads: grouped-query attention (Ainslie "
        "et al., [arXiv 2305.13245](https://arxiv.org/abs/2305.13245)) keeps a share KV heads / heads of what multi-"
        "head attention keeps, multi-query attention one head, and DeepSeek's latent as much as 2.25 groups of GQA "
        "would; DeepSeek-V2 reports 5.76 times the generation throughput of its predecessor with GQA, and 93.3 % less"
        " cache ([arXiv 2405.04434](https://arxiv.org/abs/2405.04434))."
    ),
    setting=(
        "One H100, vLLM, 1,500 requests at once with prompts and answers of 1,000 tokens. Each model is run as it is "
        "and as a what-if, the same decoder with other KV heads (projections change with them). Throughput gains less"
        " than concurrency: prefill costs the same, and the more sequences share the reading of the weights, the less"
        " it matters; a latent also takes more arithmetic than a few heads, since every query head works on all of "
        "its 576 numbers. With tensor parallelism it is copied to every GPU, see `examples/gqa-vs-mla.yaml`. What "
        "fewer heads do to answers is not modelled."
    ),
    measure=measure,
    bounds={
        "gqa_bytes_of_mha": (0.25, 0.25),
        "gqa_requests_over_mha": (3, 4.2),
        "gqa_throughput_over_mha": (2, 4),
        "mqa_throughput_over_gqa": (1.5, 8),
        "mla_bytes_of_mha": (0.14, 0.142),
        "mla_bytes_of_gqa": (2.25 / 4, 2.25 / 4),
        "mla_requests_over_mha": (5, 7.2),
        "mla_requests_over_gqa": (1.5, 4 / 2.25 + 0.1),
        "mla_throughput_over_mha": (3, 7),
        "mla_throughput_over_gqa": (1.2, 4 / 2.25),
    },
    table=table,
    draw=draw,
)
