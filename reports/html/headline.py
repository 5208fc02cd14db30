"""The top of the page: what was asked, whether the promise held, and the numbers people look for first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from reports.html.bars import Bar, Part, stacked
from reports.html.markup import Markup, join, table, tag
from reports.terminal import calibration_line, certain, holder, service_title, warnings_of
from reports.text import METRICS, count, gib, number, percent, seconds, span, usd
from reports.tiers_view import tier_cards
from sim.result import Result
from sim.scenario import Scenario
from sim.summary import Extent, Summary

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
    if summary.requests.completed:
        for key, name in (("ttft", "TTFT p99"), ("tpot", "TPOT p99"), ("e2e", "End to end p99")):
            latency = getattr(summary, f"{key}_s")
            yield name, seconds(latency.p99), join([f"p50 {seconds(latency.p50)}", _range(summary, f"{key}_s")])
        rate = f"{number(flow.requests_per_s)} requests/s; {number(flow.output_tokens_per_s_per_gpu)} a GPU"
        yield "Output tokens/s", number(flow.output_tokens_per_s), rate
    if summary.slo.attainment is not None:
        good = f"{percent(summary.slo.attainment)} of requests"
        yield "Goodput, requests/s", number(summary.slo.goodput_requests_per_s), good
    hits = f"; hits {percent(summary.kv.prefix_hit_rate)}" if summary.kv.prefix_hit_rate else ""
    yield "KV cache, peak", percent(summary.kv.peak_utilization), f"mean {percent(summary.kv.mean_utilization)}{hits}"
    if summary.tiers is not None:
        yield from tier_cards(summary.tiers)
    if use.mfu is not None:
        yield "MFU", percent(use.mfu), f"MBU {percent(use.mbu)}; batch {number(use.mean_batch_size)}"
    if cost.usd_per_million_output_tokens is not None:
        hourly = f"{usd(cost.usd_per_hour)}/h for {count(cost.gpus, 'GPU')}"
        yield "A million output tokens", usd(cost.usd_per_million_output_tokens), hourly


def _range(summary: Summary, latency: str) -> Markup | None:
    """Between what the p99 of a latency lies, as far as the calibration knows."""
    if summary.band is not None:
        low, high = (getattr(end, latency).p99 for end in (summary.band.p90.low, summary.band.p90.high))
        words = f"within {span(low, high)}"
    elif (error := summary.calibration.step_time_error_p90) is not None:
        words = f"steps within {percent(error)}"
    else:
        return None
    return join(["; ", tag("span", words, class_="whole")])


def latencies(result: Result) -> Markup:
    """Every statistic of every latency, and every bound with its verdict."""
    summary, scenario = result.summary, result.context.scenario
    rows = [
        (name, *(seconds(getattr(getattr(summary, f"{key}_s"), statistic)) for statistic in _STATISTICS))
        for key, name in METRICS.items()
    ]
    return tag(
        "div",
        table(("", *_STATISTICS), rows, "Latency of completed requests"),
        _promises(summary, scenario),
        _band(summary),
    )


def _band(summary: Summary) -> Markup | None:
    """The range of each figure within the error of step times; None where nobody asked."""
    band = summary.band
    if band is None:
        return None
    ends = [(each.low, each.high) for each in (band.p50, band.p90)]
    rows = [
        (
            f"{name}, {statistic}",
            seconds(getattr(getattr(summary, f"{key}_s"), statistic)),
            *(span(*(getattr(getattr(end, f"{key}_s"), statistic) for end in pair)) for pair in ends),
        )
        for key, name in METRICS.items()
        if key != "queue"
        for statistic in ("mean", "p50", "p99")
    ]
    figures: list[tuple[str, Callable[[Extent], float | None], float | None]] = [
        ("Output tokens/s", lambda end: end.throughput.output_tokens_per_s, summary.throughput.output_tokens_per_s),
        ("Goodput, requests/s", lambda end: end.goodput_requests_per_s, summary.slo.goodput_requests_per_s),
    ]
    for name, figure, value in figures:
        if value is not None:
            rows.append((name, number(value), *(span(figure(low), figure(high), number) for low, high in ends)))
    off = [f"steps off by {percent(each.step_time_error)}" for each in (band.p50, band.p90)]
    source = summary.calibration.step_time_error_source
    note = (
        f"The scenario simulated again with every step slower and faster by the error of the hardware profile: its "
        f"median, and what nine of ten stay within ({source}). What the calibration leaves open, nothing else."
    )
    caption = "Range within the error of step times"
    inside = join([table(("", "predicted", *off), rows), tag("p", note, class_="note")])
    return tag("details", tag("summary", caption), inside)


def _promises(summary: Summary, scenario: Scenario) -> Markup | None:
    rows = []
    for key, (metric, statistic, bound_s) in scenario.slo.statistics().items():
        met = summary.slo.met.get(key)
        word, kind = _VERDICTS[met]
        measured = seconds(getattr(getattr(summary, f"{metric}_s"), statistic))
        sure = tag("span", word, class_=kind)
        if not certain(summary, metric, statistic, bound_s):
            sure = join([sure, " (not surely: the step error spans it)"])
        rows.append((f"{METRICS[metric]}, {statistic}", seconds(bound_s), measured, sure))
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
    kv = result.summary.kv
    note = (
        f"{gib(use.total_bytes)} in all, of which the engine may take {gib(use.usable_bytes)}. The KV cache holds "
        f"{number(kv.capacity_tokens)} tokens in {number(kv.num_gpu_blocks)} blocks of {kv.block_size}"
        f"{holder(result.context.scenario)}; a token takes "
        f"{number((kv.bytes_per_token or 0) / 1024)} KiB on all GPUs together."
    )
    bar = Bar("each GPU", (*parts, Part("not used", max(rest, 0), 0)))
    return tag("div", stacked("Where the bytes go", [bar], gib), tag("p", note, class_="note"))
