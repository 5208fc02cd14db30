"""Cases from Qwen3-14B rate ladders (inference-sim residency-vllm), ShareGPT replays, and printed KV pools.

- Below the knee the ladder is open loop. Its client caps requests in flight at 256: the runs that hit the cap are a
  closed loop of 256, and only their throughput is scored.
- The ShareGPT replays offer 300 requests in half a minute to one consumer GPU. Nearly all of their time is spent
  working the backlog off: latencies follow from throughput and the exact lengths, so aggregates score throughput only.
- KV pools: the block count that an engine printed at start, predicted without the override.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from calibration.cases_open import engine_of, load_tags, seconds, significant, tags_of
from calibration.cases_tags import HARDWARE

Row = dict[str, str]
Document = dict[str, Any]

CAP: Final = 256  # requests that the ladder's client keeps in flight at most
_STATISTICS: Final = ("mean", "p50", "p90", "p95", "p99")
_RATES: Final = ("request_throughput_mean_req_per_s", "output_throughput_mean_tok_per_s")
# Prompt lengths of the mixed ladder: half of about 250 tokens, half of about 3,920 (quantiles of the sent prompts).
_MIXED: Final = [[0, 227], [0.05, 243], [0.25, 253], [0.5, 270], [0.501, 3780], [0.75, 3917], [0.95, 3958], [1, 4024]]
# ShareGPT lengths of the replays (quantiles).
_SHAREGPT_IN: Final = [[0, 262], [0.05, 308], [0.25, 483], [0.5, 732], [0.75, 1110], [0.95, 1749], [1, 3998]]
_SHAREGPT_OUT: Final = [[0, 512], [0.5, 632], [1, 1021]]


def documents(rows: list[Row]) -> Iterator[tuple[str, Document]]:
    """(file name, case) of every run of the ladders and replays, then the KV pools."""
    for row in rows:
        if row["id"].startswith("rsd-"):
            yield row["id"], _capped(row) if "CLIENT CAP" in row["note"] else _ladder(row)
        elif row["id"].startswith("lss-"):
            yield row["id"], _sharegpt(row)
    yield "kv-blocks", {"cases": list(_pools(rows))}


def _ladder(row: Row) -> Document:
    rate = float(row["rate_or_concurrency"].split()[0])
    document = _case(row)
    document["tags"] |= {**load_tags(rate, float(row["e2e_mean_ms"]) / 1e3, CAP), "replay": row["id"]}
    document["scenario"]["workload"] = {
        "duration_s": 600.0,
        "arrivals": {"process": "poisson", "rate_per_s": rate},
        "prompt_tokens": {"distribution": "normal", "mean": float(row["isl"]), "cv": 0.0155},
        "output_tokens": {"distribution": "constant", "value": 128},
    }
    document["measured"] = {
        f"{metric}_s": {statistic: seconds(row[f"{metric}_{statistic}_ms"]) for statistic in _STATISTICS}
        for metric in ("ttft", "tpot", "e2e")
    }
    return document


def _capped(row: Row) -> Document:
    document = _case(row)
    document["tags"] |= {"knee": "past", "load": "heavy"}
    document["notes"] += f"; the client's cap of {CAP} requests in flight was reached, so this is a closed loop"
    mixed = "256 and 4096" in row["workload_kind"]
    plain = {"distribution": "normal", "mean": float(row["isl"]), "cv": 0.0155}
    document["scenario"]["workload"] = {
        "num_requests": int(float(row["n_requests"])),
        "arrivals": {"process": "closed_loop", "concurrency": CAP},
        "prompt_tokens": {"distribution": "empirical", "quantiles": _MIXED} if mixed else plain,
        "output_tokens": {"distribution": "constant", "value": 128},
    }
    document["measured"] = {"throughput": _throughput(row)}
    return document


def _sharegpt(row: Row) -> Document:
    document = _case(row)
    document["tags"] |= {"knee": "past", "load": "heavy", "replay": row["id"]}
    document["notes"] += "; ShareGPT lengths by their quantiles, prefix sharing left out"
    document["scenario"]["workload"] = {
        "num_requests": 300,
        "arrivals": {"process": "poisson", "rate_per_s": 10.0},
        "prompt_tokens": {"distribution": "empirical", "quantiles": _SHAREGPT_IN},
        "output_tokens": {"distribution": "empirical", "quantiles": _SHAREGPT_OUT},
    }
    document["measured"] = {"throughput": _throughput(row)}
    return document


def _case(row: Row) -> Document:
    return {
        "name": row["id"],
        "source": f"{row['source']}, {row['id'].partition('-')[2]}",
        "notes": f"vLLM {row['engine_version']}, {row['workload_kind']}",
        "tags": tags_of(row),
        "scenario": {
            "model": row["model"],
            "hardware": HARDWARE[row["gpu"]],
            "layout": {"tensor_parallel_size": int(float(row["tp"]))},
            "engine": {"max_num_seqs": 256, "max_num_batched_tokens": 8192, **engine_of(row)},
        },
    }


def _throughput(row: Row) -> dict[str, float]:
    names = ("requests_per_s", "output_tokens_per_s")
    return {name: significant(float(row[key])) for name, key in zip(names, _RATES, strict=True) if key in row}


def _pools(rows: list[Row]) -> Iterator[Document]:
    """One case for each setup whose engine printed its KV blocks (not those borrowed from a sibling)."""
    seen = set()
    for row in rows:
        engine = engine_of(row) if "gpu_kv_blocks" in row.get("flags", "") else {}
        blocks = engine.pop("num_gpu_blocks_override", None)
        if blocks is None or "sibling" in row["flags"] or row["gpu"] not in HARDWARE:
            continue
        scenario = {
            "model": row["model"],
            "hardware": HARDWARE[row["gpu"]],
            "layout": {"tensor_parallel_size": int(float(row["tp"]))},
            "engine": engine,
            "workload": {
                "num_requests": 1,
                "arrivals": {"process": "constant", "rate_per_s": 1.0},
                "prompt_tokens": {"distribution": "constant", "value": 16},
                "output_tokens": {"distribution": "constant", "value": 1},
            },
        }
        setup = str(scenario)
        if setup not in seen:
            seen.add(setup)
            yield _pool(row, scenario, blocks)


def _pool(row: Row, scenario: Document, blocks: int) -> Document:
    return {
        "name": f"kv-blocks-{row['id']}",
        "source": f"{row['source']}, engine log",
        "tags": {**tags_of(row, "report"), "knee": "none", "load": "none"},
        "scenario": scenario,
        "measured": {"kv": {"num_gpu_blocks": blocks}},
    }
