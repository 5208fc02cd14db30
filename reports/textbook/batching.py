"""Continuous batching against static batching, with Orca in between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, GREEN, VERMILLION
from reports.textbook.bars import value_bars
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEAN_OUTPUT: Final = 128
LIMITS: Final = (32, 128, 512, 1536)  # output tokens that clients allow
ENGINES: Final = {"static": (VERMILLION, "s"), "orca": (GREEN, "^"), "vllm": (BLUE, "o")}


@dataclass(frozen=True, slots=True)
class Run:
    """Throughput of all tokens, and mean time from request to answer of the quarter with the shortest outputs."""

    tokens_per_s: float
    short_e2e_s: float
    batch: float


def scenario(engine: str, limit: int) -> dict[str, Any]:
    """Llama 2 13B on one A100 40 GB, 1,000 requests at once, prompts of 512 tokens."""
    keys = {"enable_prefix_caching": False} if engine == "vllm" else {"max_new_tokens": limit}
    return {
        "name": f"{engine}-{limit}",
        "model": "meta-llama/Llama-2-13b-hf",
        "hardware": "a100-sxm-40gb",
        "engine": {"preset": engine, "max_model_len": 2048, **keys},
        "workload": {
            "num_requests": 1000,
            "arrivals": {"process": "poisson", "rate_per_s": 1000.0},
            "prompt_tokens": {"distribution": "constant", "value": 512},
            "output_tokens": {"distribution": "empirical", "quantiles": _exponential(limit)},
        },
    }


def _exponential(limit: int) -> list[list[float]]:
    """Quantiles of an exponential distribution of mean 128, cut at what is allowed."""
    shares = [index / 40 for index in range(40)]
    tokens = [min(limit, max(1, round(-MEAN_OUTPUT * math.log(1 - share)))) for share in shares]
    return [[share, length] for share, length in zip([*shares, 1.0], [*tokens, limit], strict=True)]


def run(engine: str, limit: int) -> Run:
    """Simulate one point."""
    from sim import Scenario, simulate

    result = simulate(Scenario.from_dict(scenario(engine, limit)))
    requests, throughput = result.requests, result.summary.throughput.total_tokens_per_s
    short = requests["output_tokens"] <= requests["output_tokens"].quantile(0.25)
    assert throughput is not None
    return Run(
        throughput, float(requests.loc[short, "e2e_s"].mean()), result.summary.utilization.mean_batch_size or 0.0
    )


def measure(traces: Path | None) -> Measured:
    """All engines at all limits."""
    runs = {(engine, limit): run(engine, limit) for engine in ENGINES for limit in LIMITS}
    longest, shortest = LIMITS[-1], LIMITS[0]
    static, orca, vllm = (runs[engine, longest] for engine in ENGINES)
    return Measured(
        {
            "continuous_over_static": vllm.tokens_per_s / static.tokens_per_s,
            "orca_over_static": orca.tokens_per_s / static.tokens_per_s,
            "continuous_over_orca": vllm.tokens_per_s / orca.tokens_per_s,
            "short_latency_of_continuous_over_static": vllm.short_e2e_s / static.short_e2e_s,
            "short_latency_of_orca_over_static": orca.short_e2e_s / static.short_e2e_s,
            "continuous_over_static_at_equal_lengths": (
                runs["vllm", shortest].tokens_per_s / runs["static", shortest].tokens_per_s
            ),
            "static_long_over_short_limit": static.tokens_per_s / runs["static", shortest].tokens_per_s,
        },
        runs,
    )


def table(measured: Measured) -> str:
    """A row a limit."""
    rows = []
    for limit in LIMITS:
        static, orca, vllm = (measured.series[engine, limit] for engine in ENGINES)
        rates = [f"{each.tokens_per_s:,.0f}" for each in (static, orca, vllm)]
        gains = [f"{each.tokens_per_s / static.tokens_per_s:.2f} x" for each in (orca, vllm)]
        waits = [f"{each.short_e2e_s:,.0f} s" for each in (static, orca, vllm)]
        rows.append([f"{limit}", *rates, *gains, *waits])
    header = ["output limit", "static, tokens/s", "Orca", "vLLM", "Orca / static", "vLLM / static"]
    return markdown_table([*header, "short answers: static", "Orca", "vLLM"], rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Throughput over the limit; mean latency of short answers."""
    left, right = figure.subplots(1, 2)
    for engine, (color, marker) in ENGINES.items():
        points = [measured.series[engine, limit] for limit in LIMITS]
        left.plot(LIMITS, [point.tokens_per_s for point in points], marker=marker, color=color, label=engine)
    left.set(xscale="log", xticks=LIMITS, ylim=(0, None), xlabel="output tokens allowed", ylabel="tokens/s")
    left.set_xticks([], minor=True)
    left.set_title("Throughput at saturation")
    left.legend()
    waits = [measured.series[engine, LIMITS[-1]].short_e2e_s for engine in ENGINES]
    value_bars(right, list(ENGINES), waits, [color for color, _ in ENGINES.values()], " s")
    right.set_xlabel("seconds")
    right.set_title(f"Mean wait for a short answer ({LIMITS[-1]:,} allowed)")


CLAIM: Final = Claim(
    name="batching",
    order=10,
    title="Continuous over static batching",
    says=(
        "continuous batching gives several times the throughput of static batching where output lengths vary, "
        "usually put at 5 to 10 times, and lower latency with it; up to 23 times over a naive baseline ([Anyscale, "
        "2023](https://www.anyscale.com/blog/continuous-batching-llm-inference)), up to 36.9 times over "
        "FasterTransformer at equal latency (Orca, OSDI 2022)."
    ),
    setting=(
        "Llama 2 13B on one A100 40 GB; 1,000 requests at once with prompts of 512 tokens and outputs that are "
        "exponential with mean 128, cut at what clients allow (short answers: the shortest quarter). `static` and "
        "`orca` reserve what is allowed, in batches of up to 32; `vllm` takes blocks as tokens come. With 32 tokens "
        "allowed nearly all outputs are equally long and little is gained. The longer the longest, the longer a "
        "static batch runs for its slowest member, and the fewer reservations fit the memory: that is what vLLM has "
        "over Orca."
    ),
    measure=measure,
    bounds={
        "continuous_over_static": (5, 10),
        "orca_over_static": (1.5, 5),
        "continuous_over_orca": (1.2, 5),
        "short_latency_of_continuous_over_static": (0, 1),
        "short_latency_of_orca_over_static": (0, 1),
        "continuous_over_static_at_equal_lengths": (0.95, 1.25),
        "static_long_over_short_limit": (0, 0.2),
    },
    table=table,
    draw=draw,
)
