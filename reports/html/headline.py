"""The top of the page: what was asked, whether the promise held, and the numbers people look for first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from reports.html.bars import Bar, Part, stacked
from reports.html.figures import METRICS
from reports.html.markup import Markup, table, tag
from reports.terminal import calibration_line, service_title, warnings_of
from reports.text import count, gib, number, percent, seconds, usd
from sim.result import Result
from sim.scenario import Scenario
from sim.summary import Summary

_STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


_VERDICTS: Final = {True: ("✓ met", "met"), False: ("✗ missed", "missed"), None: ("not measured", "soft")}


def headline(result: Result) -> Markup:
    """Name, verdict, tiles and warnings."""
    summary, scenario = result.summary, result.context.scenario
    requests = summary.requests
    done = f"{requests.completed:,} of {count(requests.submitted, 'request')} served in {seconds(summary.duration_s)}"
    items = [tag("li", text) for text in warnings_of(summary, scenario)]
    return tag(
        "header",
        tag("h1", summary.name),
        tag("p", f"{service_title(scenario)}. {done}.", class_="soft"),
        tag("p", f"Step times: {calibration_line(summary, scenario)}", class_="soft"),
        _verdict(summary),
        tag("dl", *(_tile(*each) for each in _tiles(summary)), class_="tiles"),
        tag("ul", *items, class_="notes") if items else None,
    )


def _verdict(summary: Summary) -> Markup:
    verdicts = list(summary.slo.met.values())
    missed = sum(met is False for met in verdicts)
    if missed:
        words, kind = f"✗ Promise missed: {missed} of {count(len(verdicts), 'bound')}", "bad"
    elif summary.load.overloaded:
        words, kind = "✗ Overloaded: requests pile up", "bad"
    elif verdicts and all(verdicts):
        words, kind = f"✓ Promise kept: {count(len(verdicts), 'bound')}", "good"
    else:
        words, kind = "No promise measured" if verdicts else "No promise given", "plain"
    return tag("p", words, class_=f"verdict {kind}")


def _tile(name: str, big: str, small: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", big, class_="big"), tag("dd", small, class_="small"), class_="tile")


def _tiles(summary: Summary) -> Iterator[tuple[str, str, str]]:
    flow, use, cost = summary.throughput, summary.utilization, summary.cost
    band = _band(summary)
    if summary.requests.completed:
        for key, name in (("ttft", "TTFT p99"), ("tpot", "TPOT p99"), ("e2e", "End to end p99")):
            latency = getattr(summary, f"{key}_s")
            yield name, seconds(latency.p99), f"p50 {seconds(latency.p50)}{band}"
        rate = f"{number(flow.requests_per_s)} requests/s; {number(flow.output_tokens_per_s_per_gpu)} a GPU"
        yield "Output tokens/s", number(flow.output_tokens_per_s), rate
    if summary.slo.attainment is not None:
        good = f"{percent(summary.slo.attainment)} of requests"
        yield "Goodput, requests/s", number(summary.slo.goodput_requests_per_s), good
    hits = f"; hits {percent(summary.kv.prefix_hit_rate)}" if summary.kv.prefix_hit_rate else ""
    yield "KV cache, peak", percent(summary.kv.peak_utilization), f"mean {percent(summary.kv.mean_utilization)}{hits}"
    if use.mfu is not None:
        yield "MFU", percent(use.mfu), f"MBU {percent(use.mbu)}; batch {number(use.mean_batch_size)}"
    if cost.usd_per_million_output_tokens is not None:
        hourly = f"{usd(cost.usd_per_hour)}/h for {count(cost.gpus, 'GPU')}"
        yield "A million output tokens", usd(cost.usd_per_million_output_tokens), hourly


def _band(summary: Summary) -> str:
    """What the calibration leaves open, where it is known."""
    error = summary.calibration.step_time_error_p90
    return "" if error is None else f"; steps within {percent(error)}"


def latencies(result: Result) -> Markup:
    """Every statistic of every latency, and every bound with its verdict."""
    summary, scenario = result.summary, result.context.scenario
    rows = [
        (name, *(seconds(getattr(getattr(summary, f"{key}_s"), statistic)) for statistic in _STATISTICS))
        for key, name in METRICS.items()
    ]
    return tag("div", table(("", *_STATISTICS), rows, "Latency of completed requests"), _promises(summary, scenario))


def _promises(summary: Summary, scenario: Scenario) -> Markup | None:
    rows = []
    for key, (metric, statistic, bound_s) in scenario.slo.statistics().items():
        met = summary.slo.met.get(key)
        word, kind = _VERDICTS[met]
        measured = seconds(getattr(getattr(summary, f"{metric}_s"), statistic))
        rows.append((f"{METRICS[metric]}, {statistic}", seconds(bound_s), measured, tag("span", word, class_=kind)))
    return table(("", "promised", "measured", "verdict"), rows, "Promise") if rows else None


def memory(result: Result) -> Markup | None:
    """One GPU's bytes as a bar; None without a memory model."""
    use = result.summary.memory
    if use.total_bytes is None or use.usable_bytes is None:
        return None
    parts = (
        Part("weights", use.weights_bytes or 0, 1),
        Part("activations", use.activation_bytes or 0, 4),
        Part("other of the engine", use.overhead_bytes or 0, 5),
        Part("KV cache", use.kv_bytes or 0, 3),
    )
    rest = use.total_bytes - sum(int(part.value) for part in parts)
    kv, layout = result.summary.kv, result.context.scenario.layout
    note = (
        f"{gib(use.total_bytes)} in all, of which the engine may take {gib(use.usable_bytes)}. The KV cache holds "
        f"{number(kv.capacity_tokens)} tokens in {number(kv.num_gpu_blocks)} blocks of {kv.block_size}; a token takes "
        f"{number((kv.bytes_per_token or 0) / 1024)} KiB over {count(layout.gpus_per_replica, 'GPU')}."
    )
    bar = Bar("each GPU", (*parts, Part("not used", max(rest, 0), 0)))
    return tag("div", stacked("Where the bytes go", [bar], gib), tag("p", note, class_="note"))
