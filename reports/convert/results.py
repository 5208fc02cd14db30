"""Result files of benchmark tools as measured cases of ``servecast validate``.

vLLM's ``bench serve`` reports TPOT a request and ITL a gap, both in ms. GuideLLM, AIPerf and GenAI-Perf call the mean
gap of a request its inter-token latency, which is TPOT. inference-perf reports seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard

from sim.errors import InputError

Document = dict[str, Any]
_STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")


def is_vllm_bench(data: Mapping[str, Any]) -> bool:
    """`vllm bench serve --save-result`."""
    return "request_throughput" in data and "total_input_tokens" in data


def is_guidellm(data: Mapping[str, Any]) -> bool:
    """`guidellm benchmark --output-path x.json`."""
    return isinstance(data.get("benchmarks"), list)


def is_aiperf(data: Mapping[str, Any]) -> bool:
    """``profile_export_aiperf.json`` or ``profile_export_genai_perf.json``."""
    return isinstance(data.get("request_latency"), dict) and "avg" in data["request_latency"]


def is_inference_perf(data: Mapping[str, Any]) -> bool:
    """``summary_lifecycle_metrics.json``, or that of a stage."""
    return isinstance(data.get("successes"), dict) and "latency" in data["successes"]


def vllm_bench_case(data: Mapping[str, Any]) -> Iterator[Document]:
    """One case of a result of ``vllm bench serve``."""
    measured: Document = {}
    for ours, theirs in (("ttft_s", "ttft"), ("tpot_s", "tpot"), ("itl_s", "itl"), ("e2e_s", "e2el")):
        values = {name: data.get(f"{'median' if name == 'p50' else name}_{theirs}_ms") for name in _STATISTICS}
        values["p50"] = values["p50"] if values["p50"] is not None else data.get(f"p50_{theirs}_ms")
        _put(measured, ours, values, 1e-3)
    names = {"request_throughput": "requests_per_s", "output_throughput": "output_tokens_per_s",
             "total_token_throughput": "total_tokens_per_s"}  # fmt: skip
    _put(measured, "throughput", {ours: data.get(theirs) for theirs, ours in names.items()})
    completed = _count(data.get("completed"), "completed")
    concurrency = data.get("max_concurrency")
    workload = {
        "num_requests": completed,
        "arrivals": _arrivals(data.get("request_rate"), data.get("burstiness", 1.0), concurrency, completed),
        "prompt_tokens": _lengths(data.get("input_lens"), data.get("total_input_tokens"), completed),
        "output_tokens": _lengths(data.get("output_lens"), data.get("total_output_tokens"), completed),
    }
    notes = [] if data.get("input_lens") else ["lengths are means: run the benchmark with --save-detailed for each"]
    if concurrency is not None and _rate(data.get("request_rate")) is not None:
        notes.append(f"the client kept at most {concurrency} requests in flight, which the arrivals do not show")
    yield _case(f"vllm-bench {data.get('model_id', '')}", "vllm bench serve", data.get("model_id"), workload, measured,
                notes)  # fmt: skip


def guidellm_cases(data: Mapping[str, Any]) -> Iterator[Document]:
    """A case for each benchmark (each rate) of a GuideLLM report."""
    model = _at(data, "args.model") or _at(data, "args.backend_kwargs.model")
    for number, benchmark in enumerate(_list(data["benchmarks"], "benchmarks")):
        metrics = _mapping(benchmark.get("metrics"), f"benchmarks.{number}.metrics")
        measured: Document = {}
        for ours, theirs, factor in (("ttft_s", "time_to_first_token_ms", 1e-3),
                                     ("tpot_s", "inter_token_latency_ms", 1e-3),
                                     ("e2e_s", "request_latency", 1.0)):  # fmt: skip
            found = _at(metrics, f"{theirs}.successful") or {}
            values = {name: found.get(name, _at(found, f"percentiles.{name}")) for name in _STATISTICS}
            values["p50"] = values["p50"] if values["p50"] is not None else found.get("median")
            _put(measured, ours, values, factor)
        names = {"requests_per_second": "requests_per_s", "output_tokens_per_second": "output_tokens_per_s",
                 "tokens_per_second": "total_tokens_per_s"}  # fmt: skip
        _put(measured, "throughput", {ours: _at(metrics, f"{name}.successful.mean") for name, ours in names.items()})
        completed = _count(_at(metrics, "request_totals.successful"), "request_totals.successful")
        strategy = _at(benchmark, "config.strategy") or _at(benchmark, "args.strategy") or {}
        workload = {
            "num_requests": completed,
            "arrivals": _strategy(strategy, completed),
            "prompt_tokens": _mean_tokens(_at(metrics, "prompt_token_count.successful.mean"), "prompt_token_count"),
            "output_tokens": _mean_tokens(_at(metrics, "output_token_count.successful.mean"), "output_token_count"),
        }
        kind = str(strategy.get("type_", "")).strip()
        notes = ["lengths are means"]
        model_here = _at(benchmark, "config.backend.model") or model
        yield _case(f"guidellm {number + 1} {kind}", "GuideLLM", model_here, workload, measured, notes)


def _strategy(strategy: Mapping[str, Any], completed: int) -> Document:
    kind, rate = strategy.get("type_"), strategy.get("rate")
    if kind in ("constant", "poisson") and _rate(rate) is not None:
        return {"process": kind, "rate_per_s": float(rate or 0)}
    streams = {"synchronous": 1, "concurrent": strategy.get("streams"), "throughput": strategy.get("max_concurrency")}
    return {"process": "closed_loop", "concurrency": min(int(streams.get(str(kind)) or completed), completed)}


def aiperf_case(data: Mapping[str, Any]) -> Iterator[Document]:
    """One case of an export of AIPerf or GenAI-Perf."""
    measured: Document = {}
    for ours, theirs in (("ttft_s", "time_to_first_token"), ("tpot_s", "inter_token_latency"),
                         ("e2e_s", "request_latency")):  # fmt: skip
        found = data.get(theirs) or {}
        factor = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(str(found.get("unit", "ms")), 1.0)
        _put(measured, ours, {name: found.get("avg" if name == "mean" else name) for name in _STATISTICS}, factor)
    names = {"request_throughput": "requests_per_s", "output_token_throughput": "output_tokens_per_s",
             "total_token_throughput": "total_tokens_per_s"}  # fmt: skip
    _put(measured, "throughput", {ours: _at(data, f"{theirs}.avg") for theirs, ours in names.items()})
    counted = _at(data, "request_count.avg") or _at(data, "request_latency.count") or _at(data, "request_count")
    completed = _count(counted, "request_count")
    config = data.get("input_config") or {}
    rate = _at(config, "loadgen.request_rate") or _at(config, "perf_analyzer.stimulus.request_rate")
    concurrency = _at(config, "loadgen.concurrency") or _at(config, "perf_analyzer.stimulus.concurrency")
    workload = {
        "num_requests": completed,
        "arrivals": _arrivals(rate, 1.0, concurrency, completed),
        "prompt_tokens": _spread(data.get("input_sequence_length"), "input_sequence_length"),
        "output_tokens": _spread(data.get("output_sequence_length"), "output_sequence_length"),
    }
    models = _at(config, "endpoint.model_names") or config.get("model_names") or [None]
    notes = [] if rate or concurrency else ["the export names no rate and no concurrency: all requests at once"]
    tool = "AIPerf" if "aiperf_version" in data or "loadgen" in config else "AIPerf or GenAI-Perf"
    yield _case(f"aiperf {models[0] or ''}", tool, models[0], workload, measured, notes)


def inference_perf_case(data: Mapping[str, Any]) -> Iterator[Document]:
    """One case of a summary of inference-perf."""
    good = data["successes"]
    measured: Document = {}
    for ours, theirs in (("ttft_s", "time_to_first_token"), ("tpot_s", "time_per_output_token"),
                         ("itl_s", "inter_token_latency"), ("e2e_s", "request_latency")):  # fmt: skip
        found = _at(good, f"latency.{theirs}") or {}
        values = {name: found.get("median" if name == "p50" and "p50" not in found else name) for name in _STATISTICS}
        _put(measured, ours, values)
    names = {"requests_per_sec": "requests_per_s", "input_tokens_per_sec": "input_tokens_per_s",
             "output_tokens_per_sec": "output_tokens_per_s", "total_tokens_per_sec": "total_tokens_per_s"}  # fmt: skip
    _put(measured, "throughput", {ours: _at(good, f"throughput.{theirs}") for theirs, ours in names.items()})
    completed = _count(good.get("count"), "successes.count")
    rate = _at(data, "load_summary.achieved_rate") or _at(data, "load_summary.requested_rate")
    if rate is None:
        rate = _at(good, "throughput.requests_per_sec")
    workload = {
        "num_requests": completed,
        "arrivals": _arrivals(rate, 1.0, None, completed),
        "prompt_tokens": _spread(good.get("prompt_len"), "successes.prompt_len"),
        "output_tokens": _spread(good.get("output_len"), "successes.output_len"),
    }
    notes = ["Poisson arrivals are assumed: the summary does not say", "output lengths are the client's count"]
    yield _case("inference-perf", "inference-perf", None, workload, measured, notes)


READERS: Final[dict[str, tuple[Callable[[Mapping[str, Any]], bool], Callable[..., Iterator[Document]]]]] = {
    "vllm-bench": (is_vllm_bench, vllm_bench_case),
    "guidellm": (is_guidellm, guidellm_cases),
    "aiperf": (is_aiperf, aiperf_case),
    "inference-perf": (is_inference_perf, inference_perf_case),
}


def _case(name: str, source: str, model: Any, workload: Document, measured: Document, notes: list[str]) -> Document:
    scenario = {"model": str(model) if model else None, "workload": workload}
    return {"name": " ".join(name.split()), "source": source, "scenario": scenario, "measured": measured,
            "notes": "; ".join(notes)}  # fmt: skip


def _put(measured: Document, metric: str, values: Mapping[str, Any], factor: float = 1.0) -> None:
    """Keep the numbers of ``values``; what was not measured is left out."""
    kept = {name: float(value) * factor for name, value in values.items() if _number(value)}
    if kept:
        measured[metric] = kept


def _number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18


def _rate(value: Any) -> float | None:
    """Requests a second; None for 'inf', a missing one and what is none."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        return None
    return rate if 0 < rate < 1e9 else None


