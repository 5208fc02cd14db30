"""The prose of docs/accuracy.md."""

from __future__ import annotations

from typing import Final

HEAD: Final = """\
# Accuracy

How far predictions are from what real deployments did. This page is generated: nothing on it is typed in by hand
but its prose and the figures of other simulators.

    python -m calibration.accuracy_report                    # writes this page and its plot
    servecast validate tests/accuracy/cases                  # the same numbers in a terminal; --json for programs
    servecast validate tests/accuracy/cases --where group=report --where knee=below --max-error e2e_s.mean=2.5

A measured case is a YAML file: the scenario, the figures that were measured, and where they were published.
Anything in `summary.json` can be measured; latencies may be given for windows of arrival time (a run whose rate
changes):

    name: my-run
    source: where the measurement is published
    scenario: {model: ..., hardware: ..., workload: ...}      # inline, or a path
    measured: {ttft_s: {mean: 0.105, p99: 0.31}, throughput: {output_tokens_per_s: 1833.9}}
    tags: {gpu: h100-sxm}                                     # for --where

The shipped cases are in `tests/accuracy/cases`, written by `python -m calibration.cases_build` from a table of
published runs; its modules say what each source really measured."""

SCORING: Final = """\
## How it is scored

- An error is 100 x (predicted - measured) / measured. Tables give the median and the mean of its size, and its
  signed mean (bias), over cases; each stage of a run is a case of its own.
- TPOT is (E2E - TTFT) / (requested tokens - 1) on both sides: the client that measured counts outputs by tokenising
  again.
- *Below the knee*: requests in flight (mean + 2 standard deviations, by Little's law from the measured latency)
  stay below the batch limit. At and past it latencies say nothing but by how much the load exceeds the capacity:
  throughput is scored.
- *fit*: runs that engine constants were set on. *report*: all others. No case is in both. Kernel figures come from
  kernel tables, never from these runs."""

LEAGUE: Final = """\
## The league

Median size of the error in %, as published for such runs (inference-sim's own comparison, and LLMServingSim's)."""

FITTED: Final = """\
Constants of the engine were set on runs of these models on an H100: Llama-2-7B and Qwen3-14B (time before the engine's
queue, host time of a step, compute sustained under load), Llama-3.1-8B and Qwen3-14B (sorting of logits), Mixtral-8x7B
and Llama-4-Scout (skew of the router); and on the runs on A100, L40S and RTX cards (memory bandwidth in service, tiles
of mixed steps). All those runs are *fit*. No constant knows a model or a GPU by name. Residuals of the other runs were
looked at to find which physics was missing, not to set a number; treat them as held out by model, not as blind."""

CLOSED_LOOP: Final = """\
Dense models from the silicon sample of aiconfigurator: TensorRT-LLM, SGLang and vLLM at 8 to 512 users, each with its
own scheduler preset. The sample does not say whether its figures are means or medians, how many requests were sent, or
the engine's limits; ten requests a user are assumed. TTFT depends on how long users stay in step with each other, which
the number of requests decides."""

LEFT_OUT: Final = """\
## Left out

- Overloaded runs (reasoning profiles at 4 requests/s): three fifths of their requests failed, or waited minutes.
- One run whose rate is not confirmed (Llama-3.1-8B, reasoning).
- Closed-loop rows whose prompts alone would need more than 75 % of the datasheet FLOP/s of the GPUs they name.
- Closed-loop rows of mixture-of-experts models, and prefill/decode splits."""

NOT_MODELLED: Final = """\
## Not modelled

- Repetition penalties (Qwen 2.5 asks for one) and the Triton sampling kernel of vLLM 0.16 and later, which is taken as
  free; top-p and top-k by sorting (vLLM up to 0.15) is modelled.
- A step that starts on an idle engine: its host work is not hidden behind another step (3 to 5 ms of TTFT for the
  requests that find the engine empty).
- Warm-up. The first requests of tensor-parallel and mixture-of-experts runs take 0.4 to 1.8 s (compilation,
  autotuning); a dozen of them own the p99 of a first stage, and show in its mean at low rates.
- Hiccups of a host: in some runs 1 to 9 % of requests come 20 to 80 ms late at random moments, in sibling runs 0.1 %.
  They own TTFT p99 there.
- KV offload to host memory, where a run had it on (TTFT about 1 ms and its p99 14 to 23 ms longer in sibling runs).
- The difference between two machines: sibling runs that should not differ do so by 3 to 13 % in TPOT."""
