"""The benchmark commands that would verify a plan on real servers: the same traffic, the same statistics.

Flags as in vllm/benchmarks/serve.py (vLLM 0.15), configurations as in inference-perf's examples, and guidellm's
benchmark command.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, Final

from sim.planner.case import Case
from sim.scenario import Scenario

URL: Final = "http://localhost:8000"
_LESS_BURSTY: Final = "arrivals are a plain Poisson process, less bursty than planned"


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload as benchmark clients know it: a rate or a concurrency, and lengths with a spread."""

    requests: int
    rate_per_s: float
    concurrency: int | None
    burstiness: float
    prompt: dict[str, float]
    output: dict[str, float]
    prefix_tokens: int
    groups: int
    prompts_per_group: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BenchCommand:
    """A client's command, and the files it reads."""

    client: str
    line: str
    files: dict[str, str]
    notes: tuple[str, ...]


def bench_commands(scenario: Scenario) -> list[BenchCommand]:
    """vllm bench serve, inference-perf and guidellm, for the traffic of ``scenario``."""
    traffic = traffic_of(scenario)
    return [_vllm(scenario, traffic), _inference_perf(scenario, traffic), _guidellm(scenario, traffic)]


def traffic_of(scenario: Scenario) -> Traffic:
    """The traffic, with a note for whatever clients cannot send."""
    case = Case.of(scenario)
    demand = case.demand(1, 1.0, prefix_caching=False)
    spec, notes = scenario.workload, []
    arrivals: Any = spec.trace.arrivals if spec.trace is not None else spec.arrivals
    process = getattr(arrivals, "process", "the trace's own times")
    burstiness = getattr(arrivals, "cv", 1.0) ** -2 if process == "gamma" else 1.0
    if process not in ("poisson", "gamma", "closed_loop"):
        notes.append(f"arrivals ({process}) are sent as a Poisson process of their mean rate")
    if spec.sessions is not None:
        notes.append("turns of a conversation are sent as requests of their own")
    answers = spec.n or 1
    if answers > 1:
        notes.append(f"the {answers} answers to a prompt are sent as requests that have nothing in common")
    if spec.beam_width is not None:
        notes.append("beam search cannot be sent: a token of each beam waits for those before")
    if spec.trace is not None:
        notes.append("lengths are those of the trace on average, not request by request")
    prefixes = spec.prefixes
    return Traffic(
        requests=len(demand),
        rate_per_s=case.load.given * answers,
        concurrency=round(case.load.given) if case.load.unit == "users" else None,
        burstiness=burstiness,
        prompt=_figures(demand.new_tokens),
        output=_figures(demand.output_tokens),
        prefix_tokens=prefixes.prefix_tokens if prefixes else 0,
        groups=prefixes.groups if prefixes else 1,
        prompts_per_group=(prefixes.prompts_per_group or 0) if prefixes else 0,
        notes=tuple(notes),
    )


def _figures(tokens: Any) -> dict[str, float]:
    return {"mean": float(tokens.mean()), "std": float(tokens.std()), "min": float(tokens.min()),
            "max": float(tokens.max())}  # fmt: skip


def _vllm(scenario: Scenario, traffic: Traffic) -> BenchCommand:
    notes = list(traffic.notes)
    spread = {"input": _range_ratio(traffic.prompt), "output": _range_ratio(traffic.output)}
    if max(spread.values()) > 0:
        notes.append("lengths are uniform around the mean with about the same spread")
    ratio = json.dumps(spread) if max(spread.values()) > 0 else "0"
    words = [
        "vllm", "bench", "serve", "--backend", "openai", "--base-url", URL, "--model", scenario.model,
        "--dataset-name", "random",
        "--random-input-len", str(round(traffic.prompt["mean"]) - traffic.prefix_tokens),
        "--random-output-len", str(round(traffic.output["mean"])),
        "--random-range-ratio", ratio,
        *(["--random-prefix-len", str(traffic.prefix_tokens)] if traffic.prefix_tokens else []),
        "--num-prompts", str(traffic.requests),
        *_pace(traffic),
        "--ignore-eos", "--seed", str(scenario.seed),
        "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,95,99",
        *_goodput(scenario),
    ]  # fmt: skip
    if traffic.groups > 1:
        notes.append(f"all prompts begin alike, instead of in {traffic.groups} groups")
    return BenchCommand("vllm bench serve", shlex.join(words), {}, tuple(notes))


