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
Dense models from the silicon sample of aiconfigurator: TensorRT-LLM, SGLang and vLLM at 8 to 512 users, each with
its own scheduler preset. How such runs are made is in the source's repository, and the cases follow it: its runners
send prompts and answers of one fixed length, ten requests a user after a warm-up, and read means; its generator
sets a budget of prompt + 1,500 tokens + batch, no chunked prefill and no block reuse (TensorRT-LLM), mixed chunks
(SGLang), and an 8-bit cache with 8-bit weights. With one length, users stay in step with each other: those who
start together prefill one after the other and end one after the other, which is what TTFT is made of. (Lengths
drawn in 0.8 to 1.0 of nominal, as other parts of that sample have, give a median TTFT error of 42 % and TPOT error
of 8.5 %.)

Not known: the largest batch (256 or the users are taken), and how many engines stood behind a front end; the
generator starts as many as fit on a node and gives the concurrency of all. For the rows of vLLM 0.12 one engine is
predicted to take twice the measured TPOT, so there probably were several. SGLang's TTFT at 240 to 512 users is
seconds, and its steps take 23 to 40 ms on one, two, four or eight GPUs alike, which points to host time that grows
with the batch."""

KERNELS: Final = """\
Median / p90 of |predicted / measured - 1| in per cent, on the quarter of the shapes of a kernel table that the fit
did not see (products with n and k of at least 1,024, decode batches up to 512; of all-reduce every other message
size, 11 for each number of GPUs). The figures are those that the shipped profiles carry; `servecast calibrate fit`
prints them for any table. Bold: beyond the target."""

UNTARGETED_KERNELS: Final = """\
Latent attention and experts, for which no target is set; of experts, shapes that are in no table. Those that are in
one are met within 2 / 12 % (their anchors), all-reduce with all message sizes seen within 2 / 5 %."""

ENGINE_RUNS: Final = """\
Logs of vLLM 0.32.0 serving a random-weight Llama on two CPU cores, in `tests/calibration/engine_runs`. The fit sees
single prompts and batches; these loads are predicted. Signed errors in per cent; equal batches are steps in which
the simulator's scheduler chose the same members and tokens as the engine's.

    servecast calibrate engine --logs tests/calibration/engine_runs"""

CPU_LOOP: Final = """\
A small decoder in torch, served by the simulator's scheduler on a CPU: microbenchmarks, fit and prediction first,
then the run ([calibration](calibration.md)). Errors in per cent, as recorded: {source}. The target is for an idle
machine; on a shared one, `--clock core` counts the time that the process had a core."""

#: Why a target is missed, and what was tried.
REASONS: Final = {
    "e2e_s.p99": """\
The long tail belongs to first stages of tensor-parallel and mixture-of-experts runs, where a dozen requests wait
for compilation and autotuning, and to hosts that hiccup. Nothing in a scenario says when either happens, so nothing
is added for them.""",
    "attention": """\
Two causes, both of the tables and neither in service. (1) They hold heads of 192, for which the kernel behind an
FP8 cache runs down to twenty times slower than for 128 and 256; the law is one for all sizes. No model of the
catalogue has such heads but those with latent attention, which has a family of its own. Without these rows the p90
of decode attention is 12.4 on B200, 17.3 on L40S and 15.7 on RTX PRO 6000, of prefill attention 16 to 17 on all
devices. A node at 192 in the correction grid was tried: p90 14.4 instead of 16.1 (B200, decode) and 27.4 instead of
29.2 (B300, prefill), since only some of those shapes fall back. (2) On L40S and RTX PRO 6000 a timing loop finds
caches smaller than the L2 (96 and 128 MB) partly there, which a serving engine does not. Rows that move more than
128 MB have a p90 of 11.1 and 8.4 (FP8 cache) and 9.3 and 4.5 (16 bit).""",
    "all-reduce": """\
One message size a rank count, mostly 128 KiB, 512 KiB, 2 MiB or 8 MiB, where the library passes from one algorithm
to the next and time jumps by up to a half. A fit that does not see this size cannot place the jump. Without it,
median / p90 over all rank counts are 1.2 to 2.5 / 4 to 10 for every device. Interpolating between the sizes seen
instead of fitting segments was tried: p90 7 to 16, but 26 on A100, where it smears the jump over two octaves. The
shipped segments are fitted to all sizes and meet them within 2 / 5.""",
    "closed": """\
See *Closed loop at a fixed concurrency* for what is not known of those runs.""",
    "loop": """\
One load of six, and not when it was repeated. The microbenchmarks of that run fitted badly: the held-out median of
decode attention was 19.0 %. Two hours later, on the same idle machine and with the same command, it was 4.7 %, and
the same load came within 4.0 % (steps), -1.1 % (TPOT) and +2.8 % (tokens/s). So the likely cause is how kernels of
tens of microseconds are timed by the wall clock of a virtual machine, not the chain. The table holds both runs.""",
}

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
  requests that find the engine empty). Host plus GPU time for such steps was tried: TTFT mean of the runs not fitted
  on 4.2 % instead of 4.1 (median; bias -6.5 either way), since few of their requests find the engine empty.
- Warm-up. The first requests of tensor-parallel and mixture-of-experts runs take 0.4 to 1.8 s (compilation,
  autotuning); a dozen of them own the p99 of a first stage, and show in its mean at low rates.
- Hiccups of a host: in some runs 1 to 9 % of requests come 20 to 80 ms late at random moments, in sibling runs 0.1 %.
  They own TTFT p99 there.
- KV offload to host memory, where a run had it on (TTFT about 1 ms and its p99 14 to 23 ms longer in sibling runs).
- The difference between two machines: sibling runs that should not differ do so by 3 to 13 % in TPOT."""
