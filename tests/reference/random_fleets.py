"""Random scenarios of fleets, by jumps and step by step: ``python tests/reference/random_fleets.py --seeds 500``."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2]))

from sim import Scenario, simulate
from sim.cluster.fleet import Fleet
from sim.engine.stall import SimulationStalledError
from sim.errors import InputError

Document = dict[str, Any]

PRESETS = ("vllm", "vllm", "vllm", "sglang", "sglang", "tensorrt-llm", "tgi", "orca", "static")
DENSE = ("meta-llama/Llama-3.1-8B", "google/gemma-3-4b-it", "meta-llama/Llama-3.2-1B")
SPARSE = ("mistralai/Mixtral-8x7B-v0.1", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V2-Lite")
ROUTERS = ("round_robin", "random", "least_loaded", "power_of_two", "prefix_affinity", "cache_aware", "session_sticky")
STEP_TIMES = ((5000, 0, 0), (3000, 7, 3), (1000, 40, 0))
COLUMNS = ("scheduled_s", "first_token_s", "finish_s", "replica", "cached_tokens", "preemptions", "attempts")


def document_of(seed: int) -> Document:
    """The scenario of ``seed``; a few of them are refused."""
    rng = Random(seed)
    preset, sparse = rng.choice(PRESETS), rng.random() < 0.45
    document: Document = {"model": rng.choice(SPARSE if sparse else DENSE), "hardware": "h100-sxm", "seed": seed}
    document["workload"] = _workload(rng)
    document["engine"] = _engine(rng, preset, document["workload"])
    cluster: Document = {"router": rng.choice(ROUTERS), "router_load": rng.choice(["requests", "tokens", "kv"])}
    cluster["router_staleness_s"] = rng.choice([0, 0, 0, 0.01, 0.5])
    if preset in ("vllm", "sglang", "tensorrt-llm") and rng.random() < 0.3:
        pools = {
            pool: {"replicas": rng.randint(1, 3), "layout": _layout(rng, preset, sparse)}
            for pool in ("prefill", "decode")
        }
        link = {"transfer_gb_per_s": rng.choice([1, 25, 100]), "transfer_latency_s": rng.choice([0, 0.01])}
        cluster["disaggregation"] = {**pools, **link, "overlap": rng.choice(["none", "layerwise"])}
        replicas = {pool: pools[pool]["replicas"] for pool in pools}
    else:
        document["layout"] = {**_layout(rng, preset, sparse), "replicas": rng.choice([1, 1, 2, 3])}
        replicas = {"": document["layout"]["replicas"]}
    if rng.random() < 0.35:
        cluster |= {"load_time_s": rng.choice([0, 0.3]), "retry_delay_s": rng.choice([0, 0.1])}
        cluster["events"] = _events(rng, replicas, cluster["load_time_s"])
    return {**document, "cluster": cluster}


def _layout(rng: Random, preset: str, sparse: bool) -> Document:
    staged, ranked = preset not in ("tgi", "static"), preset in ("vllm", "sglang", "tensorrt-llm")
    layout: Document = {"tensor_parallel_size": rng.choice([2, 2, 4])}
    layout["pipeline_parallel_size"] = rng.choice([1, 1, 2, 3]) if staged else 1
    layout["data_parallel_size"] = rng.choice([1, 1, 2, 4]) if ranked else 1
    if sparse and rng.random() < 0.6:
        layout["enable_expert_parallel"] = True
    return layout


def _engine(rng: Random, preset: str, workload: Document) -> Document:
    engine: Document = {"preset": preset, "max_model_len": 1024, "max_num_seqs": rng.choice([2, 4, 8, 32])}
    if rng.random() < 0.4:
        engine["step_time"] = dict(zip(("base_us", "per_token_us", "per_seq_us"), rng.choice(STEP_TIMES), strict=True))
    if rng.random() < 0.6:
        page = {"tgi": 1, "sglang": 1, "tensorrt-llm": 32}.get(preset, 16)
        longest = 1024 if preset in ("orca", "static") else workload["prompt_tokens"]["max"] + 250
        engine["num_gpu_blocks_override"] = int(longest / page * rng.choice([1.3, 2, 4])) + 5
    if preset in ("vllm", "sglang", "tensorrt-llm"):
        engine["enable_prefix_caching"] = rng.random() < 0.7
    if preset == "vllm":
        engine |= _of_vllm(rng, engine["enable_prefix_caching"])
    if preset == "sglang":
        engine |= {"schedule_policy": rng.choice(["fcfs", "lpm"]), "enable_mixed_chunk": rng.random() < 0.3}
    if preset == "tensorrt-llm" and rng.random() < 0.5:
        engine["capacity_scheduler_policy"] = "MAX_UTILIZATION"
    return engine


def _of_vllm(rng: Random, caching: bool) -> Document:
    kind, host = rng.random(), {"host_link_gb_per_s": rng.choice([2, 25]), "swap_space_gib": rng.choice([0.05, 1.0])}
    if kind < 0.25:
        drafts = {"num_speculative_tokens": rng.choice([1, 2, 4]), "acceptance_rate": rng.choice([0.3, 0.7, 0.95])}
        return {"speculative": {"method": rng.choice(["ngram", "medusa", "lookahead"]), **drafts}}
    if kind < 0.4:
        return {"preemption": rng.choice(["swap", "auto"]), **host}
    if kind < 0.6 and caching:
        return {"kv_offload": {"memory_gib": rng.choice([0.1, 2, 64]), "bandwidth_gb_per_s": rng.choice([1, 25])}}
    return {}


def _workload(rng: Random) -> Document:
    workload: Document = {"num_requests": rng.choice([60, 100])}
    workload["prompt_tokens"] = {"distribution": "uniform", "min": 40, "max": rng.choice([60, 200, 500])}
    workload["output_tokens"] = {"distribution": "uniform", "min": 1, "max": rng.choice([1, 5, 40, 200])}
    kind = rng.random()
    if kind < 0.2:  # pauses, since two replicas at one instant have no order that single steps and jumps share
        workload["arrivals"] = {"process": "closed_loop", "concurrency": rng.choice([3, 16]), "think_s": 0.3137}
        workload["arrivals"]["queue"] = rng.choice(["own", "shared"])
        if rng.random() < 0.4:
            workload["warmup_requests"] = rng.choice([1, 20])
        return workload
    workload["arrivals"] = {"process": "gamma", "rate_per_s": rng.choice([5, 20, 100]), "cv": 3.0}
    if kind < 0.6:
        workload["prefixes"] = {"groups": rng.choice([1, 4]), "prefix_tokens": rng.choice([3, 32])}
    elif kind < 0.7:
        workload["n"] = 2
    return workload


def _events(rng: Random, replicas: dict[str, int], load_s: float) -> list[Document]:
    """Failures with and without a recovery, also of all replicas of a pool at one time."""
    events: list[Document] = []
    for pool, count in replicas.items():
        for replica in range(count):
            at_s = rng.choice([0, 0.2, 0.5, round(rng.random() * 4, 3)])
            for action in rng.choice([("fail",), ("fail", "recover"), ("stop", "start"), ("fail", "recover", "fail")]):
                where = {"pool": pool} if pool else {}
                events.append({"at_s": round(at_s, 3), "action": action, "replica": replica, **where})
                at_s += rng.choice([0, 0.1, 1.0]) + (load_s if action in ("recover", "start") else 0)
    return sorted(events, key=lambda event: float(event["at_s"]))


def disagreement(document: Document) -> str:
    """What differs between jumps and single steps, or is left in a pool at the end; nothing where all is well.

    Raises:
        InputError: the scenario is refused.
    """
    fleets: list[Fleet] = []
    scenario = Scenario.from_dict(document)
    try:
        jumped = simulate(scenario, watch=fleets.append)
        stepped = simulate(scenario, exact=True, watch=fleets.append)
    except SimulationStalledError as error:
        return str(error)
    for column in COLUMNS:
        got, expected = jumped.requests[column], stepped.requests[column]
        if not np.allclose(got, expected, rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"{column} differs"
    if jumped.summary.simulation.engine_steps != stepped.summary.simulation.engine_steps:
        return "engine_steps differs"
    for replica in fleets[0].replicas:
        pool = replica.scheduler.pool
        if replica.alive and not jumped.summary.requests.unfinished and pool.free != pool.usable_blocks:
            return f"replica {replica.index} keeps {pool.usable_blocks - pool.free} blocks"
    return ""


def main() -> int:
    """Print every seed that fails; 1 if there was any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    wrong = refused = 0
    for seed in range(options.start, options.start + options.seeds):
        try:
            message = disagreement(document_of(seed))
        except InputError:
            refused += 1
            continue
        except Exception:
            message = traceback.format_exc(limit=-4)
        if message:
            wrong += 1
            print(f"seed {seed}: {message}", flush=True)
    print(f"{options.seeds} seeds, {wrong} wrong, {refused} refused")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
