"""show layouts: what is legal, what fits, what it leaves of a GPU, and why the others are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sim import Scenario
from sim.assemble import assemble
from sim.errors import InputError

Run = Callable[..., tuple[int, str, str]]


def listed(servecast: Run, *arguments: object) -> dict[str, dict[str, Any]]:
    code, out, err = servecast("show", "layouts", *arguments, "--json")
    assert (code, err) == (0, "")
    return {row["label"]: row for row in json.loads(out)}


@pytest.mark.parametrize("names", [("qwen2.5-7b", "l40s"), ("mixtral-8x7b", "a100-sxm-80gb")])
def test_what_is_listed_is_what_a_run_would_do(servecast: Run, names: tuple[str, str]) -> None:
    for row in listed(servecast, *names).values():
        document = {
            "model": names[0],
            "hardware": names[1],
            "layout": row["layout"],
            "workload": {
                "num_requests": 1,
                "arrivals": {"process": "constant", "rate_per_s": 1},
                "prompt_tokens": 1,
                "output_tokens": 1,
            },
        }
        if row["verdict"] == "fits":
            budget = assemble(Scenario.from_dict(document)).budget
            assert budget is not None
            assert row["gpu_bytes"]["weights"] == budget.weights_bytes
            assert row["kv_tokens"] == budget.capacity_tokens * row["layout"].get("data_parallel_size", 1)
        else:
            with pytest.raises(InputError) as refusal:
                assemble(Scenario.from_dict(document))
            assert (refusal.value.problem, refusal.value.remedy) == (row["reason"], row["remedy"])


def test_one_that_does_not_divide_says_what_does(servecast: Run) -> None:
    row = listed(servecast, "qwen2.5-7b", "l40s")["TP8"]
    assert row["verdict"] == "refused"
    assert "28 attention heads" in row["reason"]
    assert row["remedy"] == "sizes that do: 1, 2, 4"


def test_one_that_is_too_small_says_by_how_much_on_its_fullest_stage(servecast: Run) -> None:
    row = listed(servecast, "deepseek-v3", "h200-sxm", "--max-gpus", 4)["TP1 PP2"]
    memory = row["gpu_bytes"]
    assert row["verdict"] == "does not fit"
    assert memory["missing"] > memory["weights"] - memory["usable"] > 0
    assert row["binding_rank"].startswith("pipeline stage 2")  # the first has the three layers without experts


def test_more_gpus_hold_at_least_as_much(servecast: Run) -> None:
    rows = listed(servecast, "llama-3.1-70b", "h100-sxm", "--set", "engine.max_model_len=8192")
    held = [rows[f"TP{size}"].get("kv_tokens", 0) for size in (1, 2, 4, 8)]
    assert held == sorted(held)
    assert held[0] == 0 < held[-1]


def test_the_table_names_the_smallest(servecast: Run) -> None:
    _, out, _ = servecast("show", "layouts", "llama-3.1-70b", "h100-sxm", "--set", "engine.max_model_len=8192")
    assert "Smallest that fit: TP1 PP2, TP2 on 2 GPUs." in out


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["layouts"], "show layouts"),
        (["layouts", "qwen2.5-7b"], "show layouts"),
        (["layouts", "qwen2.5-7b", "l40s", "--max-gpus", "0"], "--max-gpus"),
        (["layouts", "qwen2.5-7b", "l40s", "--set", "engine.max_model_len=99999999"], "engine.max_model_len"),
        (["layouts", "qwen2.5-7b", "l40x"], "hardware"),
        (["models", "qwen2.5-7b", "l40s"], "HARDWARE"),
        (["hardware", "--max-gpus", "4"], "--max-gpus"),
    ],
)
def test_what_cannot_be_shown_is_refused(servecast: Run, arguments: list[str], field: str) -> None:
    code, out, err = servecast("show", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"servecast: {field}")
