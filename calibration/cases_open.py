"""Cases from the vLLM 0.15.1 runs of inference-sim (open loop, Poisson arrivals, 100 prompts sent over and over).

What these runs really are, beyond their labels:

- 10 shared beginnings x 10 questions make 100 prompts, sent in order again and again, with prefix caching on.
- Arrivals are Poisson; the rate changes at the end of a stage.
- Prompts are 4.5 % longer than nominal where the run's own count is not known (re-tokenised random text).
- Outputs are pinned. The client counts them by re-tokenising, so TPOT is taken as (E2E - TTFT) / (requested - 1).
- Experts are sharded over the tensor-parallel ranks (vLLM's default); the runs do not say.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from calibration.cases_tags import HARDWARE, family_of, group_of, kind_of, precision_of

Row = dict[str, str]
Document = dict[str, Any]

LONGER: Final = 1.045  # prompts against their nominal length
SPREAD: Final = 0.011  # coefficient of variation of prompt lengths
REQUESTED: Final = {"codegen": 247, "general": 248, "general-lite": 248, "roleplay": 251, "reasoning-lite": 1448}
# Overloaded, mismatched, or of an unconfirmed rate: nothing of them can be scored.
UNSCORABLE: Final = (
    "s2r-46",
    "trn-20260217-170634",
    "trn-20260218-065057",
    "trn-20260218-135247",
    "trn-20260218-160939",
)
_STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
_STAGE = re.compile(r"([\d.]+)rps x (\d+)s")
_PARTS = re.compile(r"sys (\d+) \+ question (\d+) tok")


def documents(rows: list[Row]) -> Iterator[tuple[str, Document]]:
    """(file name, case) of every run that can be scored."""
    runs: dict[str, list[Row]] = {}
    for row in rows:
        if row["id"].startswith(("s2r-", "trn-")) and not row["id"].endswith("-all"):
            runs.setdefault(row["id"].rsplit("-", 1)[0], []).append(row)
    for name, stages in runs.items():
        if name not in UNSCORABLE:
            yield name, _run(name, stages)


def _run(name: str, stages: list[Row]) -> Document:
    stages = sorted(stages, key=lambda row: row["id"])
    first = stages[0]
    document: Document = {
        "name": name,
        "source": f"{first['source']}, {_experiment(first) or name.removeprefix('trn-')}",
        "notes": _notes(first),
        "tags": {**tags_of(first), **_record(first)},
        "scenario": {
            "model": first["model"],
            "hardware": HARDWARE[first["gpu"]],
            "layout": {"tensor_parallel_size": int(float(first["tp"]))},
            "engine": engine_of(first),
            "workload": _workload(first),
        },
    }
    limit = int(document["scenario"]["engine"]["max_num_seqs"])
    windows: list[Document] = []
    start = 0.0
    for row, (rate, duration) in zip(stages, stages_of(first), strict=True):
        windows.append(
            {
                "name": row["id"].rsplit("-", 1)[1],
                "arrivals_s": [start, start + duration],
                "tags": load_tags(rate, float(row["e2e_mean_ms"]) / 1e3, limit),
                "measured": measured_of(row, requested(row)),
            }
        )
        start += duration
    document["windows"] = windows
    return document


def engine_of(row: Row) -> Document:
    """The engine section that the run's flags say; what they leave out is the preset's.

    A share of memory listed as a default is left to the release: 18,038 blocks of Qwen3-14B on vLLM 0.23 need its 0.92.
    """
    flags = dict(flag.split("=", 1) for flag in row["flags"].split() if "=" in flag)
    engine: Document = {"preset": "vllm", "version": row["engine_version"]}
    for flag in ("max_num_seqs", "max_num_batched_tokens", "max_model_len"):
        if flags.get(flag, "").isdecimal():
            engine[flag] = int(flags[flag])
    if "gpu_memory_utilization" in flags and not row["flags"].startswith("defaults:"):
        engine["gpu_memory_utilization"] = float(flags["gpu_memory_utilization"])
    blocks = re.match(r"\d+", flags.get("gpu_kv_blocks", ""))
    if blocks:
        engine["num_gpu_blocks_override"] = int(blocks.group())
    return engine


def stages_of(row: Row) -> list[tuple[float, float]]:
    """(rate in requests/s, duration in s) of each stage."""
    return [(float(rate), float(duration)) for rate, duration in _STAGE.findall(row["workload_kind"])]


def requested(row: Row) -> int:
    """Output tokens that each request asked for and got."""
    found = re.search(r"requested (\d+)", row["note"])
    return int(found.group(1)) if found else REQUESTED[_profile(row)]


def measured_of(row: Row, output_tokens: int) -> Document:
    """Latencies in seconds; TPOT over the tokens that were requested."""
    measured: Document = {}
    for metric in ("ttft", "e2e"):
        keys = ((statistic, f"{metric}_{statistic}_ms") for statistic in _STATISTICS)
        measured[f"{metric}_s"] = {statistic: seconds(row[key]) for statistic, key in keys if key in row}
    decode_s = measured["e2e_s"]["mean"] - measured["ttft_s"]["mean"]
    measured["tpot_s"] = {"mean": significant(decode_s / (output_tokens - 1))}
    return measured


def seconds(milliseconds: str) -> float:
    """Milliseconds as text to seconds, six digits."""
    return significant(float(milliseconds) / 1e3)


def significant(value: float, digits: int = 6) -> float:
    """``value`` rounded to so many significant digits."""
    return float(f"{value:.{digits}g}")


def load_tags(rate_per_s: float, e2e_s: float, max_num_seqs: int) -> dict[str, str]:
    """``knee`` and ``load`` of a stage, from the requests in flight by Little's law.

    At the knee, mean + 2 standard deviations of a Poisson count reach the batch limit.
    """
    in_flight = rate_per_s * e2e_s
    knee = "at" if in_flight + 2 * math.sqrt(in_flight) > max_num_seqs else "below"
    return {"knee": knee, "load": "light" if in_flight < 20 else "medium" if in_flight < 60 else "heavy"}


def _workload(row: Row) -> Document:
    shared, question = (int(part) for part in _parts(row))
    grade_a = "grade A" in row["note"]
    mean = float(row["isl"]) if grade_a else LONGER * (shared + question)
    return {
        "arrivals": {
            "process": "stages",
            "stages": [{"rate_per_s": rate, "duration_s": duration} for rate, duration in stages_of(row)],
        },
        "prompt_tokens": {"distribution": "normal", "mean": round(mean, 1), "cv": SPREAD},
        "output_tokens": {"distribution": "constant", "value": requested(row)},
        "prefixes": {
            "groups": 10,
            "prefix_tokens": round(shared * mean / (shared + question)),
            "prompts_per_group": 10,
        },
    }


def _parts(row: Row) -> tuple[str, str]:
    found = _PARTS.search(row["workload_kind"])
    assert found, row["workload_kind"]
    return found.group(1), found.group(2)


def _profile(row: Row) -> str:
    found = re.search(r"shared_prefix ([\w-]+):", row["workload_kind"])
    assert found, row["workload_kind"]
    return found.group(1)


def _experiment(row: Row) -> str:
    found = re.search(r"exp (\S+);", row["note"])
    return f"experiment {found.group(1)}" if found else ""


def _record(row: Row) -> dict[str, str]:
    """Name of the per-request record of the run, where there is one (see `calibration.cases_replay`)."""
    if "grade A" not in row["note"]:
        return {}
    found = re.search(r"same run as training/(\d+-\d+)", row["note"])
    return {"replay": f"trn-{found.group(1)}" if found else row["id"].rsplit("-", 1)[0]}


def _notes(row: Row) -> str:
    notes = [f"vLLM {row['engine_version']}, profile {_profile(row)}"]
    if "grade B" in row["note"]:
        notes.append("aggregates only: prompt lengths and their order inferred from sibling runs of the same profile")
    if "kv_cpu_offload=on" in row["flags"]:
        notes.append("KV offload to the host was on, which is not modelled")
    if "sibling run" in row["flags"]:
        notes.append("KV blocks as printed by a sibling run")
    if kind_of(row["model"]) == "moe":
        notes.append("expert sharding assumed to be tensor parallel; the first requests were slowed by warm-up")
    return "; ".join(notes)


def tags_of(row: Row, group: str | None = None) -> dict[str, str]:
    """What kind of deployment a row is, for grouping; ``group`` None: by model and device."""
    return {
        "group": group or group_of(row["model"], row["gpu"]),
        "gpu": HARDWARE[row["gpu"]],
        "family": family_of(row["model"]),
        "kind": kind_of(row["model"]),
        "precision": precision_of(row["weight_dtype"]),
        "engine": f"{row['engine'].split(' ')[0]} {row['engine_version']}",
        "grade": "A" if "grade A" in row["note"] else "B",
    }
