from __future__ import annotations

import json

import numpy as np
import pytest
from toy_run import BLOCK, BLOCKS, ToyRun, toy_run

from sim.metrics import summarize
from sim.records import REQUEST_COLUMNS, STEP_COLUMNS, Columns
from sim.result import RunContext, StepWork


@pytest.fixture(scope="module")
def toy() -> ToyRun:
    return toy_run()


def test_latencies_are_those_of_the_completed_requests(toy: ToyRun) -> None:
    summary, frame = toy.result.summary, toy.result.requests
    done = frame[frame["status"] == "completed"]
    assert len(done) == summary.requests.completed == 298
    ttft = done["first_token_s"] - done["arrival_s"]
    several = done[done["output_tokens"] > 1]
    tpot = (several["finish_s"] - several["first_token_s"]) / (several["output_tokens"] - 1)
    for latency, values in ((summary.ttft_s, ttft), (summary.tpot_s, tpot)):
        assert latency.mean == pytest.approx(values.mean())
        assert latency.std == pytest.approx(values.std(ddof=0))
        assert latency.p99 == pytest.approx(np.quantile(values, 0.99))
        assert latency.max == values.max()
    assert summary.queue_s.mean == pytest.approx((done["scheduled_s"] - done["arrival_s"]).mean())


def test_itl_counts_every_gap(toy: ToyRun) -> None:
    itl = toy.result.summary.itl_s
    assert itl.mean == pytest.approx(np.mean(toy.gaps_s))
    assert itl.p50 == pytest.approx(np.quantile(toy.gaps_s, 0.5), rel=1e-9)
    assert itl.p99 == pytest.approx(np.quantile(toy.gaps_s, 0.99), rel=1e-9)


def test_throughput_spans_first_arrival_to_last_finish(toy: ToyRun) -> None:
    summary, frame = toy.result.summary, toy.result.requests
    assert summary.duration_s == frame["finish_s"].max() - frame["arrival_s"].min()
    assert summary.throughput.output_tokens_per_s == pytest.approx(frame["output_tokens"].sum() / summary.duration_s)
    assert summary.throughput.requests_per_s == pytest.approx(298 / summary.duration_s)


def test_kv_use_is_weighted_by_time(toy: ToyRun) -> None:
    kv, time_s = toy.result.summary.kv, sum(toy.step_lengths_s)
    assert kv.mean_utilization == pytest.approx(toy.block_seconds / time_s / (BLOCKS - 1), rel=2e-3)
    assert kv.waste_fraction == pytest.approx(1 - toy.token_seconds / (toy.block_seconds * BLOCK), rel=5e-2)
    assert kv.capacity_tokens == BLOCKS * BLOCK
    assert kv.prefix_hit_rate == 0


def test_busy_time_is_the_sum_of_all_steps(toy: ToyRun) -> None:
    summary = toy.result.summary
    assert summary.utilization.busy_fraction == pytest.approx(sum(toy.step_lengths_s) / summary.duration_s)


def test_the_promise_is_judged(toy: ToyRun) -> None:
    summary, frame = toy.result.summary, toy.result.requests
    assert summary.slo.met == {"ttft_p99_s": summary.ttft_s.p99 <= 0.5, "tpot_p99_s": summary.tpot_s.p99 <= 0.02}
    good = frame[(frame["ttft_s"] <= 0.3) & ((frame["tpot_s"] <= 0.03) | (frame["output_tokens"] == 1))]
    assert summary.slo.attainment == len(good) / 300
    assert summary.slo.goodput_requests_per_s == pytest.approx(len(good) / summary.duration_s)


def test_a_million_tokens_cost_the_gpus_for_as_long_as_they_take(toy: ToyRun) -> None:
    cost, throughput = toy.result.summary.cost, toy.result.summary.throughput
    hours = 1e6 / throughput.output_tokens_per_s / 3600
    assert cost.usd_per_million_output_tokens == pytest.approx(3.0 * hours)


def test_rejections_are_counted_by_reason(toy: ToyRun) -> None:
    assert toy.result.summary.requests.reject_reasons == {"longer than max_model_len": 2}
    assert toy.result.requests["reason"].iloc[-1] == "longer than max_model_len"


def test_overload_is_said_and_a_calm_run_is_not_called_so() -> None:
    calm, flooded = toy_run(rate_per_s=4).result.summary, toy_run(rate_per_s=60).result.summary
    assert not calm.load.overloaded
    assert calm.notes == ()
    assert flooded.load.overloaded
    assert flooded.load.waiting_at_last_arrival > 100
    assert flooded.notes[0].startswith("Overloaded: arrivals (")


def test_a_burst_that_fits_is_no_overload() -> None:
    assert not toy_run(count=12, rate_per_s=1e6).result.summary.load.overloaded


def test_work_over_busy_time_gives_mfu_and_mbu(toy: ToyRun) -> None:
    context = toy.result.context
    work = StepWork(
        flops=lambda shape: shape["decode_seqs"] + shape["prefill_tokens"],
        bytes_moved=lambda shape: shape["decode_context"],
        peak_flops_per_s=1000.0,
        peak_bytes_per_s=1e6,
    )
    fields = {name: getattr(context, name) for name in RunContext.__dataclass_fields__}
    busy = RunContext(**{**fields, "work": work})
    summary = summarize(busy, toy.result.request_columns, toy.result.step_columns, np.zeros(0))
    frame = toy.result.requests[toy.result.requests["status"] == "completed"]
    tokens = frame["prompt_tokens"].sum() + (frame["output_tokens"] - 1).sum()
    assert summary.utilization.mfu == pytest.approx(tokens / sum(toy.step_lengths_s) / 1000)
    attended = sum(
        length * prompt + length * (length + 1) // 2
        for prompt, length in zip(frame["prompt_tokens"], frame["output_tokens"] - 1, strict=True)
    )
    assert summary.utilization.mbu == pytest.approx(attended / sum(toy.step_lengths_s) / 1e6)


def test_nothing_served_is_null_not_an_error(toy: ToyRun) -> None:
    rows = Columns(REQUEST_COLUMNS)
    rows.append((0, 0, 0.0, 0.0, -1.0, -1.0, -1.0, 10, 0, 0, 0, 0, 1, 0, 0, -1, -1, 1))
    summary = summarize(toy.result.context, rows, Columns(STEP_COLUMNS), np.zeros(0))
    assert summary.requests.rejected == 1
    assert summary.ttft_s.mean is None
    assert summary.itl_s.p99 is None
    assert summary.slo.met == {"ttft_p99_s": None, "tpot_p99_s": None}
    assert summary.slo.attainment == 0


def test_the_json_has_the_contracts_keys(toy: ToyRun) -> None:
    document = json.loads(toy.result.summary.to_json())
    assert {
        "schema_version", "servecast_version", "name", "scenario_hash", "seed", "requests", "duration_s", "ttft_s",
        "tpot_s", "itl_s", "e2e_s", "queue_s", "throughput", "kv", "memory", "utilization", "slo", "cost",
        "calibration", "simulation",
    } <= set(document)  # fmt: skip
    assert set(document["ttft_s"]) == {"mean", "std", "min", "p50", "p90", "p95", "p99", "max"}
    assert set(document["simulation"]) == {"events", "engine_steps", "wall_s"}
