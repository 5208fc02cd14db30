"""Several answers to one prompt, and beams: what holding their common text once saves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, GREEN, VERMILLION
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLES: Final = (2, 4, 6)
LOADS: Final[dict[str, dict[str, Any]]] = {
    "ShareGPT": {
        "rate_per_s": 1.4,
        "prompt_tokens": {"distribution": "lognormal", "mean": 192, "cv": 1.0, "min": 4, "max": 512},
        "output_tokens": {"distribution": "lognormal", "mean": 412, "cv": 1.5, "min": 4, "max": 1536},
    },
    "Alpaca": {
        "rate_per_s": 12.0,
        "prompt_tokens": {"distribution": "lognormal", "mean": 19.3, "cv": 1.0, "min": 4, "max": 128},
        "output_tokens": {"distribution": "lognormal", "mean": 60, "cv": 1.5, "min": 4, "max": 512},
    },
}
BEAMS: Final = "Alpaca, beams"
PAPER: Final = {"ShareGPT": ("16.2%", "30.5%"), "Alpaca": ("6.1%", "9.8%"), BEAMS: ("37.6%", "55.2%")}
STYLES: Final = {"ShareGPT": (BLUE, "o"), "Alpaca": (VERMILLION, "s"), BEAMS: (GREEN, "^")}


@dataclass(frozen=True, slots=True)
class Run:
    """Share of all requests' tokens that is stored once for several; share of prompt tokens found; waste."""

    saved: float
    found: float
    waste: float


def scenario(load: str, samples: int) -> dict[str, Any]:
    """Llama 2 13B on one A100 40 GB with 15,700 KV slots, answers a second as many whatever the number of samples."""
    keys = dict(LOADS[load.split(",")[0]])
    rate = keys.pop("rate_per_s") / samples
    several = {"n": samples, "sample_lengths": "equal", "num_requests": 600}
    if load == BEAMS:
        rate /= 10  # a token of a beam is a request
        several = {"beam_width": samples, "num_requests": 60}
    return {
        "name": f"{load}-{samples}",
        "model": "meta-llama/Llama-2-13b-hf",
        "hardware": "a100-sxm-40gb",
        "engine": {"max_model_len": 2048, "num_gpu_blocks_override": 982},
        "workload": {"arrivals": {"process": "poisson", "rate_per_s": rate}, **several, **keys},
    }


def run(load: str, samples: int) -> Run:
    """Simulate one point."""
    from sim import Scenario, simulate

    kv = simulate(Scenario.from_dict(scenario(load, samples))).summary.kv
    return Run(float(kv.shared_fraction or 0), float(kv.prefix_hit_rate or 0), float(kv.waste_fraction or 0))


def measure(traces: Path | None) -> Measured:
    """Both kinds of traffic, two to six answers."""
    runs = {(load, samples): run(load, samples) for load in PAPER for samples in SAMPLES}
    numbers = {}
    for load in PAPER:
        name = load.lower().replace(", ", "_")
        for samples in (SAMPLES[0], SAMPLES[-1]):
            numbers[f"{name}_saved_by_{samples}"] = runs[load, samples].saved
        numbers[f"{name}_found_by_{SAMPLES[-1]}"] = runs[load, SAMPLES[-1]].found
    return Measured(numbers, runs)


def table(measured: Measured) -> str:
    """A row a number of answers."""
    rows = []
    for load in PAPER:
        for samples in SAMPLES:
            each = measured.series[load, samples]
            reported = dict(zip((SAMPLES[0], SAMPLES[-1]), PAPER[load], strict=True)).get(samples, "")
            rows.append([f"{load}, {samples}", f"{each.saved:.1%}", reported, f"{each.found:.0%}", f"{each.waste:.1%}"])
    header = ["answers to a prompt", "memory saved", "in the paper", "prompt tokens found", "waste"]
    return markdown_table(header, rows)


def draw(figure: Figure, measured: Measured) -> None:
    """What is saved over the number of answers."""
    axis = figure.subplots()
    for load, (color, marker) in STYLES.items():
        saved = [measured.series[load, samples].saved for samples in SAMPLES]
        axis.plot(SAMPLES, saved, color=color, marker=marker, label=f"{load}, simulated")
        reported = [float(share.rstrip("%")) / 100 for share in PAPER[load]]
        ends = (SAMPLES[0], SAMPLES[-1])
        axis.plot(
            ends, reported, color=color, marker=marker, markerfacecolor="none", linestyle=":", label=f"{load}, paper"
        )
    axis.set(xticks=SAMPLES, xlabel="answers to a prompt", ylabel="memory saved", ylim=(0, None))
    axis.yaxis.set_major_formatter("{x:.0%}")
    axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


CLAIM: Final = Claim(
    name="sampling",
    order=25,
    title="Several answers to one prompt",
    says=(
        "sharing the blocks of a prompt among several samples of it saves 6.1 % (two samples) to 9.8 % (six) of the "
        "KV memory on Alpaca, and 16.2 to 30.5 % on ShareGPT; beam search, whose beams share their text as well, 37.6"
        " to 55.2 % and 44.3 to 66.3 % (Kwon et al., [arXiv 2309.06180](https://arxiv.org/abs/2309.06180), section "
        "6.3)."
    ),
    setting=(
        "Llama 2 13B on one A100 40 GB with the paper's 15,700 KV slots; prompts of 161 and 19 tokens and answers of "
        "338 and 58 on average, log-normal, at a rate that the memory holds. Each prompt is sent *n* times at once, "
        "with equally long answers (in the paper those of the data set; with lengths drawn one by one, the longest "
        "outlive the others and less is shared). So vLLM V1 does it: the samples are requests that find the full "
        "blocks of the prompt, and each computes the last, partial one in a block of its own. That takes as much "
        "memory as copying it on the first write. Beams are vLLM's too: a request for each token of each beam. How "
        "often a beam forks from another is assumed, 5 % at each token, so that two and six beams save about what the"
        " paper reports for Alpaca; at the same rate the longer answers of ShareGPT save 48 and 78 %, more than the "
        "paper reports."
    ),
    measure=measure,
    bounds={
        "sharegpt_saved_by_2": (0.12, 0.2),
        "sharegpt_saved_by_6": (0.2, 0.31),
        "sharegpt_found_by_6": (0.7, 5 / 6),
        "alpaca_saved_by_2": (0.04, 0.08),
        "alpaca_saved_by_6": (0.06, 0.13),
        "alpaca_found_by_6": (0.3, 5 / 6),
        "alpaca_beams_saved_by_2": (0.3, 0.45),
        "alpaca_beams_saved_by_6": (0.45, 0.65),
    },
    table=table,
    draw=draw,
)
