"""The summary as a person reads it in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.text import count, gib, number, percent, seconds, span, usd
from reports.tiers_view import tier_lines
from sim.scenario import Scenario
from sim.scenario.pools import pools_of
from sim.summary import Band, Extent, Kv, Latency, Summary, Utilization

_METRICS = (
    ("ttft", "TTFT", "time to first token"),
    ("tpot", "TPOT", "time per output token"),
    ("itl", "ITL", "gap between tokens"),
    ("e2e", "E2E", "whole request"),
    ("queue", "queue", "until first scheduled"),
)
_COLUMNS = ("mean", "p50", "p90", "p99", "max")
_BAND_STATISTICS = ("mean", "p99")


def print_summary(
    summary: Summary, scenario: Scenario, out: Path | None = None, console: Console | None = None
) -> None:
    """Print headline, latencies with the promise, and one line each for what else matters."""
    console = console or Console(highlight=False, soft_wrap=False)
    console.print(_headline(summary, scenario))
    if summary.requests.completed:
        console.print(Padding(_latency_table(summary, console.width >= 100), (1, 0, 1, 0)))
        if summary.band is not None:
            console.print(Padding(_band_table(summary, summary.band), (0, 0, 1, 0)))
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column(overflow="fold")
    promises = list(_promises(summary, scenario))
    if promises:
        facts.add_row("promise", Text("\n").join(promises))
    for label, value in _facts(summary, scenario):
        facts.add_row(label, value)
    console.print(facts)
    warnings = list(warnings_of(summary, scenario))
    if warnings:
        console.print()
    for warning in warnings:
        console.print(Text.assemble(("! ", "bold yellow"), warning))
    if out is not None:
        console.print(Text(f"\nWritten to {out}"))


def _headline(summary: Summary, scenario: Scenario) -> Text:
    requests = summary.requests
    done = f"{requests.completed:,} of {count(requests.submitted, 'request')} served in {seconds(summary.duration_s)}"
    return Text.assemble(
        (summary.name, "bold"),
        f"  {service_title(scenario)}\n",
        f"{done}; simulated in {seconds(summary.simulation.wall_s)}",
    )


def service_title(scenario: Scenario) -> str:
    """What is served on what."""
    layout = scenario.layout
    if scenario.cluster.disaggregation is not None:
        pools = [
            f"{name} {pool.layout.replicas} x {pool.layout.label} on {pool.layout.gpus} x {_short(pool.hardware)}"
            for name, pool in pools_of(scenario).items()
        ]
        return f"{_short(scenario.model)}: {', '.join(pools)}"
    parts = [layout.label]
    if layout.replicas > 1:
        parts.append(count(layout.replicas, "replica"))
    return f"{_short(scenario.model)} on {layout.gpus} x {_short(scenario.hardware)} ({', '.join(parts)})"


def _latency_table(summary: Summary, wide: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("latency")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for key, short, meaning in _METRICS:
        latency: Latency = getattr(summary, f"{key}_s")
        label = Text.assemble(short, (f"  {meaning}", "dim")) if wide else Text(short)
        table.add_row(label, *(seconds(getattr(latency, column)) for column in _COLUMNS))
    return table


def _band_table(summary: Summary, band: Band) -> Table:
    """The range of each figure within the error of step times."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("if steps are off by")
    for interval in (band.p50, band.p90):
        for statistic in _BAND_STATISTICS:
            head = f"{percent(interval.step_time_error)}: {statistic}" if statistic == "mean" else statistic
            table.add_column(head, justify="right")
    for key, short, _ in _METRICS[:4]:
        if getattr(summary, f"{key}_s").mean is not None:
            cells = [
                span(
                    getattr(getattr(interval.low, f"{key}_s"), each), getattr(getattr(interval.high, f"{key}_s"), each)
                )
                for interval in (band.p50, band.p90)
                for each in _BAND_STATISTICS
            ]
            table.add_row(short, *cells)
    rates: list[tuple[str, Callable[[Extent], float | None]]] = [
        ("output tokens/s", lambda end: end.throughput.output_tokens_per_s)
    ]
    if summary.slo.attainment is not None:
        rates.append(("goodput requests/s", lambda end: end.goodput_requests_per_s))
    for name, rate in rates:
        cells = [span(rate(each.low), rate(each.high), number) for each in (band.p50, band.p90)]
        table.add_row(name, cells[0], "", cells[1])
    return table


