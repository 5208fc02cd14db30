"""A small run made by a plain loop, every single step kept beside the run-length rows: food for metrics and reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.metrics import summarize
from sim.records import REQUEST_COLUMNS, STEP_COLUMNS, Columns
from sim.result import Result, RunContext
from sim.scenario import Scenario
from sim.summary import Calibration, Memory, Simulation

BLOCK = 16
BLOCKS = 2001
STEP_NAMES = tuple(name for name, _ in STEP_COLUMNS)


def toy_scenario(**changes: Any) -> Scenario:
    """A valid scenario; the loop below takes its requests from the seed, not from here."""
    return Scenario.from_dict(
        {
            "name": "toy",
            "model": "meta-llama/Llama-3.1-8B",
            "hardware": "h100-sxm",
            "engine": {"max_num_seqs": 24},
            "workload": {
                "num_requests": 300,
                "arrivals": {"process": "poisson", "rate_per_s": 6.0},
                "prompt_tokens": {"distribution": "constant", "value": 500},
                "output_tokens": {"distribution": "constant", "value": 60},
            },
            "slo": {"ttft_p99_s": 0.5, "tpot_p99_s": 0.02, "goodput_ttft_s": 0.3, "goodput_tpot_s": 0.03},
            **changes,
        }
    )


@dataclass
class ToyRun:
    """The result, and what a reader can count on his fingers: every step's length and every gap."""

    result: Result
    step_lengths_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    block_seconds: float = 0.0
    token_seconds: float = 0.0


@dataclass
class _Job:
    id: int
    arrival_s: float
    prompt: int
    output: int
    done: int = 0
    scheduled_s: float = -1.0
    first_s: float = -1.0
    finish_s: float = -1.0

    @property
    def tokens(self) -> int:
        return self.prompt + max(self.done - 1, 0)


def toy_run(count: int = 300, rate_per_s: float = 6.0, seed: int = 0, rejected: int = 2, **changes: Any) -> ToyRun:
    """Serve ``count`` random requests, 24 at a time, whole prompts first; the last ``rejected`` are refused."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate_per_s, count))
    jobs = [_Job(i, float(arrivals[i]), int(rng.integers(20, 1500)), int(rng.integers(1, 120))) for i in range(count)]
    steps, run = Columns(STEP_COLUMNS), ToyRun(None)  # type: ignore[arg-type]
    _serve(jobs[: count - rejected], steps, run)
    rows = Columns(REQUEST_COLUMNS)
    for job in jobs:
        refused = job.id >= count - rejected
        times = (job.arrival_s, job.arrival_s, job.scheduled_s, job.first_s, job.finish_s)
        output = 0 if refused else job.output
        rows.append((job.id, 0, *times, job.prompt, output, 0, 0, 0, int(refused), refused - 1, 0, -1, -1, 1))
    context = RunContext(
        scenario=toy_scenario(**changes),
        num_gpu_blocks=BLOCKS,
        block_size=BLOCK,
        bytes_per_token=131072,
        memory=Memory(total_bytes=80 * 2**30, usable_bytes=72 * 2**30, weights_bytes=15 * 2**30, kv_bytes=50 * 2**30),
        calibration=Calibration(hardware="h100-sxm", calibrated=False, notes=("toy step times",)),
        simulation=Simulation(events=1, engine_steps=len(run.step_lengths_s), wall_s=0.1),
        usd_per_gpu_hour=3.0,
        reject_reasons=("longer than max_model_len",),
    )
    gaps = np.zeros(0)
    run.result = Result(summarize(context, rows, steps, gaps), context, rows, steps, gaps)
    return run


def _serve(jobs: list[_Job], steps: Columns, run: ToyRun) -> None:
    now, waiting, running, number = 0.0, list(jobs), [], 0
    pending: dict[str, Any] | None = None
    while waiting or running:
        if not running:
            now = max(now, waiting[0].arrival_s)
        fresh = []
        while waiting and waiting[0].arrival_s <= now and len(running) + len(fresh) < 24 and len(fresh) < 2:
            fresh.append(waiting.pop(0))
            fresh[-1].scheduled_s = now
        row = _shape(number, now, running, fresh, sum(job.arrival_s <= now for job in waiting))
        length = row["duration_s"]
        _count(run, row, length)
        pending = _merge(steps, pending, row, running)
        now, number = now + length, number + 1
        for job in running + fresh:
            job.done += 1
            job.first_s = now if job.done == 1 else job.first_s
            job.finish_s = now if job.done == job.output else -1.0
        running = [job for job in running + fresh if job.done < job.output]
    if pending:
        steps.append(tuple(pending[name] for name in STEP_NAMES))


def _shape(number: int, now: float, running: list[_Job], fresh: list[_Job], waiting: int) -> dict[str, Any]:
    context = sum(job.tokens + 1 for job in running)
    prompts = sum(job.prompt for job in fresh)
    pairs = sum(job.prompt * (job.prompt + 1) // 2 for job in fresh)
    held = [job.tokens + 1 for job in running] + [job.prompt for job in fresh]
    blocks = sum(-(-tokens // BLOCK) for tokens in held)
    row = dict.fromkeys(STEP_NAMES, 0) | {
        "step": number, "start_s": now, "steps": 1, "decode_seqs": len(running), "decode_context": context,
        "decode_context_windowed": context, "prefill_seqs": len(fresh), "prefill_tokens": prompts,
        "prefill_pairs": pairs, "prefill_pairs_windowed": pairs, "prefill_context": prompts,
        "prefill_context_windowed": prompts, "sampled_seqs": len(running) + len(fresh), "gaps": len(running),
        "running": len(held), "waiting": waiting, "used_blocks": blocks, "used_blocks_end": blocks,
        "held_tokens": sum(held),
    }  # fmt: skip
    row["duration_s"] = 0.006 + 1e-7 * context + 4e-5 * prompts
    row["increment_s"] = 1e-7 * len(running)
    return row


def _merge(steps: Columns, pending: dict[str, Any] | None, row: dict[str, Any], running: list[_Job]) -> dict[str, Any]:
    """Lengthen the pending row by a step with the same members, or write it out and begin anew."""
    members = tuple(job.id for job in running)
    if pending and not row["prefill_seqs"] and not pending["prefill_seqs"] and pending["members"] == members:
        pending["steps"] += 1
        pending["used_blocks_end"] = row["used_blocks"]
        return pending
    if pending:
        steps.append(tuple(pending[name] for name in STEP_NAMES))
    return row | {"members": members}


def _count(run: ToyRun, row: dict[str, Any], length: float) -> None:
    run.step_lengths_s.append(length)
    run.gaps_s += [length] * row["gaps"]
    run.block_seconds += row["used_blocks"] * length
    run.token_seconds += row["held_tokens"] * length
