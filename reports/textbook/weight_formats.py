"""What narrower weights give: time per token, time to the first, and throughput."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from reports.plots import BLUE, VERMILLION
from reports.textbook.bars import grouped_bars
from reports.textbook.claim import Claim, Measured, markdown_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sim.summary import Summary

GPUS: Final = {"a100-sxm-80gb": ("A100", VERMILLION), "h100-sxm": ("H100", BLUE)}
FORMATS: Final = {
    "bf16": "BF16",
    "fp8": "FP8",
    "fp8_block": "FP8 in blocks",
    "int8": "W8A8 INT8",
    "gptq_int8": "W8A16 (GPTQ)",
    "awq": "W4A16 (AWQ)",
}
PROMPT: Final = 4096
PANELS: Final = {
    "decode": "Decode, 1 request",
    "batched": "Decode, 64 requests",
    "prefill": f"Prefill, {PROMPT:,} tokens",
}


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds per token of one request and of 64, seconds to the first token; tokens a second of 600 at once."""

    decode_s: float
    batched_s: float
    prefill_s: float
    tokens_per_s: float


def scenario(gpu: str, weights: str, workload: dict[str, Any]) -> dict[str, Any]:
    """Qwen3-32B on one GPU."""
    return {
        "name": f"{weights}-{gpu}",
        "model": "Qwen/Qwen3-32B",
        "hardware": gpu,
        "engine": {"quantization": weights, "max_model_len": 8192, "enable_prefix_caching": False},
        "workload": workload,
    }


def _summary(gpu: str, weights: str, requests: int, concurrency: int, prompt: int, output: int) -> Summary:
    from sim import Scenario, simulate

    workload = {
        "num_requests": requests,
        "arrivals": {"process": "closed_loop", "concurrency": concurrency},
        "prompt_tokens": {"distribution": "constant", "value": prompt},
        "output_tokens": {"distribution": "constant", "value": output},
    }
    return simulate(Scenario.from_dict(scenario(gpu, weights, workload))).summary


def run(gpu: str, weights: str) -> Run:
    """One request at a time; one round of 64; 600 at once."""
    alone = _summary(gpu, weights, 4, 1, PROMPT, 256)
    some = _summary(gpu, weights, 64, 64, 16, 256)
    many = _summary(gpu, weights, 600, 600, 256, 256)
    found = (alone.tpot_s.mean, some.tpot_s.mean, alone.ttft_s.mean, many.throughput.output_tokens_per_s)
    return Run(*(value for value in found if value is not None))


def measure(traces: Path | None) -> Measured:
    """All formats on both GPUs."""
    runs = {(gpu, weights): run(gpu, weights) for gpu in GPUS for weights in FORMATS}
    numbers = {}
    for gpu, (short, _) in GPUS.items():
        plain = runs[gpu, "bf16"]
        for weights in FORMATS:
            key, this = f"{short.lower()}_{weights}", runs[gpu, weights]
            numbers[f"{key}_decode"] = plain.decode_s / this.decode_s
            numbers[f"{key}_batched"] = plain.batched_s / this.batched_s
            numbers[f"{key}_prefill"] = plain.prefill_s / this.prefill_s
            numbers[f"{key}_throughput"] = this.tokens_per_s / plain.tokens_per_s
    return Measured(numbers, runs)


def table(measured: Measured) -> str:
    """A row a format and GPU."""
    rows = []
    for (gpu, weights), this in measured.series.items():
        key = f"{GPUS[gpu][0].lower()}_{weights}"
        gains = {name: f" ({measured.numbers[f'{key}_{name}']:.2f} x)" for name in (*PANELS, "throughput")}
        rows.append(
            [
                f"{GPUS[gpu][0]}, {FORMATS[weights]}",
                f"{this.decode_s * 1e3:.1f} ms{gains['decode']}",
                f"{this.batched_s * 1e3:.1f} ms{gains['batched']}",
                f"{this.prefill_s * 1e3:,.0f} ms{gains['prefill']}",
                f"{this.tokens_per_s:,.0f}/s{gains['throughput']}",
            ]
        )
    header = ["weights", "one request: per token", "64: per token", f"prompt of {PROMPT:,}", "600 at once: tokens"]
    return markdown_table(header, rows)