def _arrivals(rate: Any, burstiness: Any, concurrency: Any, completed: int) -> Document:
    """vLLM's burstiness b makes gaps gamma with shape b, a variation of b ** -0.5."""
    finite = _rate(rate)
    if finite is None:
        users = concurrency if _number(concurrency) and concurrency >= 1 else completed
        return {"process": "closed_loop", "concurrency": min(int(users), completed)}
    if not _number(burstiness) or burstiness in (0, 1):
        return {"process": "poisson", "rate_per_s": finite}
    return {"process": "gamma", "rate_per_s": finite, "cv": float(burstiness) ** -0.5}


def _lengths(each: Any, total: Any, completed: int) -> Any:
    """The lengths of every request where they are there, else their mean."""
    if isinstance(each, list) and each and all(_number(value) and value >= 1 for value in each):
        ordered = sorted(int(value) for value in each)
        levels = (0.0, 0.01, 0.05, *(step / 10 for step in range(1, 10)), 0.95, 0.99, 1.0)
        return {"distribution": "empirical",
                "quantiles": {level: ordered[round(level * (len(ordered) - 1))] for level in levels}}  # fmt: skip
    return _mean_tokens(total / completed if _number(total) else None, "total tokens")


def _spread(found: Any, where: str) -> Any:
    """A distribution from its percentiles; the mean where there are none."""
    found = _mapping(found, where)
    names = {0.0: "min", 0.25: "p25", 0.5: "p50", 0.75: "p75", 0.9: "p90", 0.95: "p95", 0.99: "p99", 1.0: "max"}
    points = {level: found.get(name, found.get("median") if name == "p50" else None) for level, name in names.items()}
    kept = {level: max(1, round(value)) for level, value in points.items() if _number(value)}
    values = list(kept.values())
    if 0.0 in kept and 1.0 in kept and values == sorted(values):
        return values[0] if values[0] == values[-1] else {"distribution": "empirical", "quantiles": kept}
    return _mean_tokens(found.get("avg", found.get("mean")), where)


def _mean_tokens(mean: Any, where: str) -> int:
    if not _number(mean) or mean < 0.5:
        raise InputError(where, f"is {mean!r}, not a number of tokens", "give a result of requests that were served")
    return max(1, round(mean))


def _count(value: Any, where: str) -> int:
    if not _number(value) or value < 1:
        raise InputError(where, f"is {value!r}: no request was completed", "give a result of requests that were served")
    return int(value)


def _at(data: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    return data


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(where, "is missing", "give the whole result file")
    return value


def _list(value: Any, where: str) -> list[Mapping[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        raise InputError(where, "holds no benchmark", "give the whole result file")
    return value
