"""Where several layouts of one model were measured, the simulator puts them in the right order.

By output tokens a second and GPU, at fixed numbers of users; published runs of vLLM, SGLang and TensorRT-LLM. A group
is one model, GPU, engine and pair of lengths; its points are layouts under loads.
"""

from __future__ import annotations

import csv
import gzip
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from sim import Scenario, simulate

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tests" / "accuracy" / "cases"
RUNS = ROOT.parent / "shared" / "measured" / "runs.csv.gz"
LEAST_TAU = 0.7


class Point(NamedTuple):
    layout: int
    measured: float
    scenario: dict[str, Any]


def kendall_tau(one: list[float], other: list[float]) -> float:
    """Pairs in the same order less pairs in the other, over both."""
    signs = [(a - c) * (b - d) for (a, b), (c, d) in itertools.combinations(list(zip(one, other, strict=True)), 2)]
    same, other_way = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return (same - other_way) / (same + other_way)


def throughput_per_gpu(users: int, tokens: float, ttft_s: float, tpot_s: float, gpus: int) -> float:
    """Of users who each wait for one answer and send again."""
    return users * tokens / (ttft_s + tpot_s * (tokens - 1)) / gpus


def middle(length: Any) -> float:
    return (length["min"] + length["max"]) / 2 if "min" in length else length["value"]


def groups(path: Path) -> dict[tuple[float, float], list[Point]]:
    found: dict[tuple[float, float], list[Point]] = defaultdict(list)
    for case in yaml.safe_load(path.read_text())["cases"]:
        scenario, measured = case["scenario"], case["measured"]
        load = scenario["workload"]
        if load["arrivals"]["process"] != "closed_loop" or not {"ttft_s", "tpot_s"} <= set(measured):
            continue
        users, gpus = load["arrivals"]["concurrency"], scenario["layout"]["tensor_parallel_size"]
        tokens = middle(load["output_tokens"])
        rate = throughput_per_gpu(users, tokens, measured["ttft_s"]["mean"], measured["tpot_s"]["mean"], gpus)
        load["num_requests"] = max(4 * users, 64)
        found[middle(load["prompt_tokens"]), tokens].append(Point(gpus, rate, scenario))
    return {key: points for key, points in found.items() if len({point.layout for point in points}) >= 3}


def tau_of(points: list[Point]) -> float:
    predicted = []
    for point in points:
        rate = simulate(Scenario.from_dict(point.scenario)).summary.throughput.output_tokens_per_s_per_gpu
        assert rate is not None
        predicted.append(rate)
    return kendall_tau([point.measured for point in points], predicted)


@pytest.mark.parametrize("path", sorted(CASES.glob("slc-*.yaml")), ids=lambda path: path.stem)
def test_dense_models_are_ordered_as_measured(path: Path) -> None:
    found = groups(path)
    if not found:
        pytest.skip("no group of three layouts in this file")
    for lengths, points in found.items():
        assert tau_of(points) >= LEAST_TAU, lengths


def mixture_points() -> Iterator[tuple[tuple[str, str], Point]]:
    with gzip.open(RUNS, "rt") as file:
        for row in csv.DictReader(file):
            mine = row["id"].startswith("slc") and row["model"] == "openai/gpt-oss-120b" and "disagg" not in row["id"]
            ours = row["gpu"] == "H200-SXM-141GB" and row["engine"] == "vLLM" and row["dp"] == "1.0"
            ttft, tpot = (row[f"{metric}_unstated (mean or median)_ms"] for metric in ("ttft", "tpot"))
            if not (mine and ours and ttft and tpot):
                continue
            users, gpus = int(row["rate_or_concurrency"].split()[1]), int(float(row["tp"]))
            prompt, output = (int(float(row[key])) for key in ("isl", "osl"))
            rate = throughput_per_gpu(users, 0.9 * output, float(ttft) / 1e3, float(tpot) / 1e3, gpus)
            lengths = {
                f"{name}_tokens": {"distribution": "uniform", "min": int(0.8 * most), "max": most}
                for name, most in (("prompt", prompt), ("output", output))
            }
            scenario = {
                "model": row["model"],
                "hardware": "h200-sxm",
                "layout": {"tensor_parallel_size": gpus, "enable_expert_parallel": float(row["ep"]) > 1},
                "engine": {"max_num_seqs": 1024},
                "workload": {
                    "num_requests": max(3 * users, 64),
                    "arrivals": {"process": "closed_loop", "concurrency": users},
                    **lengths,
                },
            }
            yield (row["isl"], row["osl"]), Point(gpus, rate, scenario)


@pytest.mark.skipif(not RUNS.exists(), reason=f"no measured runs at {RUNS}")
def test_a_mixture_of_experts_is_ordered_as_measured() -> None:
    found: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for lengths, point in mixture_points():
        found[lengths].append(point)
    assert len(found) >= 3
    for lengths, points in found.items():
        assert tau_of(points) >= LEAST_TAU, lengths
