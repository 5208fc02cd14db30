"""Keeping a part of the cache: attention sinks with a window, and heavy hitters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, GREEN, INK, VERMILLION
from reports.textbook.bars import value_bars
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PROMPT, OUTPUT = 8000, 500
FIFTH: Final = (PROMPT + OUTPUT) // 5
POLICIES: Final[dict[str, tuple[str, dict[str, Any] | None, str, str]]] = {
    "full": ("all tokens", None, INK, "o"),
    "h2o": (f"H2O, {FIFTH:,} tokens (20 %)", {"policy": "h2o", "budget_tokens": FIFTH}, VERMILLION, "s"),
    "sinks": (
        f"4 sinks and a window, {FIFTH:,} tokens",
        {"policy": "streaming_llm", "sink_tokens": 4, "window_tokens": FIFTH - 4},
        BLUE,
        "^",
    ),
    "narrow": (
        "4 sinks and a window, 1,024 tokens",
        {"policy": "streaming_llm", "sink_tokens": 4, "window_tokens": 1020},
        GREEN,
        "D",
    ),
}
LENGTHS: Final = (1000, 2000, 4000, 8000, 16000, 32000, 64000)


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens a second, mean batch and TPOT at saturation; requests that memory holds; TPOT of 16 by prompt length."""

    tokens_per_s: float
    batch: float
    concurrency: float
    tpot_s: tuple[float, ...]


def scenario(policy: str, prompt: int, requests: int) -> dict[str, Any]:
    """Llama 3.1 8B on one H100, ``requests`` at once."""
    return {
        "name": policy,
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {"max_model_len": 66_000, "enable_prefix_caching": False, "kv_retention": POLICIES[policy][1]},
        "workload": {
            "num_requests": requests,
            "arrivals": {"process": "closed_loop", "concurrency": requests},
            "prompt_tokens": {"distribution": "constant", "value": prompt},
            "output_tokens": {"distribution": "constant", "value": OUTPUT},
        },
    }


def run(policy: str) -> Run:
    """Simulate one policy: 300 requests at once; decode steps of 4 requests by length."""
    from sim import Scenario, simulate
    from sim.assemble import assemble
    from sim.cost.shape import StepShape

    loaded = Scenario.from_dict(scenario(policy, PROMPT, 300))
    summary, parts = simulate(loaded).summary, assemble(loaded)
    assert parts.budget is not None
    kept = parts.timer.window or 1 << 30
    steps = [
        parts.timer.step(StepShape(16, 16 * length, 16 * min(length, kept), sampled_seqs=16)) for length in LENGTHS
    ]
    return Run(
        summary.throughput.output_tokens_per_s or 0.0,
        summary.utilization.mean_batch_size or 0.0,
        parts.budget.concurrency(PROMPT + OUTPUT),
        tuple(steps),
    )


def measure(traces: Path | None) -> Measured:
    """All policies."""
    runs = {policy: run(policy) for policy in POLICIES}
    base = runs["full"]
    numbers = {}
    for policy, each in runs.items():
        numbers[f"{policy}_concurrency_gain"] = each.concurrency / base.concurrency
        numbers[f"{policy}_throughput_gain"] = each.tokens_per_s / base.tokens_per_s
        numbers[f"{policy}_growth"] = each.tpot_s[-1] / each.tpot_s[1]
    return Measured(numbers, runs)


def table(measured: Measured) -> str:
    """A row a policy."""
    base, rows = measured.series["full"], []
    for policy, (words, *_) in POLICIES.items():
        each = measured.series[policy]
        rows.append(
            [
                words,
                f"{each.concurrency:.0f} ({each.concurrency / base.concurrency:.1f} x)",
                f"{each.batch:.0f}",
                f"{each.tokens_per_s:,.0f} ({each.tokens_per_s / base.tokens_per_s:.2f} x)",
                *(f"{1e3 * each.tpot_s[LENGTHS.index(length)]:.1f} ms" for length in (2000, 16000, 64000)),
            ]
        )
    header = ["kept", "requests that fit", "mean batch", "tokens/s", "step of 16 at 2,000", "at 16,000", "at 64,000"]
    return markdown_table(header, rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Step time over the length; throughput."""
    left, right = figure.subplots(1, 2)
    for policy, (words, _, color, marker) in POLICIES.items():
        each = measured.series[policy]
        left.plot(LENGTHS, [1e3 * step for step in each.tpot_s], marker=marker, color=color, label=words)
    names, _, colors, _ = zip(*POLICIES.values(), strict=True)
    value_bars(
        right,
        [name.replace(", ", ",\n") for name in names],
        [each.tokens_per_s for each in measured.series.values()],
        colors,
    )
    left.set(xscale="log", ylim=(0, None), xlabel="tokens of each context", ylabel="ms a step")
    left.set_xticks(LENGTHS, [f"{length // 1000}k" for length in LENGTHS])
    left.set_xticks([], minor=True)
    left.set_title("Decode step of 16 requests")
    left.legend()
    right.set_xlabel("output tokens/s")
    right.set_title(f"300 requests, {PROMPT:,} tokens in and {OUTPUT} out")


CLAIM: Final = Claim(
    name="retention",
    order=37,
    title="Keeping a part of the cache",
    says=(
        "a fifth of the tokens, those attended most and the newest, is enough to keep (H2O, Zhang et al., NeurIPS "
        "2023, [2306.14048](https://arxiv.org/abs/2306.14048)), and with a few first tokens and a window the cost of "
        "a token no longer grows with the text (StreamingLLM, Xiao et al., ICLR 2024, "
        "[2309.17453](https://arxiv.org/abs/2309.17453))."
    ),
    setting=(
        f"Llama 3.1 8B on one H100, 300 requests at once with prompts of {PROMPT:,} tokens and answers of {OUTPUT}. "
        "Five times as many fit once they decode, and a step no longer grows with its contexts. Throughput gains "
        "less, since prompts are to be computed all the same: by H2O whole, with a window in linear time. What the "
        "answers lose is not modelled, nor H2O's scores, which a fused attention kernel does not give out."
    ),
    measure=measure,
    bounds={
        "h2o_concurrency_gain": (4.5, 5.5),
        "sinks_concurrency_gain": (4.5, 5.5),
        "narrow_concurrency_gain": (7, 9),
        "h2o_throughput_gain": (1.2, 5),
        "sinks_throughput_gain": (1.2, 5),
        "narrow_throughput_gain": (1.2, 5),
        "full_growth": (2, 10),
        "sinks_growth": (1, 1.01),
        "h2o_growth": (1, 1.01),
    },
    table=table,
    draw=draw,
)
