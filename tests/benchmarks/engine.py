"""How fast the simulator is: `python tests/benchmarks/engine.py [--full] [--plain] [CASE ...]` prints one table.

Every case runs in processes of its own: with the event loop compiled, as plain Python, and (where it says so) with one
event a step on part of its requests, so that ratios come from one machine at one time. CPU seconds of the event loop
alone; `total` adds making the workload, the summary and everything but the interpreter's start. The compiled loop is
built first if it is not there (`compiled.py`); `--plain` does without.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiled import build

ROOT = Path(__file__).resolve().parents[2]
MOONCAKE = ROOT.parent / "shared" / "traces" / "mooncake_conversation.jsonl.gz"
CHAT = {
    "prompt_tokens": {"distribution": "normal", "mean": 1000, "std": 250, "min": 16, "max": 2000},
    "output_tokens": {"distribution": "normal", "mean": 200, "std": 50, "min": 2, "max": 400},
}


@dataclass(frozen=True)
class Case:
    """A scenario in `overrides` over the common base, and how many requests the exact run gets (0: none)."""

    name: str
    requests: int
    workload: dict[str, Any]
    engine: dict[str, Any] = field(default_factory=dict)
    layout: dict[str, Any] = field(default_factory=dict)
    exact_requests: int = 0
    full_only: bool = False

    def scenario(self, requests: int) -> dict[str, Any]:
        """The scenario document with ``requests`` requests."""
        workload = {**self.workload}
        if "trace" in workload:
            workload["trace"] = {**workload["trace"], "max_requests": requests}
        else:
            workload["num_requests"] = requests
        return {
            "name": self.name,
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "layout": self.layout,
            "engine": {"max_num_batched_tokens": 2048, "max_model_len": 8192, **self.engine},
            "workload": workload,
        }


def poisson(rate: float, **more: Any) -> dict[str, Any]:
    return {"arrivals": {"process": "poisson", "rate_per_s": rate}, **CHAT, **more}


def outputs(mean: int) -> dict[str, Any]:
    return {"distribution": "normal", "mean": mean, "std": mean / 4, "min": 2, "max": 2 * mean}


PLAIN = {"enable_prefix_caching": False}
EAGLE = {"method": "eagle", "head_layers": 1, "num_speculative_tokens": 3, "acceptance_rate": 0.75}
DRAFTS = {**PLAIN, "speculative": EAGLE}
GROUPS = {"groups": 10, "prefix_tokens": 500, "prompts_per_group": 100}
CASES = (
    Case("rate 5", 10_000, poisson(5), PLAIN, exact_requests=5_000),
    Case("rate 20", 10_000, poisson(20), PLAIN, exact_requests=5_000),
    Case("rate 22", 10_000, poisson(22), PLAIN, exact_requests=5_000),  # a batch of about 100
    Case("rate 27", 10_000, poisson(27), PLAIN, exact_requests=5_000),
    Case("rate 20, prefix cache, unique", 10_000, poisson(20), exact_requests=5_000),
    Case("rate 20, 10 shared prefixes", 10_000, poisson(20, prefixes=GROUPS), exact_requests=5_000),
    Case("output 200, rate 4", 10_000, poisson(4), PLAIN, exact_requests=2_000),
    Case("output 4000, rate 0.5", 5_000, poisson(0.5, output_tokens=outputs(4000)), PLAIN, exact_requests=500),
    Case("rate 5, EAGLE", 10_000, poisson(5), DRAFTS, exact_requests=5_000),
    Case("rate 20, EAGLE", 10_000, poisson(20), DRAFTS, exact_requests=5_000),
    Case("output 4000, rate 0.5, EAGLE", 5_000, poisson(0.5, output_tokens=outputs(4000)), DRAFTS, exact_requests=500),
    Case("8 replicas, rate 160", 40_000, poisson(160), PLAIN, {"replicas": 8}, exact_requests=8_000),
    Case(
        "Mooncake trace, 8 replicas",
        12_031,
        {"trace": {"path": str(MOONCAKE), "format": "mooncake"}},
        {"max_model_len": 131_072, "max_num_batched_tokens": 8192},
        {"replicas": 8},
    ),
    Case("1,000,000 requests, rate 20", 1_000_000, poisson(20), PLAIN, full_only=True),
)


def measure(case: Case, requests: int, exact: bool) -> dict[str, float]:
    """Run in this process; CPU seconds, events, steps and peak memory."""
    from sim import Scenario
    from sim.cluster.fleet import Fleet
    from sim.run import simulate

    loop_s = 0.0
    run = Fleet.run

    def timed(fleet: Fleet) -> None:
        nonlocal loop_s
        begin = time.process_time()
        run(fleet)
        loop_s = time.process_time() - begin

    Fleet.run = timed  # type: ignore[method-assign]
    scenario = Scenario.from_dict(case.scenario(requests))
    begin = time.process_time()
    summary = simulate(scenario, exact=exact).summary
    return {
        "loop_s": loop_s,
        "total_s": time.process_time() - begin,
        "requests": summary.requests.completed,
        "events": summary.simulation.events,
        "steps": summary.simulation.engine_steps,
        "batch": summary.utilization.mean_batch_size or 0.0,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def in_process(case: Case, requests: int, exact: bool, installation: Path) -> dict[str, float]:
    """`measure` in a fresh interpreter that takes servecast from ``installation``."""
    command = [sys.executable, __file__, "--measure", json.dumps([case.name, requests, exact])]
    path = os.pathsep.join((str(installation), str(Path(__file__).parent)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


HEADER = (
    f"{'':32} {'requests a CPU-second':^28} | {'':26} | {'--exact: steps a CPU-second':^32}\n"
    f"{'case':32} {'compiled':>10} {'plain':>8} {'ratio':>8} | {'events/req':>10} {'batch':>6} {'peak MiB':>8} | "
    f"{'compiled':>10} {'plain':>8} {'plain speed-up':>12}"
)


def row(case: Case, compiled: Path | None) -> str:
    """One line of the table; the speed-up is that of time by change over one event a step, both in plain Python."""
    best = in_process(case, case.requests, False, compiled) if compiled else None
    plain = in_process(case, case.requests, False, ROOT)
    rate = plain["requests"] / plain["loop_s"]
    fast = f"{best['requests'] / best['loop_s']:10,.0f}" if best else f"{'':10}"
    ratio = f"{best['requests'] / best['loop_s'] / rate:8.1f}" if best else f"{'':8}"
    text = (
        f"{case.name:32} {fast} {rate:8,.0f} {ratio} | {plain['events'] / plain['requests']:10.2f} "
        f"{plain['batch']:6.1f} {plain['peak_bytes'] / 2**20:8,.0f} | "
    )
    if not case.exact_requests:
        return text
    best = in_process(case, case.exact_requests, True, compiled) if compiled else None
    slow = in_process(case, case.exact_requests, True, ROOT)
    fast = f"{best['steps'] / best['loop_s']:10,.0f}" if best else f"{'':10}"
    return text + f"{fast} {slow['steps'] / slow['loop_s']:8,.0f} {rate * slow['loop_s'] / slow['requests']:12.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="names of cases to run (default: all but the largest)")
    parser.add_argument("--full", action="store_true", help="the largest case too")
    parser.add_argument("--plain", action="store_true", help="leave out the compiled event loop")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        name, requests, exact = json.loads(args.measure)
        print(json.dumps(measure(next(case for case in CASES if case.name == name), requests, exact)))
        return
    compiled = None if args.plain else build()
    print(HEADER)
    for case in CASES:
        if (args.cases and case.name not in args.cases) or (case.full_only and not (args.full or args.cases)):
            continue
        if "trace" in case.workload and not MOONCAKE.exists():
            print(f"{case.name:32} skipped: the trace is not at hand")
            continue
        print(row(case, compiled), flush=True)


if __name__ == "__main__":
    main()
