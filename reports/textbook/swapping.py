"""When memory runs out: computing a preempted request's cache again, or copying it to the host and back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, GREEN, INK, VERMILLION
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sim.assemble import Parts

MODELS: Final = {
    "13b": ("Llama 2 13B (MHA), A100", "meta-llama/Llama-2-13b-hf", "a100-sxm-40gb"),
    "8b": ("Llama 3.1 8B (GQA), H100", "meta-llama/Llama-3.1-8B", "h100-sxm"),
}
LINKS: Final = {2: "small copies", 8: "a quarter of PCIe 4", 32: "PCIe 4", 64: "PCIe 5", 450: "NVLink-C2C"}
BATCH, CONTEXT = 32, 1000  # decodes beside which a context is computed again, and tokens of each
BUDGET: Final = 8192
CONTEXTS: Final = tuple(1 << power for power in range(4, 16))
SHOWN: Final = {2: VERMILLION, 32: GREEN, 450: BLUE}


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds that computing each of `CONTEXTS` anew adds to decode steps; KV bytes a token; crossover by GB/s."""

    recompute_s: tuple[float, ...]
    token_bytes: int
    crossover: dict[int, int | None]


@dataclass(frozen=True, slots=True)
class Run:
    """Output tokens a second, the 99th percentile of the gaps between tokens, requests swapped and recomputed."""

    tokens_per_s: float
    itl_p99_s: float
    swapped: int
    recomputed: int


def scenario(model: str, preemption: str = "recompute", gb_per_s: int | None = None) -> dict[str, Any]:
    """300 requests at once, whose answers outgrow the cache: on average each is preempted twice."""
    _, name, gpu = MODELS[model]
    return {
        "name": f"{preemption}-{gb_per_s}",
        "model": name,
        "hardware": gpu,
        "engine": {
            "max_model_len": 4096,
            "enable_prefix_caching": False,
            "max_num_seqs": 64,
            "preemption": preemption,
            "swap_space_gib": 64,
            "host_link_gb_per_s": gb_per_s,
        },
        "workload": {
            "num_requests": 300,
            "arrivals": {"process": "poisson", "rate_per_s": 1000.0},
            "prompt_tokens": {"distribution": "constant", "value": 256},
            "output_tokens": {"distribution": "uniform", "min": 256, "max": 1024},
        },
    }


def price(model: str) -> Price:
    """What both ways cost, without a run."""
    from sim import Scenario
    from sim.assemble import assemble
    from sim.cost.shape import StepShape
    from sim.engine.tiers.choice import crossover_tokens, recompute_ticks

    parts: Parts = assemble(Scenario.from_dict(scenario(model)))
    batch = StepShape(BATCH, BATCH * CONTEXT, BATCH * CONTEXT, sampled_seqs=BATCH)

    def recompute(tokens: int) -> float:
        return recompute_ticks(parts.timer, batch, tokens, BUDGET)

    def swap(gb_per_s: int) -> int | None:
        return crossover_tokens(recompute, lambda tokens: swap_s(parts.kv_bytes_per_token, tokens, gb_per_s))

    return Price(
        tuple(recompute(tokens) for tokens in CONTEXTS), parts.kv_bytes_per_token, {link: swap(link) for link in LINKS}
    )


