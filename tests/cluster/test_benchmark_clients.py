"""Clients as benchmark tools are: one list of prompts for all users, sent again from run to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sim import Scenario, simulate
from sim.errors import InputError
from sim.result import Result
from workloads import WorkloadSpec, build_workload, write_trace


def run(replicas: int = 1, *, exact: bool = False, **workload: Any) -> Result:
    document = {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "hardware": "h100-sxm",
        "layout": {"replicas": replicas},
        "engine": {"num_gpu_blocks_override": 5000, "max_model_len": 4096},
        "workload": {
            "prompt_tokens": 512,
            "output_tokens": {"distribution": "uniform", "min": 4, "max": 60},
            **workload,
        },
    }
    return simulate(Scenario.from_dict(document), exact=exact)


def columns(frame: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {name: frame[name].to_numpy() for name in frame}


def prompts(count: int) -> dict[str, int]:
    return {"groups": 1, "prefix_tokens": 1, "prompts_per_group": count}


def closed(users: int, queue: str = "shared") -> dict[str, Any]:
    return {"process": "closed_loop", "concurrency": users, "queue": queue}


@pytest.mark.parametrize("queue", ["own", "shared"])
def test_never_more_are_under_way_than_there_are_users(queue: str) -> None:
    rows = columns(run(num_requests=60, arrivals=closed(7, queue)).requests)
    at = rows["arrival_s"][:, None]
    under_way = ((rows["arrival_s"] <= at) & (rows["finish_s"] > at)).sum(axis=1)
    assert under_way.max() == 7


def test_users_of_one_list_send_it_in_its_order() -> None:
    def sent(queue: str) -> bool:
        arrival = columns(run(num_requests=60, arrivals=closed(7, queue)).requests)["arrival_s"]
        return bool((np.diff(arrival) >= 0).all())

    assert (sent("shared"), sent("own")) == (True, False)


def test_free_users_pause_before_the_next_request_of_the_list() -> None:
    pausing = {**closed(3), "think_s": 2.0}
    rows = columns(run(num_requests=12, arrivals=pausing).requests)
    sent, ended = np.sort(rows["arrival_s"])[3:], np.sort(rows["finish_s"])[:-3]
    assert sent == pytest.approx(ended + 2.0)


@pytest.mark.parametrize("queue", ["own", "shared"])
def test_a_warm_up_is_over_before_anything_is_measured(queue: str) -> None:
    warm = columns(run(num_requests=30, arrivals=closed(7, queue)).requests)
    result = run(num_requests=40, warmup_requests=30, arrivals=closed(7, queue))
    measured = columns(result.requests)
    assert measured["id"].tolist() == list(range(30, 70))
    assert measured["arrival_s"].min() == pytest.approx(warm["finish_s"].max())
    assert result.summary.requests.submitted == 40
    assert columns(result.steps)["start_s"].min() >= measured["arrival_s"].min()
    assert sum("warm-up" in note for note in result.summary.notes) == 1


def test_gaps_of_a_warm_up_do_not_count() -> None:
    """One token each: no gap is left but those of the warm-up, and they are not counted."""
    assert run(num_requests=5, warmup_requests=9, arrivals=closed(3), output_tokens=1).summary.itl_s.mean is None


def test_the_second_round_of_a_list_of_prompts_is_in_the_cache() -> None:
    cold = run(num_requests=40, arrivals=closed(4), prefixes=prompts(40)).summary
    warm = run(num_requests=40, warmup_requests=40, arrivals=closed(4), prefixes=prompts(40)).summary
    assert (cold.kv.prefix_hit_rate, warm.kv.prefix_hit_rate) == (0.0, pytest.approx(496 / 512))
    assert warm.throughput.output_tokens_per_s > cold.throughput.output_tokens_per_s


@pytest.mark.parametrize(("count", "hit"), [(40, 496 / 512), (41, 0.0)])
def test_in_turn_an_odd_list_meets_the_other_replica_the_second_time(count: int, hit: float) -> None:
    warm = run(2, num_requests=count, warmup_requests=count, arrivals=closed(4), prefixes=prompts(count)).summary
    assert warm.kv.prefix_hit_rate == pytest.approx(hit)


@pytest.mark.parametrize("queue", ["own", "shared"])
def test_jumps_change_nothing_after_a_warm_up(queue: str) -> None:
    lengths = {"distribution": "uniform", "min": 100, "max": 900}
    jumped, stepped = (
        run(2, exact=exact, num_requests=60, warmup_requests=31, arrivals=closed(9, queue), prompt_tokens=lengths)
        for exact in (False, True)
    )
    ours, theirs = columns(jumped.requests), columns(stepped.requests)
    times = [name for name in ours if name.endswith("_s")]
    assert all(ours[name] == pytest.approx(theirs[name], abs=1e-9, nan_ok=True) for name in times)
    assert all((ours[name] == theirs[name]).all() for name in ("replica", "cached_tokens", "status"))
    assert jumped.summary.itl_s.model_dump() == pytest.approx(stepped.summary.itl_s.model_dump(), abs=1e-9)


def test_a_trace_sent_by_users_of_one_list_keeps_its_order(tmp_path: Path) -> None:
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("prompt_tokens,output_tokens\n" + "".join(f"100,{5 + 37 * i % 50}\n" for i in range(30)))
    spec = {"trace": {"path": str(lengths), "arrivals": closed(4)}, "prompt_tokens": None, "output_tokens": None}
    arrival = columns(run(**spec).requests)["arrival_s"]
    assert len(arrival) == 30
    assert (np.diff(arrival) >= 0).all()


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("warmup_requests", {"arrivals": {"process": "poisson", "rate_per_s": 1.0}, "warmup_requests": 5}),
        ("warmup_requests", {"sessions": {"turns": 2}, "warmup_requests": 5, "arrivals": closed(2, "own")}),
        ("arrivals.queue", {"sessions": {"turns": 2}}),
    ],
)
def test_what_neither_can_mean_is_refused(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(InputError) as refused:
        run(**{"num_requests": 10, "arrivals": closed(2), **change})
    assert refused.value.field == f"workload.{field}"


def test_a_trace_cannot_say_who_takes_from_one_list(tmp_path: Path) -> None:
    document = {"num_requests": 9, "arrivals": closed(2), "prompt_tokens": 5, "output_tokens": 5}
    with pytest.raises(InputError, match="sent when any other ends"):
        write_trace(build_workload(WorkloadSpec.parse(document), 0), tmp_path / "out.csv")