def _promises(summary: Summary, scenario: Scenario) -> Iterator[Text]:
    """Every bound on a statistic, whether it held, by what, and whether it does within the error of step times."""
    for key, (metric, statistic, bound_s) in scenario.slo.statistics().items():
        value = getattr(getattr(summary, f"{metric}_s"), statistic)
        word, style = _VERDICT[summary.slo.met.get(key)]
        name = metric.upper()
        measured = "" if value is None else f" ({seconds(value)})"
        doubt = "" if certain(summary, metric, statistic, bound_s) else ", not surely: the step error spans it"
        yield Text.assemble(f"{name} {statistic} <= {seconds(bound_s)}: ", (word, style), measured, doubt)


def certain(summary: Summary, metric: str, statistic: str, bound_s: float) -> bool:
    """Whether a verdict is the same over the whole band (p90); so it is where there is none."""
    if summary.band is None:
        return True
    low, high = (
        getattr(getattr(end, f"{metric}_s"), statistic) for end in (summary.band.p90.low, summary.band.p90.high)
    )
    return low is None or high is None or (low <= bound_s) == (high <= bound_s)


_VERDICT = {True: ("met", "green"), False: ("MISSED", "bold red"), None: ("not measured", "yellow")}


def _facts(summary: Summary, scenario: Scenario) -> Iterator[tuple[str, str]]:
    """A line each for what was measured."""
    if summary.requests.completed:
        yield from _service(summary, scenario)
    yield "KV cache", _cache(summary, scenario)
    if summary.load.arrivals_per_s is not None:
        yield "arrivals", f"{number(summary.load.arrivals_per_s)} requests/s"
    if summary.cost.usd_per_hour is not None:
        yield "cost", _cost(summary)
    yield "step times", calibration_line(summary, scenario)


def _service(summary: Summary, scenario: Scenario) -> Iterator[tuple[str, str]]:
    flow, use, slo = summary.throughput, summary.utilization, summary.slo
    yield (
        "throughput",
        f"{number(flow.requests_per_s)} requests/s; tokens/s: {number(flow.input_tokens_per_s)} in, "
        f"{number(flow.output_tokens_per_s)} out ({number(flow.output_tokens_per_s_per_gpu)} a GPU)",
    )
    if slo.attainment is not None:
        good = f"{number(slo.goodput_requests_per_s)} requests/s"
        yield "goodput", f"{good}; {percent(slo.attainment)} of requests within every bound"
    if not summary.pools:
        yield "engine", _engine(use, scenario.engine.max_num_seqs)
    for name, pool in summary.pools.items():
        kv = f"; KV cache {percent(pool.kv.peak_utilization)} peak"
        limit = pools_of(scenario)[name].engine.max_num_seqs
        yield f"{name} pool", f"{count(pool.gpus, 'GPU')}, {_engine(pool.utilization, limit)}{kv}"
    if summary.drafting is not None:
        drafting = summary.drafting
        yield (
            "drafts",
            f"{percent(drafting.acceptance_rate)} accepted; {number(drafting.tokens_per_step)} tokens a verify step"
            "; ITL counts the gaps between steps, TPOT the time per token",
        )
    if summary.tiers is not None:
        yield from tier_lines(summary.tiers)


def _engine(use: Utilization, max_num_seqs: int) -> str:
    batch = f"busy {percent(use.busy_fraction)}; batch {number(use.mean_batch_size)} of {max_num_seqs}"
    return batch + (f"; MFU {percent(use.mfu)}, MBU {percent(use.mbu)}" if use.mfu is not None else "")


