"""servecast convert: benchmark results to cases, metrics to workloads, traces to traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from calibration.cases import load_cases
from workloads import WorkloadSpec, build_workload

Run = Callable[..., tuple[int, str, str]]
DEPLOYMENT = """
model: meta-llama/Llama-3.1-8B
hardware: h100-sxm
layout: {tensor_parallel_size: 2}
workload: {preset: sharegpt, num_requests: 10}
"""


VLLM_RESULT: dict[str, Any] = {
    "date": "20260101-000000",
    "model_id": "meta-llama/Llama-3.1-8B",
    "request_rate": 4.0,
    "burstiness": 0.25,
    "max_concurrency": None,
    "duration": 25.0,
    "completed": 100,
    "total_input_tokens": 50_000,
    "total_output_tokens": 20_000,
    "request_throughput": 4.0,
    "output_throughput": 800.0,
    "total_token_throughput": 2800.0,
    **{f"{name}_{metric}_ms": 10.0 for name in ("mean", "median", "p99") for metric in ("ttft", "tpot", "itl")},
}
_SPREAD = {"unit": "ms", "avg": 20.0, "p50": 18.0, "p90": 30.0, "p95": 40.0, "p99": 50.0, "min": 5.0, "max": 60.0}
_TOKENS = {"unit": "tokens", "avg": 128.0, "p50": 120, "p90": 200, "p99": 250, "min": 1, "max": 300}
AIPERF_RESULT: dict[str, Any] = {
    "aiperf_version": "0.8.0",
    "request_count": {"unit": "requests", "avg": 64.0},
    "request_latency": _SPREAD,
    "time_to_first_token": _SPREAD,
    "inter_token_latency": _SPREAD,
    "request_throughput": {"unit": "requests/sec", "avg": 3.0},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 300.0},
    "input_sequence_length": _TOKENS,
    "output_sequence_length": _TOKENS,
    "input_config": {"endpoint": {"model_names": ["meta-llama/Llama-3.1-8B"]}, "loadgen": {"concurrency": 8}},
}
GUIDELLM_RESULT: dict[str, Any] = {
    "args": {"model": "meta-llama/Llama-3.1-8B"},
    "benchmarks": [
        {
            "config": {"strategy": strategy},
            "metrics": {
                "request_totals": {"successful": 40},
                "prompt_token_count": {"successful": {"mean": 256.0}},
                "output_token_count": {"successful": {"mean": 64.0}},
                "requests_per_second": {"successful": {"mean": 2.0}},
                "output_tokens_per_second": {"successful": {"mean": 128.0}},
                "time_to_first_token_ms": {"successful": {"mean": 50.0, "median": 45.0, "percentiles": {"p99": 90.0}}},
                "inter_token_latency_ms": {"successful": {"mean": 9.0, "percentiles": {"p50": 8.0}}},
                "request_latency": {"successful": {"mean": 1.5}},
            },
        }
        for strategy in ({"type_": "constant", "rate": 2.0}, {"type_": "concurrent", "streams": 16})
    ],
}
INFERENCE_PERF_RESULT: dict[str, Any] = {
    "load_summary": {"count": 480, "requested_rate": 1.0, "achieved_rate": 1.02},
    "successes": {
        "count": 480,
        "latency": {
            "request_latency": {"mean": 3.31, "median": 2.11, "p90": 5.94},
            "time_to_first_token": {"mean": 0.8, "median": 0.2, "p90": 2.26},
            "time_per_output_token": {"mean": 0.02},
        },
        "throughput": {"requests_per_sec": 1.02, "total_tokens_per_sec": 676.12},
        "prompt_len": {"mean": 500.0, "min": 10, "max": 1000, "p90": 900, "median": 480},
        "output_len": {"mean": 160.0},
    },
}


@pytest.mark.parametrize(
    ("data", "metric", "statistic", "value"),
    [
        (VLLM_RESULT, "ttft_s", "p50", 0.010),
        (AIPERF_RESULT, "tpot_s", "mean", 0.020),
        (GUIDELLM_RESULT, "ttft_s", "p50", 0.045),
        (INFERENCE_PERF_RESULT, "e2e_s", "p50", 2.11),
    ],
    ids=["vllm-bench", "aiperf", "guidellm", "inference-perf"],
)
def test_a_result_becomes_a_case_that_validate_reads(
    servecast: Run, tmp_path: Path, data: dict[str, Any], metric: str, statistic: str, value: float
) -> None:
    source, target = tmp_path / "result.json", tmp_path / "case.yaml"
    source.write_text(json.dumps(data))
    deployment = tmp_path / "deployment.yaml"
    deployment.write_text(DEPLOYMENT)
    code, out, _ = servecast("convert", source, "--scenario", deployment, "--out", target)
    assert (code, out) == (0, "")
    for case in load_cases([target]):
        measured = {(name, stat): found for window in case.windows for name, stat, found in window.measured}
        assert measured[metric, statistic] == pytest.approx(value)
        assert case.scenario.layout.tensor_parallel_size == 2
        assert len(build_workload(case.scenario.workload, 0)) in (100, 64, 40, 480)


def test_rates_and_lengths_of_a_result_are_kept(servecast: Run, tmp_path: Path) -> None:
    source = tmp_path / "result.json"
    detailed = VLLM_RESULT | {"input_lens": list(range(1, 101)), "output_lens": [200] * 100}
    source.write_text(json.dumps(detailed))
    case = yaml.safe_load(servecast("convert", source, "--hardware", "l40s")[1])
    workload = case["scenario"]["workload"]
    assert workload["arrivals"] == {"process": "gamma", "rate_per_s": 4.0, "cv": 2.0}
    built = build_workload(WorkloadSpec.parse(workload), 0)
    assert 40 < built.prompt_tokens.mean() < 62
    assert set(built.output_tokens) == {200}
    source.write_text(json.dumps(VLLM_RESULT | {"request_rate": "inf", "max_concurrency": 16}))
    arrivals = yaml.safe_load(servecast("convert", source, "--hardware", "l40s")[1])["scenario"]["workload"]["arrivals"]
    assert arrivals == {"process": "closed_loop", "concurrency": 16}


@pytest.mark.parametrize("change", [{"completed": 0}, {"completed": "x"}, {"total_input_tokens": None}])
def test_a_result_of_nothing_is_refused(servecast: Run, tmp_path: Path, change: dict[str, Any]) -> None:
    source = tmp_path / "result.json"
    source.write_text(json.dumps(VLLM_RESULT | change))
    code, out, err = servecast("convert", source, "--hardware", "l40s")
    assert (code, out) == (2, "")
    assert "remedy" in err


METRICS = """
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 900.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 100.0
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{le="100.0"} 0.0
vllm:request_prompt_tokens_bucket{le="500.0"} 500.0
vllm:request_prompt_tokens_bucket{le="1000.0"} 1000.0
vllm:request_prompt_tokens_bucket{le="+Inf"} 1000.0
vllm:request_prompt_tokens_count 1000.0
vllm:request_prompt_tokens_sum 525000.0
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{le="50.0"} 250.0
vllm:request_generation_tokens_bucket{le="100.0"} 900.0
vllm:request_generation_tokens_bucket{le="+Inf"} 1000.0
vllm:request_generation_tokens_count 1000.0
vllm:prefix_cache_queries_total 1000
vllm:prefix_cache_hits_total 250
"""


def test_a_dump_of_metrics_becomes_a_workload(servecast: Run, tmp_path: Path) -> None:
    source = tmp_path / "metrics.txt"
    source.write_text(METRICS)
    code, out, err = servecast("convert", source, "--seconds", 500)
    assert code == 0
    assert "25.0 %" in err
    workload = yaml.safe_load(out)["workload"]
    assert workload["arrivals"] == {"process": "poisson", "rate_per_s": 2.0}
    assert workload["prompt_tokens"]["quantiles"] == {0.0: 100, 0.5: 500, 1.0: 1000}
    assert workload["output_tokens"]["quantiles"][1.0] == 200, "the open bucket ends at twice its edge, and is noted"
    assert len(build_workload(WorkloadSpec.parse(workload), 0)) == 1000
    assert servecast("convert", source)[0] == 2


def test_a_range_query_becomes_stages(servecast: Run, tmp_path: Path) -> None:
    times = np.arange(0, 601, 60)
    rate = np.where(times <= 300, 1.0, 3.0)
    counted = np.concatenate([[0.0], np.cumsum(np.diff(times) * rate[1:])])

    def series(name: str, scale: float, **labels: str) -> dict[str, Any]:
        values = [[int(time), str(value * scale)] for time, value in zip(times, counted, strict=True)]
        return {"metric": {"__name__": name, **labels}, "values": values}

    result = [series("vllm:request_success_total", 1.0, finished_reason="stop")]
    for name in ("prompt", "generation"):
        for le, share in (("10", 0.0), ("100", 0.5), ("200", 1.0), ("+Inf", 1.0)):
            result.append(series(f"vllm:request_{name}_tokens_bucket", share, le=le))
    source = tmp_path / "range.json"
    source.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}))
    workload = yaml.safe_load(servecast("convert", source)[1])["workload"]
    stages = workload["arrivals"]["stages"]
    assert sum(stage["duration_s"] for stage in stages) == 600
    assert sum(stage["duration_s"] * stage["rate_per_s"] for stage in stages) == pytest.approx(counted[-1], rel=1e-4)
    assert stages[-1]["rate_per_s"] == pytest.approx(3.0)


@pytest.mark.parametrize("to", ["servecast", "mooncake", "azure", "burstgpt", "vidur"])
def test_a_trace_reads_back_the_same_in_every_format(servecast: Run, tmp_path: Path, to: str) -> None:
    source, target = tmp_path / "in.csv", tmp_path / ("out.jsonl" if to == "mooncake" else "out.csv")
    source.write_text("arrival_s,prompt_tokens,output_tokens\n0.0,1200,7\n0.25,30,9\n1.5,5000,1\n")
    code, out, err = servecast("convert", source, "--to", to, "--out", target)
    assert (code, out) == (0, "")
    assert "3 requests" in err
    built = build_workload(WorkloadSpec.parse({"trace": {"path": str(target)}}), 0)
    assert built.prompt_tokens.tolist() == [1200, 30, 5000]
    assert built.output_tokens.tolist() == [7, 9, 1]
    assert built.arrival_s.tolist() == pytest.approx([0.0, 0.25, 1.5])


def test_mooncake_keeps_which_prompts_share_their_beginning(servecast: Run, tmp_path: Path) -> None:
    from workloads.describe import prefix_share

    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [{"timestamp": n, "input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 10 + n]} for n in range(5)]
    source.write_text("\n".join(map(json.dumps, rows)))
    servecast("convert", source, "--to", "mooncake", "--out", target)
    before, after = (
        prefix_share(build_workload(WorkloadSpec.parse({"trace": {"path": str(path)}}), 0)) for path in (source, target)
    )
    assert before == after > 0.5