def draw(figure: Figure, measured: Measured) -> None:
    """Three panels of bars, times BF16."""
    names = [words.replace(" ", "\n", 1) for words in FORMATS.values()]
    for axis, (name, title) in zip(figure.subplots(1, 3, sharey=True), PANELS.items(), strict=True):
        gains = {
            short: (color, [measured.numbers[f"{short.lower()}_{weights}_{name}"] for weights in FORMATS])
            for short, color in GPUS.values()
        }
        grouped_bars(axis, names, gains)
        axis.axhline(1, color="#999999", linewidth=0.8)
        axis.set_title(title)
    figure.axes[0].set_ylabel("times as fast as BF16")
    figure.axes[0].legend()


CLAIM: Final = Claim(
    name="weight_formats",
    order=50,
    title="Narrower weights",
    says=(
        "4-bit weights make decoding about 3 times as fast where it is bound by memory and prefill no faster "
        "(measured for Qwen3-32B: 2.7 times on an H100 with vLLM, "
        "[aimultiple](https://aimultiple.com/llm-quantization), 2.9 times on an RTX PRO 6000 with SGLang, "
        "[treeru](https://treeru.com/en/blog/awq-quantization-speed-comparison)); FP8 helps both on Hopper."
    ),
    setting=(
        "Qwen3-32B on one GPU: one request at a time with a prompt of 4,096 tokens; 64 at once with short prompts; "
        "600 at once with prompts and answers of 256. Where the time of a token goes, one request: on H100 of 24.9 "
        "ms BF16 21.7 are products with weights, 0.5 the LM head, 1.1 attention, 0.7 sampling, 0.9 norms and other "
        "small kernels. 4-bit weights (4.16 bits with their scales) turn 21.7 into 7.4 ms, a factor of 2.9 and not "
        "3.8, since a dequantising kernel of 30 to 60 us spends 6 starting and reaches 82 % of the bandwidth; all "
        "else stays as it was, so 10.6 ms are 2.3 times, not 2.9. FP8 turns them into 12.8 ms (1.7: its kernels "
        "start slower too) and adds 0.5 for quantising the inputs: 1.5 times. On A100 4-bit products take 13.7 ms of "
        "BF16's 39.3, as fitted to TensorRT-LLM's kernels. Prefill of 4,096 tokens on H100: products take 360 of 425 "
        "ms in BF16, 260 in FP8 (one scale a tensor), 228 in FP8 scaled in blocks as Qwen3-32B-FP8 is, 371 in 4 bit, "
        "whose kernels compute in 16 bit and dequantise besides; attention, activations and norms are 60 whatever "
        "the weights, and quantising inputs 12. vLLM's FP8 kernels for long sums are no faster than that in the "
        "tables fitted: with one scale a tensor 0.8 to 1.1 PFLOP/s, of 1.98 in the datasheet. An A100 has no FP8 "
        "units and runs FP8 weights through a dequantising kernel. With 64 requests the gain of 4 bits shrinks, "
        "since dequantising is work. At saturation narrower weights give most through memory: BF16 leaves few GB of "
        "an 80 GB GPU for the cache. W8A16 on H100 is fitted to a kernel of SGLang that takes 25 us to start; vLLM's "
        "may do better. What quantisation does to answers is not modelled. Products without a table of their own on "
        "a GPU (W4A16 on H100; NF4, MXFP4 and NVFP4 on most) are assumed from the datasheet and usual efficiencies."
    ),
    measure=measure,
    bounds={
        "a100_awq_decode": (2, 3.5),
        "h100_awq_decode": (2, 3.5),
        "a100_awq_prefill": (0.8, 1.05),
        "h100_awq_prefill": (0.8, 1.05),
        "h100_fp8_decode": (1.4, 1.9),
        "h100_fp8_prefill": (1.2, 1.9),
        "h100_fp8_block_decode": (1.4, 1.9),
        "h100_fp8_block_prefill": (1.3, 1.9),
        "a100_awq_batched": (1, 2),
        "h100_awq_batched": (1, 2),
        "a100_int8_decode": (1.5, 1.9),
        "a100_int8_prefill": (1.3, 1.9),
        "h100_awq_throughput": (1.2, 4),
    },
    table=table,
    draw=draw,
)
