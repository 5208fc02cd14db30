"""Sharing the KV cache of a long system prompt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, VERMILLION
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sim.summary import Summary

SHARED: Final = (250, 500, 1000, 2000, 4000)  # tokens of the system prompt
LONG: Final = 2000
LOAD: Final = 0.7  # of what the engine serves without sharing
ENGINES: Final = {"vllm": (BLUE, "o"), "sglang": (VERMILLION, "s")}


@dataclass(frozen=True, slots=True)
class Pair:
    """Without and with sharing: requests/s at saturation, mean TTFT at equal load; share of prompt tokens found."""

    requests_per_s: tuple[float, float]
    ttft_s: tuple[float, float]
    hit_rate: float

    @property
    def throughput_gain(self) -> float:
        """Times the requests per second."""
        return self.requests_per_s[1] / self.requests_per_s[0]

    @property
    def ttft_gain(self) -> float:
        """How many times sooner the first token comes."""
        return self.ttft_s[0] / self.ttft_s[1]


def scenario(engine: str, shared: int, rate_per_s: float, cached: bool) -> dict[str, Any]:
    """Llama 3.1 8B on one A100 80 GB: one system prompt, then 200 tokens of one's own and 128 of answer."""
    return {
        "name": f"{engine}-{shared}",
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": "a100-sxm-80gb",
        "engine": {"preset": engine, "enable_prefix_caching": cached, "max_model_len": 8192},
        "workload": {
            "num_requests": 800,
            "arrivals": {"process": "poisson", "rate_per_s": rate_per_s},
            "prompt_tokens": {"distribution": "constant", "value": shared + 200},
            "output_tokens": {"distribution": "constant", "value": 128},
            "prefixes": {"groups": 1, "prefix_tokens": shared},
        },
    }


def pair(engine: str, shared: int) -> Pair:
    """Simulate one point: at saturation, then at 70 % of what is served without sharing."""
    without, with_cache = (_summary(engine, shared, 1000.0, cached) for cached in (False, True))
    rates = [float(summary.throughput.requests_per_s or 0) for summary in (without, with_cache)]
    calm = [_summary(engine, shared, LOAD * rates[0], cached) for cached in (False, True)]
    ttft = [float(summary.ttft_s.mean or 0) for summary in calm]
    return Pair((rates[0], rates[1]), (ttft[0], ttft[1]), float(with_cache.kv.prefix_hit_rate or 0))


def _summary(engine: str, shared: int, rate_per_s: float, cached: bool) -> Summary:
    from sim import Scenario, simulate

    return simulate(Scenario.from_dict(scenario(engine, shared, rate_per_s, cached))).summary


def measure(traces: Path | None) -> Measured:
    """Both engines at all lengths of the system prompt."""
    pairs = {(engine, shared): pair(engine, shared) for engine in ENGINES for shared in SHARED}
    numbers = {}
    for engine in ENGINES:
        long, short = pairs[engine, LONG], pairs[engine, SHARED[0]]
        numbers[f"{engine}_throughput_gain"] = long.throughput_gain
        numbers[f"{engine}_ttft_gain"] = long.ttft_gain
        numbers[f"{engine}_hit_rate"] = long.hit_rate
        numbers[f"{engine}_throughput_gain_short"] = short.throughput_gain
    return Measured(numbers, pairs)


def table(measured: Measured) -> str:
    """A row a length."""
    rows = []
    for shared in SHARED:
        row = [f"{shared}", f"{shared / (shared + 200):.0%}"]
        for engine in ENGINES:
            each = measured.series[engine, shared]
            row.append(f"{each.requests_per_s[0]:.1f} to {each.requests_per_s[1]:.1f} ({each.throughput_gain:.1f} x)")
            row.append(f"{each.ttft_s[0] * 1e3:.0f} to {each.ttft_s[1] * 1e3:.0f} ms ({each.ttft_gain:.1f} x)")
        rows.append([*row, f"{measured.series['vllm', shared].hit_rate:.1%}"])
    header = ["system prompt", "of the prompt", "vLLM requests/s", "vLLM TTFT", "SGLang requests/s", "SGLang TTFT"]
    return markdown_table([*header, "tokens found"], rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Both gains over the length of the system prompt."""
    left, right = figure.subplots(1, 2)
    for engine, (color, marker) in ENGINES.items():
        points = [measured.series[engine, shared] for shared in SHARED]
        left.plot(SHARED, [point.throughput_gain for point in points], marker=marker, color=color, label=engine)
        right.plot(SHARED, [point.ttft_gain for point in points], marker=marker, color=color, label=engine)
    for axis, title in ((left, "Times the throughput, at saturation"), (right, "Times sooner to the first token")):
        axis.set(xlabel="tokens of the system prompt", ylabel="gain from sharing", xlim=(0, None), ylim=(0, None))
        axis.axhline(1, color="#999999", linewidth=0.8)
        axis.set_title(title)
        axis.legend(loc="upper left")


CLAIM: Final = Claim(
    name="sharing",
    order=20,
    title="Sharing a long system prompt",
    says=(
        "computing a shared prefix once gives 2 to 10 times the throughput, or the first token 2 to 10 times sooner,"
        " where the prefix is long; SGLang reports up to 6.4 times (Zheng et al., NeurIPS 2024)."
    ),
    setting=(
        "Llama 3.1 8B on one A100 80 GB; every prompt is the same system prompt and 200 tokens of its own, every "
        "answer 128 tokens. Throughput is that of 800 requests at once, TTFT that of Poisson arrivals at 70 % of "
        "what the engine serves without sharing, each without and with the engine's prefix cache (vLLM's hashed "
        "blocks, SGLang's radix tree). What is left to compute bounds the gain in throughput; TTFT gains more, since"
        " the queue goes too."
    ),
    measure=measure,
    bounds={
        "vllm_throughput_gain": (2, 10),
        "vllm_ttft_gain": (2, 10),
        "vllm_hit_rate": (0.89, 0.91),
        "vllm_throughput_gain_short": (1, 2),
        "sglang_throughput_gain": (2, 10),
        "sglang_ttft_gain": (2, 10),
        "sglang_hit_rate": (0.89, 0.91),
        "sglang_throughput_gain_short": (1, 2),
    },
    table=table,
    draw=draw,
)
