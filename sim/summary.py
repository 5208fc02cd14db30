"""``summary.json``: the numbers of a run. Seconds, tokens, bytes; None where nothing was measured."""

from __future__ import annotations

import html
from typing import Final

from pydantic import Field

from sim.schema import StrictModel
from sim.summary_tiers import MemoryTiers

SCHEMA_VERSION: Final = 1
STATISTICS: Final = ("mean", "std", "min", "p50", "p90", "p95", "p99", "max")


class Latency(StrictModel):
    """Distribution of one latency in seconds; quantiles interpolate linearly between order statistics."""

    mean: float | None = None
    std: float | None = None
    min: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Requests(StrictModel):
    """How many requests ended how.

    ``unfinished``: nobody was left to serve them. ``lost``: their replica failed once too often. ``retries``: how often
    one was sent again because its replica failed.
    """

    submitted: int
    completed: int
    rejected: int
    unfinished: int
    lost: int = 0
    retries: int = 0
    preemptions: int
    reject_reasons: dict[str, int] = Field(default_factory=dict)


class Throughput(StrictModel):
    """Completed requests and their tokens over ``duration_s``."""

    requests_per_s: float | None = None
    input_tokens_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    output_tokens_per_s_per_gpu: float | None = None


class Kv(StrictModel):
    """KV cache of one engine. Utilisation, waste and sharing are weighted by the time of the steps.

    ``waste_fraction`` is the share of KV memory without a token, of what requests hold and of gaps that are too small.
    It is the sum of ``internal_fragmentation`` (held, and never filled), ``external_fragmentation`` (free, in gaps too
    small for the next request) and ``reserved_unused`` (held for tokens yet to come). ``shared_fraction`` is the share
    of the tokens of all requests that is not stored because other requests store it.
    """

    num_gpu_blocks: int
    block_size: int
    capacity_tokens: int
    bytes_per_token: int | None = None
    peak_utilization: float | None = None
    mean_utilization: float | None = None
    prefix_hit_rate: float | None = None
    waste_fraction: float | None = None
    internal_fragmentation: float | None = None
    external_fragmentation: float | None = None
    reserved_unused: float | None = None
    shared_fraction: float | None = None


class Memory(StrictModel):
    """Where the bytes of one GPU go."""

    total_bytes: int | None = None
    usable_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    overhead_bytes: int | None = None
    kv_bytes: int | None = None


class Utilization(StrictModel):
    """How busy the engines were.

    ``busy_fraction`` is the share of ``duration_s`` in which a step ran; ``mfu`` and ``mbu`` are model FLOPs and bytes
    over the datasheet peak *while steps ran*; ``mean_batch_size`` is sequences a step.
    """

    busy_fraction: float | None = None
    mfu: float | None = None
    mbu: float | None = None
    mean_batch_size: float | None = None


class PoolUse(StrictModel):
    """One pool of a fleet that prefills and decodes apart."""

    gpus: int
    replicas: int
    kv: Kv
    memory: Memory
    utilization: Utilization
    tiers: MemoryTiers | None = None


class Slo(StrictModel):
    """The promise. ``attainment`` is the share of submitted requests that met every per-request bound."""

    goodput_requests_per_s: float | None = None
    attainment: float | None = None
    met: dict[str, bool | None] = Field(default_factory=dict)


class Cost(StrictModel):
    """Price of the GPUs, and of a million tokens at the measured throughput.

    Where replicas come and go, ``gpus`` is their mean over the run, rounded up, and the price is that of the mean.
    """

    gpus: int
    usd_per_hour: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_total_tokens: float | None = None


class Calibration(StrictModel):
    """How far the step times can be trusted: their relative error, and where that figure comes from."""

    hardware: str
    calibrated: bool
    step_time_error_p50: float | None = None
    step_time_error_p90: float | None = None
    step_time_error_source: str | None = None
    notes: tuple[str, ...] = ()