def _cache(summary: Summary, scenario: Scenario) -> str:
    kv = summary.kv
    size = f"{number(kv.num_gpu_blocks)} blocks = {number(kv.capacity_tokens)} tokens{holder(scenario)}"
    if summary.memory.kv_bytes:
        size += f" ({gib(summary.memory.kv_bytes)} a GPU)"
    if kv.mean_utilization is None:
        return size
    hits = f"; prefix hits {percent(kv.prefix_hit_rate)}" if kv.prefix_hit_rate else ""
    return f"{size}; use {percent(kv.mean_utilization)} mean, {percent(kv.peak_utilization)} peak{hits}{_waste(kv)}"


def holder(scenario: Scenario) -> str:
    """Whose the blocks are that `Kv` counts, where there is more than one cache; else nothing."""
    ranks, replicas = scenario.layout.data_parallel_size, scenario.layout.replicas
    if ranks > 1:
        return f" on each of {ranks} ranks" + (" of a replica" if replicas > 1 else "")
    return " on each replica" if replicas > 1 else ""


def _waste(kv: Kv) -> str:
    """What of the memory in use holds no token, where that is more than last blocks of the usual size come to."""
    if kv.waste_fraction is None or kv.waste_fraction < 0.05:
        return ""
    kinds = (
        (kv.internal_fragmentation, "never filled"),
        (kv.reserved_unused, "for tokens to come"),
        (kv.external_fragmentation, "in gaps too small"),
    )
    told = ", ".join(f"{percent(share)} {what}" for share, what in kinds if share is not None and share >= 0.0005)
    return f"; {percent(kv.waste_fraction)} of it without a token ({told})"


def _cost(summary: Summary) -> str:
    cost = summary.cost
    hourly = f"{usd(cost.usd_per_hour)}/h for {count(cost.gpus, 'GPU')}"
    if cost.usd_per_million_total_tokens is None:
        return hourly
    output, total = usd(cost.usd_per_million_output_tokens), usd(cost.usd_per_million_total_tokens)
    return f"{hourly}; a million tokens: {output} output, {total} in all"


def calibration_line(summary: Summary, scenario: Scenario) -> str:
    """Where the step times come from, and how far they can be trusted."""
    if scenario.engine.step_time is not None:
        return "given by the scenario"
    calibration = summary.calibration
    name = _short(calibration.hardware)
    p50, p90 = percent(calibration.step_time_error_p50), percent(calibration.step_time_error_p90)
    if not calibration.calibrated:
        assumed = "" if calibration.step_time_error_p50 is None else f", off by {p50} (p50) or {p90} (p90), as is usual"
        return f"NOT calibrated for {name}: read the numbers as estimates{assumed}"
    if calibration.step_time_error_p50 is None:
        return f"{name}, fitted to measured kernels"
    return f"{name}, fitted to measured kernels: error {p50} (p50), {p90} (p90)"


def warnings_of(summary: Summary, scenario: Scenario) -> Iterator[str]:
    """What a reader must not miss, the most important first."""
    requests, load = summary.requests, summary.load
    yield from summary.notes
    for reason, rejected in requests.reject_reasons.items():
        yield f"{count(rejected, 'request')} rejected: {reason}"
    if requests.unfinished:
        yield f"{count(requests.unfinished, 'request')} unfinished when the run ended"
    if requests.preemptions:
        swap = summary.tiers.swap if summary.tiers is not None else None
        again = "work was done twice"
        if swap is not None and swap.swapped:
            again = f"{count(swap.swapped, 'cache')} went to the host, {swap.recomputed:,} computed again"
        yield f"{count(requests.preemptions, 'preemption')}: the KV cache ran out; {again}"
    for share, what in (
        (load.batch_full_fraction, "the batch was at max_num_seqs"),
        (load.kv_full_fraction, "the KV cache was 95 % full or more"),
    ):
        if share is not None and share >= 0.05:
            yield f"{what} for {percent(share)} of the time"
    if scenario.engine.step_time is None:
        yield from summary.calibration.notes


def _short(name: str) -> str:
    """A path by its last parts, a name as it is."""
    path = Path(name)
    if not path.is_absolute():
        return name
    return path.parent.name if path.name == "config.json" else path.stem if path.suffix else path.name