def swap_s(token_bytes: int, tokens: int, gb_per_s: float) -> float:
    """Seconds of both copies, in whole blocks of 16 tokens."""
    return 2 * -(-tokens // 16) * 16 * token_bytes / (gb_per_s * 1e9)


def run(preemption: str, gb_per_s: int | None) -> Run:
    """Simulate one point with the 13B model."""
    from sim import Scenario, simulate

    summary = simulate(Scenario.from_dict(scenario("13b", preemption, gb_per_s))).summary
    use = summary.tiers.swap if summary.tiers is not None else None
    swapped = use.swapped if use is not None else 0
    rate, gap = summary.throughput.output_tokens_per_s, summary.itl_s.p99
    assert rate is not None
    assert gap is not None
    return Run(rate, gap, swapped, summary.requests.preemptions - swapped)


def measure(traces: Path | None) -> Measured:
    """Prices of both models; runs by recompute, and by swap and `auto` over each link."""
    prices = {model: price(model) for model in MODELS}
    runs = {("recompute", 0): run("recompute", None)}
    runs |= {(way, link): run(way, link) for link in LINKS for way in ("swap", "auto")}
    never = 1 << 20
    numbers = {
        f"{model}_crossover_{link}": float(each.crossover[link] or never)
        for model, each in prices.items()
        for link in LINKS
    }
    base = runs["recompute", 0]
    for link in LINKS:
        numbers[f"swap_gain_{link}"] = runs["swap", link].tokens_per_s / base.tokens_per_s
        numbers[f"auto_gain_{link}"] = runs["auto", link].tokens_per_s / base.tokens_per_s
    numbers["itl_p99_gain_32"] = base.itl_p99_s / runs["swap", 32].itl_p99_s
    return Measured(numbers, (prices, runs))


def table(measured: Measured) -> str:
    """A row a link."""
    prices, runs = measured.series
    base = runs["recompute", 0]
    rows = [["recompute", "-", "-", f"{base.tokens_per_s:.0f}", f"{base.itl_p99_s * 1e3:.0f} ms", "-"]]
    for link, words in LINKS.items():
        swapped, auto = runs["swap", link], runs["auto", link]
        total = auto.swapped + auto.recomputed
        rows.append(
            [
                f"{words}, {link} GB/s",
                *(_context(prices[model].crossover[link]) for model in MODELS),
                f"{swapped.tokens_per_s:.0f} ({swapped.tokens_per_s / base.tokens_per_s:.2f} x)",
                f"{swapped.itl_p99_s * 1e3:.0f} ms",
                f"{auto.tokens_per_s:.0f}, {auto.swapped / total:.0%} swapped",
            ]
        )
    header = ["link, one direction", *(f"crossover: {words}" for words, _, _ in MODELS.values())]
    return markdown_table([*header, "swap: tokens/s", "99 % of gaps within", "auto: tokens/s"], rows)


def _context(tokens: int | None) -> str:
    return "none" if tokens is None else "always" if tokens == 1 else f"{tokens:,} tokens"


def draw(figure: Figure, measured: Measured) -> None:
    """Both prices over the context, a panel a model."""
    prices, _ = measured.series
    for axis, (model, each) in zip(figure.subplots(1, 2, sharey=True), prices.items(), strict=True):
        axis.plot(
            CONTEXTS, [1e3 * max(s, 1e-5) for s in each.recompute_s], marker="o", color=INK, label="compute again"
        )
        for link, color in SHOWN.items():
            copies = [1e3 * swap_s(each.token_bytes, tokens, link) for tokens in CONTEXTS]
            axis.plot(CONTEXTS, copies, color=color, label=f"swap, {LINKS[link]} ({link} GB/s)")
        axis.set(xscale="log", yscale="log", xlabel="tokens of context")
        axis.set_title(MODELS[model][0])
    figure.axes[0].set_ylabel("ms that a preemption costs")
    figure.axes[0].legend()


CLAIM: Final = Claim(
    name="swapping",
    order=32,
    title="Recompute or swap",
    says=(
        "for long contexts copying a preempted request's cache to the host and back is cheaper than computing it "
        "again, as far as the link allows; small copies waste the link, and then computing again wins (Kwon et al., "
        "SOSP 2023, section 7.3: for blocks of 16 to 64 tokens both are alike on PCIe 4)."
    ),
    setting=(
        f"The price of computing again is what the context's chunks add to steps that decode {BATCH} requests of "
        f"{CONTEXT:,} tokens anyway, that of swapping the bytes of both copies over the bandwidth. Up to the crossover "
        "the chunk hides behind the weights that are read anyway, and computing again is cheaper; beyond the attention "
        "over the own context makes it dearer with every token. What decides is the bandwidth that copies really "
        "reach: at the full rate of PCIe 4, PCIe 5 or NVLink-C2C swapping wins from about a hundred tokens on, and "
        "always with grouped heads; at a quarter of PCIe 4 or less only for contexts of tens of thousands. The "
        "runs: Llama 2 13B on an A100 40 GB, 300 requests at once whose answers outgrow the cache, copies beside the "
        "steps. `auto` compares the prices, which count nothing as hidden; at 8 GB/s it therefore computes again where "
        "swapping beside the steps would have been a little faster."
    ),
    measure=measure,
    bounds={
        "13b_crossover_2": (100_000, 1 << 20),
        "13b_crossover_8": (4096, 100_000),
        "13b_crossover_32": (1, 500),
        "13b_crossover_64": (1, 200),
        "13b_crossover_450": (1, 50),
        "8b_crossover_32": (1, 50),
        "8b_crossover_64": (1, 50),
        "8b_crossover_450": (1, 50),
        "swap_gain_2": (0.7, 1),
        "swap_gain_32": (1.02, 1.3),
        "swap_gain_64": (1.02, 1.3),
        "swap_gain_450": (1.02, 1.3),
        "auto_gain_2": (0.99, 1.01),
        "auto_gain_8": (0.99, 1.05),
        "auto_gain_32": (1.02, 1.3),
        "itl_p99_gain_32": (1.3, 3),
    },
    table=table,
    draw=draw,
)
