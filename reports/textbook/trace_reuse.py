"""Hit rate on a published trace as the cache grows, against what the trace itself repeats."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, GREEN, INK, VERMILLION
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TRACES: Final = {"conversation": (BLUE, "o"), "synthetic": (GREEN, "^")}
CACHE_TOKENS: Final = (1_000_000, 4_000_000, 16_000_000, 64_000_000)
BLOCK: Final = 16
TRACE_BLOCK: Final = 512  # tokens for which the trace has one id


def scenario(trace: Path, engine: str, tokens: int) -> dict[str, Any]:
    """Steps of 10 us: requests hardly overlap, so that the cache alone decides."""
    return {
        "name": f"{trace.stem}-{tokens}",
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "h100-sxm",
        "engine": {
            "preset": engine,
            "block_size": BLOCK,
            "max_model_len": 131_072,
            "num_gpu_blocks_override": tokens // BLOCK + 1,
            "step_time": {"base_us": 10},
        },
        "workload": {"trace": {"path": str(trace.resolve()), "format": "mooncake"}},
    }


def hit_rate(trace: Path, engine: str, tokens: int) -> float:
    """Share of the prompt tokens that the cache holds when they come."""
    from sim import Scenario, simulate

    return float(simulate(Scenario.from_dict(scenario(trace, engine, tokens))).summary.kv.prefix_hit_rate or 0)


def repeated(trace: Path) -> float:
    """Share of the prompt tokens that lie in leading blocks which an earlier request of the trace had too."""
    seen: set[int] = set()
    found = total = 0
    with gzip.open(trace, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            ids = row["hash_ids"]
            known = next((index for index, block in enumerate(ids) if block not in seen), len(ids))
            found += min(known * TRACE_BLOCK, row["input_length"] - 1)
            total += row["input_length"]
            seen.update(ids)
    return found / total


def measure(traces: Path | None) -> Measured:
    """Both traces at all sizes with vLLM's hashed blocks; the conversation with SGLang's tree too."""
    assert traces is not None
    files = {name: traces / f"mooncake_{name}.jsonl.gz" for name in TRACES}
    own = {name: repeated(path) for name, path in files.items()}
    rates = {(name, "vllm"): [hit_rate(files[name], "vllm", size) for size in CACHE_TOKENS] for name in TRACES}
    rates["conversation", "sglang"] = [hit_rate(files["conversation"], "sglang", size) for size in CACHE_TOKENS]
    conversation, tree = rates["conversation", "vllm"], rates["conversation", "sglang"]
    numbers = {
        "conversation_own_share": own["conversation"],
        "synthetic_own_share": own["synthetic"],
        "conversation_of_own_share": conversation[-1] / own["conversation"],
        "synthetic_of_own_share": rates["synthetic", "vllm"][-1] / own["synthetic"],
        "conversation_smallest_over_largest": conversation[0] / conversation[-1],
        "tree_over_hashed_blocks": tree[-1] / conversation[-1],
        "least_step": min(b - a for line in rates.values() for a, b in pairwise(line)),
    }
    return Measured(numbers, (own, rates))


def table(measured: Measured) -> str:
    """A row a size."""
    own, rates = measured.series
    rows = [
        [f"{size / 1e6:g} M", *(f"{line[index]:.1%}" for line in rates.values())]
        for index, size in enumerate(CACHE_TOKENS)
    ]
    rows.append(["the trace's own share", *(f"{own[name]:.1%}" for name, _ in rates)])
    return markdown_table(["tokens of cache", *(f"{trace}, {engine}" for trace, engine in rates)], rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Hit rate over cache size."""
    own, rates = measured.series
    axis = figure.subplots()
    for (trace, engine), line in rates.items():
        color, marker = TRACES[trace] if engine == "vllm" else (VERMILLION, "x")
        style = "-" if engine == "vllm" else "--"
        axis.plot(
            CACHE_TOKENS, [100 * rate for rate in line], style, marker=marker, color=color, label=f"{trace}, {engine}"
        )
    for trace, share in own.items():
        axis.axhline(100 * share, color=INK, linewidth=0.8, linestyle=":")
        axis.text(1.4 * CACHE_TOKENS[1], 100 * share + 0.8, f"repeated in the {trace} trace: {share:.1%}", color=INK)
    axis.set(xscale="log", ylim=(0, 75), xlabel="tokens of cache", ylabel="prompt tokens found, %")
    axis.set_xticks(CACHE_TOKENS, [f"{tokens // 1_000_000} M" for tokens in CACHE_TOKENS])
    axis.set_xticks([], minor=True)
    axis.set_title("Hit rate on the Mooncake traces as the cache grows")
    axis.legend(loc="lower right")


CLAIM: Final = Claim(
    name="trace_reuse",
    order=30,
    title="Reuse in a published trace",
    says=(
        "in the traces of Mooncake (Qin et al., FAST 2025) 37 % of the conversation's prompt tokens and 64 % of the "
        "synthetic one's repeat an earlier prefix; a cache finds them as far as it is large enough to keep them."
    ),
    setting=(
        "The traces replayed at their own pace with blocks of 16 tokens and steps so short that the cache alone "
        "decides. The dotted lines are counted from the trace, without the simulator. The section is written with "
        "`--traces FOLDER`, where FOLDER holds `mooncake_conversation.jsonl.gz` and `mooncake_synthetic.jsonl.gz`."
    ),
    measure=measure,
    bounds={
        "conversation_own_share": (0.36, 0.38),
        "synthetic_own_share": (0.63, 0.67),
        "conversation_of_own_share": (0.99, 1.0),
        "synthetic_of_own_share": (0.99, 1.0),
        "conversation_smallest_over_largest": (0, 0.3),
        "tree_over_hashed_blocks": (0.99, 1.01),
        "least_step": (-0.001, 1),
    },
    table=table,
    draw=draw,
    needs_traces=True,
)