def _pace(traffic: Traffic) -> list[str]:
    if traffic.concurrency is not None:
        return ["--request-rate", "inf", "--max-concurrency", str(traffic.concurrency)]
    burst = ["--burstiness", f"{traffic.burstiness:.4g}"] if traffic.burstiness != 1.0 else []
    return ["--request-rate", f"{traffic.rate_per_s:.4g}", *burst]


def _goodput(scenario: Scenario) -> list[str]:
    """Bounds on each request, milliseconds, under the client's names."""
    names = {"ttft": "ttft", "tpot": "tpot", "e2e": "e2el"}
    bounds = [f"{names[metric]}:{bound_s * 1e3:g}" for metric, bound_s in scenario.slo.per_request().items()]
    return ["--goodput", *bounds] if bounds else []


def _range_ratio(figures: dict[str, float]) -> float:
    """Half the width of a uniform distribution of this standard deviation, over its mean; below 1."""
    return round(min(0.95, figures["std"] * 3**0.5 / figures["mean"]), 2)


def _inference_perf(scenario: Scenario, traffic: Traffic) -> BenchCommand:
    notes = list(traffic.notes)
    if traffic.concurrency is not None:
        load = ["  type: concurrent", "  stages:",
                f"  - {{concurrency_level: {traffic.concurrency}, num_requests: {traffic.requests}}}"]  # fmt: skip
    else:
        seconds = max(1, round(traffic.requests / traffic.rate_per_s))
        load = ["  type: poisson", "  stages:", f"  - {{rate: {traffic.rate_per_s:.4g}, duration: {seconds}}}"]
    lines = [
        "load:", *load,
        "api: {type: completion, streaming: true}",
        f"server: {{type: {_server(scenario)}, model_name: {scenario.model}, base_url: {URL}, ignore_eos: true}}",
        f"tokenizer: {{pretrained_model_name_or_path: {scenario.model}}}",
        "data:", *_data(traffic),
        "report: {request_lifecycle: {summary: true, per_stage: true, per_request: true}}",
    ]  # fmt: skip
    if traffic.burstiness != 1.0:
        notes.append(_LESS_BURSTY)
    files = {"inference-perf.yaml": "\n".join(lines) + "\n"}
    return BenchCommand("inference-perf", "inference-perf --config_file inference-perf.yaml", files, tuple(notes))


def _server(scenario: Scenario) -> str:
    return scenario.engine.preset if scenario.engine.preset in ("vllm", "sglang", "tgi") else "vllm"


def _data(traffic: Traffic) -> list[str]:
    if traffic.prompts_per_group:
        return ["  type: shared_prefix", "  shared_prefix:",
                f"    num_unique_system_prompts: {traffic.groups}",
                f"    num_users_per_system_prompt: {traffic.prompts_per_group}",
                f"    system_prompt_len: {traffic.prefix_tokens}",
                f"    question_len: {round(traffic.prompt['mean']) - traffic.prefix_tokens}",
                f"    output_len: {round(traffic.output['mean'])}"]  # fmt: skip
    lines = ["  type: random"]
    for name, figures in (("input", traffic.prompt), ("output", traffic.output)):
        inside = ", ".join(f"{key}: {round(figures[key])}" for key in ("min", "max", "mean", "std"))
        lines.append(f"  {name}_distribution: {{{inside}, total_count: {traffic.requests}}}")
    return lines


def _guidellm(scenario: Scenario, traffic: Traffic) -> BenchCommand:
    data = []
    for name, figures in (("prompt", traffic.prompt), ("output", traffic.output)):
        data.append(f"{name}_tokens={round(figures['mean'])}")
        if figures["std"] > 0.5:
            data += [f"{name}_tokens_stdev={round(figures['std'])}", f"{name}_tokens_min={round(figures['min'])}",
                     f"{name}_tokens_max={round(figures['max'])}"]  # fmt: skip
    if traffic.concurrency is not None:
        pace = ["--rate-type", "concurrent", "--rate", str(traffic.concurrency)]
    else:
        pace = ["--rate-type", "poisson", "--rate", f"{traffic.rate_per_s:.4g}"]
    words = ["guidellm", "benchmark", "--target", URL, "--model", scenario.model, *pace,
             "--max-requests", str(traffic.requests), "--data", ",".join(data),
             "--random-seed", str(scenario.seed)]  # fmt: skip
    notes = list(traffic.notes)
    if traffic.prefix_tokens:
        notes.append("prompts share no beginnings: latency will be higher than planned")
    if traffic.burstiness != 1.0:
        notes.append(_LESS_BURSTY)
    return BenchCommand("guidellm", shlex.join(words), {}, tuple(notes))
