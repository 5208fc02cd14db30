"""Conversations that come back: their cache from the host, from a disk, or computed again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, VERMILLION
from reports.textbook.bars import grouped_bars
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOST_GIB: Final = 400
TIERS: Final[dict[str, tuple[str, list[dict[str, Any]] | None]]] = {
    "none": ("none", None),
    "nvme": ("NVMe, 6 GB/s", [{"name": "nvme", "memory_gib": 4000, "bandwidth_gb_per_s": 6}]),
    "small": (
        "50 GiB of host, then NVMe",
        [
            {"name": "host", "memory_gib": 50, "bandwidth_gb_per_s": 64},
            {"name": "nvme", "memory_gib": 4000, "bandwidth_gb_per_s": 6},
        ],
    ),
    "pcie4": ("host over PCIe 4", [{"name": "host", "memory_gib": HOST_GIB, "bandwidth_gb_per_s": 32}]),
    "pcie5": ("host over PCIe 5", [{"name": "host", "memory_gib": HOST_GIB, "bandwidth_gb_per_s": 64}]),
    "c2c": ("host over NVLink-C2C", [{"name": "host", "memory_gib": HOST_GIB, "bandwidth_gb_per_s": 450}]),
}
CALM, BUSY = 0.2, 0.8  # new conversations a second


@dataclass(frozen=True, slots=True)
class Run:
    """Mean TTFT of the turns after the first, calm and busy; share of known tokens found in the GPU and in tiers."""

    calm_s: float
    busy_s: float
    gpu: float
    tiers: float


def scenario(tier: str, rate_per_s: float) -> dict[str, Any]:
    """Llama 3.1 8B on one H100; five turns of 4,000 new tokens and an answer of 200, a minute apart."""
    return {
        "name": f"{tier}-{rate_per_s}",
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"max_model_len": 32768, "kv_offload": TIERS[tier][1]},
        "workload": {
            "num_requests": 600,
            "arrivals": {"process": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"distribution": "constant", "value": 4000},
            "output_tokens": {"distribution": "constant", "value": 200},
            "sessions": {"turns": 5, "think_s": 60.0},
        },
    }


def run(tier: str) -> Run:
    """Simulate one kind of tier at both loads."""
    from sim import Scenario, simulate

    calm, busy = (simulate(Scenario.from_dict(scenario(tier, rate))) for rate in (CALM, BUSY))
    summary = busy.summary
    returning = [
        float(each.requests.loc[each.requests["prompt_tokens"] > 4000, "ttft_s"].mean()) for each in (calm, busy)
    ]
    if summary.tiers is None:
        return Run(returning[0], returning[1], summary.kv.prefix_hit_rate or 0.0, 0.0)
    rates = [use.hit_rate or 0.0 for use in summary.tiers.prefix]
    return Run(returning[0], returning[1], rates[0], sum(rates[1:]))


def measure(traces: Path | None) -> Measured:
    """All kinds of tiers."""
    runs = {tier: run(tier) for tier in TIERS}
    base = runs["none"]
    numbers = {}
    for tier, each in runs.items():
        numbers[f"{tier}_calm_gain"] = base.calm_s / each.calm_s
        numbers[f"{tier}_busy_gain"] = base.busy_s / each.busy_s
        numbers[f"{tier}_found"] = each.gpu + each.tiers
    return Measured(numbers, runs)


def table(measured: Measured) -> str:
    """A row a kind of tier."""
    base, rows = measured.series["none"], []
    for tier, (words, _) in TIERS.items():
        each = measured.series[tier]
        rows.append(
            [
                words,
                f"{each.gpu:.1%}",
                f"{each.tiers:.1%}",
                f"{each.calm_s * 1e3:,.0f} ms ({base.calm_s / each.calm_s:.1f} x)",
                f"{each.busy_s * 1e3:,.0f} ms ({base.busy_s / each.busy_s:.1f} x)",
            ]
        )
    header = ["tier", f"found in the GPU at {BUSY}", "in tiers", f"TTFT at {CALM} conversations/s", f"at {BUSY}"]
    return markdown_table(header, rows)


def draw(figure: Figure, measured: Measured) -> None:
    """TTFT of returning turns, a bar a tier, calm and busy."""
    axis, runs = figure.subplots(), [measured.series[tier] for tier in TIERS]
    loads = {
        f"{CALM} conversations/s": (BLUE, [1e3 * each.calm_s for each in runs]),
        f"{BUSY} conversations/s": (VERMILLION, [1e3 * each.busy_s for each in runs]),
    }
    names = [words.replace(", ", ",\n").replace(" over ", "\nover ") for words, _ in TIERS.values()]
    grouped_bars(axis, names, loads, "{:,.0f}")
    axis.set_ylabel("ms to the first token")
    axis.set_title("Turns after the first")
    axis.legend()


CLAIM: Final = Claim(
    name="offload",
    order=35,
    title="Offload for returning conversations",
    says=(
        "a prompt whose cache is loaded from the host's memory has its first token 2 to 22 times sooner than one "
        "that is computed again (the vLLM project on its offloading connector, blog.vllm.ai, on H100)."
    ),
    setting=(
        "Llama 3.1 8B on one H100: conversations of five turns, each with 4,000 new tokens and an answer of 200, a "
        "minute apart, so that at the higher load the GPU has evicted a conversation before it comes back. TTFT is "
        "that of the turns after the first, whose prompts are 4,200 to 16,800 tokens longer. Loading leaves the new "
        "tokens to compute, and that bounds the gain without a queue; with one, the time that is not spent on "
        "computing again is not waited for by others either. A faster link than PCIe 4 then gains little, and even a "
        "disk is worth it."
    ),
    measure=measure,
    bounds={
        "pcie4_busy_gain": (2, 22),
        "pcie5_busy_gain": (2, 22),
        "c2c_busy_gain": (2, 22),
        "nvme_busy_gain": (2, 22),
        "pcie5_calm_gain": (1, 22),
        "none_found": (0, 0.05),
        "pcie5_found": (0.6, 0.75),
    },
    table=table,
    draw=draw,
)