class Extent(StrictModel):
    """One end of a band: each figure as it may be at the least, or at the most."""

    ttft_s: Latency
    tpot_s: Latency
    itl_s: Latency
    e2e_s: Latency
    throughput: Throughput
    goodput_requests_per_s: float | None = None
    attainment: float | None = None


class Interval(StrictModel):
    """Figures of the run if every step took up to ``1 + step_time_error`` times as long, or as little of it."""

    step_time_error: float
    low: Extent
    high: Extent


class Band(StrictModel):
    """What the error of step times leaves open: for its median and for its ninth decile."""

    p50: Interval
    p90: Interval


class Drafting(StrictModel):
    """What came of speculative decoding, over all verify steps of all requests.

    ``accepted_tokens`` are output tokens beyond the one that a step gives anyway; what was accepted past the end of an
    answer does not count. ``tokens_per_step`` is their mean over the verify steps, plus one.
    """

    verify_steps: int
    draft_tokens: int
    accepted_tokens: int
    acceptance_rate: float | None = None
    tokens_per_step: float | None = None


class Simulation(StrictModel):
    """Bookkeeping of the run. ``wall_s`` is the only number that may differ between two runs."""

    events: int
    engine_steps: int
    wall_s: float


class Load(StrictModel):
    """Whether service kept up with arrivals, and what held it back.

    ``overloaded``: requests that wait pile up as long as requests arrive. ``batch_full_fraction`` and
    ``kv_full_fraction``: share of step time with ``max_num_seqs`` running, and with 95 % or more of the blocks in use.
    """

    arrivals_per_s: float | None = None
    waiting_at_last_arrival: int = 0
    overloaded: bool = False
    batch_full_fraction: float | None = None
    kv_full_fraction: float | None = None


class Summary(StrictModel):
    """Everything `servecast simulate` reports about a run.

    ``pools`` holds prefill and decode where they are split; ``kv`` and ``memory`` are then those of the decode pool,
    and ``utilization`` is over both. ``band`` is there where it was asked for and step times are predicted.
    """

    schema_version: int = SCHEMA_VERSION
    servecast_version: str
    name: str
    scenario_hash: str
    seed: int
    requests: Requests
    duration_s: float
    ttft_s: Latency
    tpot_s: Latency
    itl_s: Latency
    e2e_s: Latency
    queue_s: Latency
    throughput: Throughput
    kv: Kv
    memory: Memory
    utilization: Utilization
    slo: Slo
    cost: Cost
    load: Load
    calibration: Calibration
    simulation: Simulation
    pools: dict[str, PoolUse] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    drafting: Drafting | None = None
    tiers: MemoryTiers | None = None
    band: Band | None = None

    def to_json(self) -> str:
        """The summary as indented JSON with a newline at its end."""
        return self.model_dump_json(indent=2) + "\n"

    def _repr_html_(self) -> str:
        """What a notebook shows: the latencies, and whether the promise was kept."""
        shown = ("mean", "p50", "p90", "p99", "max")
        head = "".join(f"<th>{name}</th>" for name in ("seconds", *shown))
        rows = "".join(
            f"<tr><th>{name[:-2]}</th>{''.join(_cell(getattr(getattr(self, name), each)) for each in shown)}</tr>"
            for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")
        )
        done = f"{self.requests.completed:,} of {self.requests.submitted:,} requests in {self.duration_s:.4g} s"
        met = "; ".join(f"{key}: {_VERDICTS[kept]}" for key, kept in self.slo.met.items())
        notes = "".join(f"<br>{html.escape(note)}" for note in self.notes)
        return (
            f"<b>{html.escape(self.name)}</b> {done}{f'; {met}' if met else ''}"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
            f"{_cell(self.throughput.output_tokens_per_s, 'span')} output tokens/s{notes}"
        )


_VERDICTS: Final = {True: "met", False: "missed", None: "not measured"}


def _cell(value: float | None, name: str = "td") -> str:
    return f"<{name}>{'-' if value is None else f'{value:.4g}'}</{name}>"
